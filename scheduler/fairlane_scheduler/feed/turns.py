"""Finds the next turns of a run's conversations, and places their items.

An item waits only for the previous turn of its conversation, not for other conversations. An item that a
child process still works on delays no other conversation.
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

DUE_AT_ONCE = 128  # items whose turn has come; more are searched for once these are fed
SCANNED_AT_ONCE = 4096
READ_AT_ONCE = 16  # items whose conversations are read together
MOST_HELD = 100_000  # with so many waiting items, a run is scanned no further

ConversationOf = Callable[[int], str | None]
"""An item's conversation; ``None`` for one that belongs to none. Raises what reading its row raises."""


class Turns:
    """One run's scanned items that have not ended, by conversation and in row order.

    It grows with the waiting items, not with the run. Another scheduler can rebuild it from `TurnStates` and
    the rows.
    """

    def __init__(self, states: TurnStates) -> None:
        self._states: TurnStates | None = states
        self.seen, self.unlisted = states.seen, states.unlisted
        self.scanned = 0
        self._due: dict[int, int] = {}  # item → its previous turn, or -1; the earliest due first
        self._next: dict[int, int] = {}
        self._last: dict[str, int] = {}
        self._conversations: dict[int, str] = {}
        self._ended_ahead: set[int] = set()  # ended, and not scanned yet: an earlier leader fed them

    @property
    def may_scan(self) -> bool:
        """Whether more items should be scanned."""
        return len(self._due) < DUE_AT_ONCE and len(self._next) < MOST_HELD

    @property
    def has_due(self) -> bool:
        """Whether the turn of an item has come that is not fed yet."""
        return bool(self._due)

    def due(self) -> list[Turn]:
        """Items whose turn has come, the earliest first."""
        return [Turn(*each) for each in islice(self._due.items(), DUE_AT_ONCE)]

    def scan(self, upto: int, conversation_of: ConversationOf, enough: Callable[[], bool]) -> None:
        """Scan further items; stops where ``conversation_of`` raises."""
        last = min(upto, self.scanned + SCANNED_AT_ONCE)
        while self.scanned < last and self.may_scan and not enough():
            self._look_at(self.scanned, conversation_of)
            self.scanned += 1
        if self._states is not None and self.scanned >= len(self._states.fed) * 8:
            self._states = None  # no earlier leader has fed what follows

    def end(self, items: Iterable[int]) -> None:
        """Note that items have ended: the next turns of their conversations are due."""
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
        """Note that these items are fed."""
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
        """Whether the run has an item to feed, or may find one. If not, the end of an item wakes it."""
        turns = self._turns.get(run.ref)
        if turns is None or run.may_feed_next or turns.has_due:
            return True
        return turns.may_scan and turns.scanned < run.items

    def due(
        self,
        run: ActiveRun,
        conversation_of: ConversationOf,
        enough: Callable[[], bool],
        rebuild_fed: Callable[[], None],
    ) -> list[Turn]:
        """Items whose turn has come. Scans further items until a page is awaited, or ``enough``.

        ``rebuild_fed`` rebuilds the list of fed items if Redis has lost some, before it is read again.
        """
        turns = self._updated_turns(run, rebuild_fed)
        with suppress(PageAwaited):
            turns.scan(run.items, conversation_of, enough)
        run.scanned = turns.scanned
        return turns.due()

    def feed(self, ref: RunRef, turns: Collection[Turn]) -> None:
        """Note that these items of a run are fed."""
        self._turns[ref].feed(turns)

    def forget(self, ref: RunRef) -> None:
        """Drop the state of a run that has ended, or that must be read from Redis again."""
        self._turns.pop(ref, None)

    def _updated_turns(self, run: ActiveRun, rebuild_fed: Callable[[], None]) -> Turns:
        """The run's turns, updated with items that have ended; read again if Redis has lost some."""
        turns = self._turns.get(run.ref)
        if turns is not None:
            found = self._reader.ended(run.ref, turns.seen, turns.unlisted)
            whole = found.ended >= turns.seen and found.unlisted == turns.unlisted
            if whole and found.fed == run.cursor:
                turns.end(found.items)
                run.may_feed_next = turns.seen < found.ended
                return turns
            run.cursor = found.fed
        rebuild_fed()
        turns = self._turns[run.ref] = Turns(self._reader.states(run.ref, run.plan.spec.steps))
        run.may_feed_next = False
        return turns


class TurnPlacement(Placement):
    """Also places runs whose conversations go side by side."""

    def place_turns(
        self, run: ActiveRun, turns: Sequence[Turn], enough: Callable[[], bool]
    ) -> tuple[FeedBatch, list[Turn]]:
        """Place items whose turn has come until ``enough``; also returns which are placed.

        Items that a child process still works on delay no others.
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
        """An item with its conversation's memory; ``None`` while it waits for a child or a connection."""
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
        """The name of an item's conversation; ``None`` if its row cannot be read.

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
        """The fields of the run's memory, of all items, that are set."""
        names = [name for each in fields.values() for name in each]
        return TurnReader(self._runs.redis, self._runs.keys).memory(run.ref, names)

    def _read_fields(self, run: ActiveRun, turns: Sequence[Turn]) -> dict[int, tuple[str, ...]]:
        """The fields of the run's memory that each item reads. Skips items of pages that a child decodes."""
        fields = dict[int, tuple[str, ...]]()
        for turn in turns:
            try:
                fields[turn.item] = read_fields(self._item(run, turn.item)) or ()
            except PageAwaited:
                continue
            except (TemplateError, UnreadableRow, CutOff, WorkRaised, ValueError, RecursionError):
                fields[turn.item] = ()
        return fields
