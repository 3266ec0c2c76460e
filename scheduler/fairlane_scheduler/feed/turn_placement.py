"""Places the items whose turn it is: one that a child process still works on holds no others."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from fairlane.core.errors import CutOff, TemplateError, UnreadableRow, WorkRaised
from fairlane.model.run import cell_of
from fairlane.pipeline.conversation import changed_field, read_fields, turn_fields
from fairlane.store.read.turn_reading import TurnReader
from fairlane.store.write.runs.runs import Turn
from fairlane_scheduler.feed.child_work import WorkAwaited
from fairlane_scheduler.feed.feed_batch import FeedBatch, PlacedItem
from fairlane_scheduler.feed.placement import PageAwaited, Placement, as_turn
from fairlane_scheduler.lanes.registry import ConnectionAwaited
from fairlane_scheduler.state.backlog import ActiveRun

READ_AT_ONCE = 16  # items whose conversations are read together


class TurnPlacement(Placement):
    """Places runs whose conversations go side by side, too."""

    def place_turns(
        self, run: ActiveRun, turns: Sequence[Turn], enough: Callable[[], bool]
    ) -> tuple[FeedBatch, list[Turn]]:
        """Place items whose turn it is until ``enough``; also returns which are placed.

        Those that a child process still works on hold no others.
        """
        placed, memory = list[PlacedItem](), dict[bytes, bytes]()
        self.unconnected.pop(run.ref, None)
        for first in range(0, len(turns), READ_AT_ONCE):
            if placed and enough():
                break
            fields = self._read_fields(run, turns[first : first + READ_AT_ONCE])
            read = self._memory(run, fields)
            earlier = {item: turn_fields(self._rendering(run), names, read) for item, names in fields.items()}
            read |= self._memory(run, earlier)
            memory |= read
            for item, names in fields.items():
                if placed and enough():
                    break
                own = {key: read[key] for name in (*names, *earlier[item]) if (key := name.encode()) in read}
                one = self._place_turn(run, item, own)
                placed += [] if one is None else [one]
        batch = FeedBatch()
        fed = {each.item.number for each in self._queue_or_record(run, placed, memory, batch)}
        return batch, [turn for turn in turns if turn.item in fed]

    def _place_turn(self, run: ActiveRun, item: int, own: dict[bytes, bytes]) -> PlacedItem | None:
        """An item with its conversation's memory; ``None`` for one that a child or a connection holds up."""
        try:
            one = self._place_one(run, item, lambda _: own)
        except ConnectionAwaited as awaited:
            self.unconnected[run.ref] = awaited.connection
        except (PageAwaited, WorkAwaited):
            pass
        else:
            return None if one is None else as_turn(one, own)
        return None

    def conversation_of(self, run: ActiveRun, item: int) -> str | None:
        """The items that an item waits for: its conversation. ``None`` for one whose row cannot be read.

        Raises `PageAwaited` and `NoChild`.
        """
        rendering, cell = self._rendering(run), cell_of(run.plan.spec, item)
        try:
            return changed_field(rendering, cell, self._pages.row(run.ref, run.plan.spec, cell.row))
        except (TemplateError, UnreadableRow, CutOff, WorkRaised, ValueError, RecursionError):
            return None

    def _memory(self, run: ActiveRun, fields: Mapping[int, tuple[str, ...]]) -> dict[bytes, bytes]:
        """Those fields of the run's memory, of all items, that are set."""
        names = [name for each in fields.values() for name in each]
        return TurnReader(self._runs.redis, self._runs.keys).memory(run.ref, names)

    def _read_fields(self, run: ActiveRun, turns: Sequence[Turn]) -> dict[int, tuple[str, ...]]:
        """What each item reads of the run's memory; without those whose page a child process decodes."""
        spec, rendering, fields = run.plan.spec, self._rendering(run), dict[int, tuple[str, ...]]()
        for turn in turns:
            cell = cell_of(spec, turn.item)
            try:
                row = self._pages.row(run.ref, spec, cell.row)
                fields[turn.item] = read_fields(rendering, cell, row) or ()
            except PageAwaited:
                continue
            except (TemplateError, UnreadableRow, CutOff, WorkRaised, ValueError, RecursionError):
                fields[turn.item] = ()
        return fields
