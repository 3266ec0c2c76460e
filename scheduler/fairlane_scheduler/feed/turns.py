"""Whose turn it is in the conversations of a run, and how those items are placed.

An item waits for the one before it alone, not for other conversations. One that a child process still works
on holds no others.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import islice

from fairlane.core.errors import CutOff, TemplateError, UnreadableRow, WorkRaised
from fairlane.model.run import RunRef, cell_of
from fairlane.pipeline.conversation import changed_field, read_fields, turn_fields
from fairlane.pipeline.rendering import RunItem
from fairlane.store.read.turn_reading import TurnReader, TurnStates
from fairlane.store.write.runs.runs import Turn
from fairlane_scheduler.feed.child_work import WorkAwaited
from fairlane_scheduler.feed.feed_batch import FeedBatch, PlacedItem
from fairlane_scheduler.feed.placement import PageAwaited, Placement, as_turn
from fairlane_scheduler.lanes.registry import ConnectionAwaited
from fairlane_scheduler.state.backlog import ActiveRun

DUE_AT_ONCE = 128  # items whose turn it is; more are looked for once these are fed
SCANNED_AT_ONCE = 4096
READ_AT_ONCE = 16  # items whose conversations are read together
MOST_HELD = 100_000  # items of a run that wait for a turn; behind so many no conversation is looked for

ConversationOf = Callable[[int], str | None]
"""An item's conversation; ``None`` for one that belongs to none. Raises what reading its row raises."""


class Turns:
    """The items of one run that were looked at and have not ended, by conversation and in row order.

    Nothing is kept of what has ended, so it grows with what waits and not with the run. All of it follows
    from `TurnStates` and the rows: another scheduler that looks at them has the same.
    """

    def __init__(self, states: TurnStates) -> None:
        self._states: TurnStates | None = states
        self.seen, self.unlisted = states.seen, states.unlisted
        self.scanned = 0
        self._due: dict[int, int] = {}  # item → the one before it; in the order in which their turns came
        self._next: dict[int, int] = {}
        self._last: dict[str, int] = {}
        self._conversations: dict[int, str] = {}
        self._ended_ahead: set[int] = set()  # fed by an earlier leader, and not looked at yet

    @property
    def may_scan(self) -> bool:
        """Whether more items should be looked at."""
        return len(self._due) < DUE_AT_ONCE and len(self._next) < MOST_HELD

    @property
    def has_due(self) -> bool:
        """Whether it is the turn of an item that is not fed."""
        return bool(self._due)

    def due(self) -> list[Turn]:
        """Items whose turn it is, those whose turn came first in front."""
        return [Turn(*each) for each in islice(self._due.items(), DUE_AT_ONCE)]

    def scan(self, upto: int, conversation_of: ConversationOf, enough: Callable[[], bool]) -> None:
        """Look at further items; stops where ``conversation_of`` raises."""
        last = min(upto, self.scanned + SCANNED_AT_ONCE)
        while self.scanned < last and self.may_scan and not enough():
            self._look_at(self.scanned, conversation_of)
            self.scanned += 1
        if self._states is not None and self.scanned >= len(self._states.fed) * 8:
            self._states = None  # no earlier leader has fed what follows

    def end(self, items: Iterable[int]) -> None:
        """Items have ended: it is the turn of those behind them."""
        for item in items:
            self.seen += 1
            conversation = self._conversations.pop(item, None)
            if conversation is None:
                if item >= self.scanned:
                    self._ended_ahead.add(item)
                continue
            following = self._next.pop(item, None)
            if following is None:
                del self._last[conversation]
            else:
                self._due[following] = item

    def feed(self, turns: Iterable[Turn]) -> None:
        """These items are fed."""
        for turn in turns:
            del self._due[turn.item]

    def _look_at(self, item: int, conversation_of: ConversationOf) -> None:
        ended = item in self._ended_ahead or (self._states is not None and self._states.had_ended(item))
        if ended:  # its row may be gone
            self._ended_ahead.discard(item)
            return
        conversation = conversation_of(item) or f"item:{item}"
        before = self._last.get(conversation)
        self._last[conversation], self._conversations[item] = item, conversation
        if before is not None:
            self._next[before] = item
        elif self._states is None or not self._states.was_fed(item):
            self._due[item] = -1


class Conversations:
    """Keeps the `Turns` of active runs in step with Redis."""

    def __init__(self, reader: TurnReader) -> None:
        self._reader = reader
        self._turns: dict[RunRef, Turns] = {}

    def may_feed(self, run: ActiveRun) -> bool:
        """Whether an item of the run can be fed, or one may be found; else the end of an item wakes it."""
        turns = self._turns.get(run.ref)
        if turns is None or run.may_feed_next or turns.has_due:
            return True
        return turns.may_scan and turns.scanned < run.items

    def due(
        self,
        run: ActiveRun,
        conversation_of: ConversationOf,
        enough: Callable[[], bool],
        refind: Callable[[], None],
    ) -> list[Turn]:
        """Items whose turn it is. It looks at further items until a page is awaited, or ``enough``.

        ``refind`` is called before what is fed is read anew: it rebuilds what Redis has lost of that.
        """
        turns = self._in_step(run, refind)
        with suppress(PageAwaited):
            turns.scan(run.items, conversation_of, enough)
        run.looked_at = turns.scanned
        return turns.due()

    def feed(self, ref: RunRef, turns: Collection[Turn]) -> None:
        """These items of a run are fed."""
        self._turns[ref].feed(turns)

    def forget(self, ref: RunRef) -> None:
        """Drop what is kept of a run: it has ended, or Redis says otherwise and is read anew."""
        self._turns.pop(ref, None)

    def _in_step(self, run: ActiveRun, refind: Callable[[], None]) -> Turns:
        """The run's turns after what has ended by now; read anew where Redis has lost what it had."""
        turns = self._turns.get(run.ref)
        if turns is not None:
            found = self._reader.ended(run.ref, turns.seen, turns.unlisted)
            whole = found.ended >= turns.seen and found.unlisted == turns.unlisted
            if whole and found.fed == run.cursor:
                turns.end(found.items)
                run.may_feed_next = turns.seen < found.ended
                return turns
            run.cursor = found.fed
        refind()
        turns = self._turns[run.ref] = Turns(self._reader.states(run.ref, run.plan.spec.steps))
        run.may_feed_next = False
        return turns


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
        try:
            return changed_field(self._item(run, item))
        except (TemplateError, UnreadableRow, CutOff, WorkRaised, ValueError, RecursionError):
            return None

    def _item(self, run: ActiveRun, number: int) -> RunItem:
        cell = cell_of(run.plan.spec, number)
        return RunItem(self._rendering(run), number, cell, self._pages.row(run.ref, run.plan.spec, cell.row))

    def _memory(self, run: ActiveRun, fields: Mapping[int, tuple[str, ...]]) -> dict[bytes, bytes]:
        """Those fields of the run's memory, of all items, that are set."""
        names = [name for each in fields.values() for name in each]
        return TurnReader(self._runs.redis, self._runs.keys).memory(run.ref, names)

    def _read_fields(self, run: ActiveRun, turns: Sequence[Turn]) -> dict[int, tuple[str, ...]]:
        """What each item reads of the run's memory; without those whose page a child process decodes."""
        fields = dict[int, tuple[str, ...]]()
        for turn in turns:
            try:
                fields[turn.item] = read_fields(self._item(run, turn.item)) or ()
            except PageAwaited:
                continue
            except (TemplateError, UnreadableRow, CutOff, WorkRaised, ValueError, RecursionError):
                fields[turn.item] = ()
        return fields
