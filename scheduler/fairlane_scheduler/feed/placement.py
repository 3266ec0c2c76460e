"""Decides for each item, from its row: its task is queued on a lane, or recorded since it needs no call."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from redis.exceptions import RedisError

from fairlane.core.errors import (
    CutOff,
    NoChild,
    TemplateError,
    UnknownModel,
    UnreadableRow,
    WorkRaised,
)
from fairlane.core.events import Event
from fairlane.core.lru import Lru
from fairlane.evaluators.scorers import as_text
from fairlane.model.outcome import Success
from fairlane.model.run import RunRef, RunSpec, cell_of
from fairlane.model.tokens import Entry
from fairlane.pipeline.conversation import changed_field, read_fields, recalled
from fairlane.pipeline.evaluations import FinishedJob
from fairlane.pipeline.linear import calls_linearly, has_linear_model
from fairlane.pipeline.rendering import Call, Rendering, RunItem
from fairlane.sandbox.pieces import RenderCall
from fairlane.sandbox.pool import Pool
from fairlane.store.read.turn_reading import TurnReader
from fairlane.store.write.runs.runs import Runs, Turn
from fairlane.telemetry.logs import get_logger
from fairlane_scheduler.feed.child_work import ChildWork, WorkAwaited
from fairlane_scheduler.feed.feed_batch import FeedBatch, PlacedItem
from fairlane_scheduler.feed.known_results import KnownTasks
from fairlane_scheduler.feed.row_pages import PageAwaited, RowPages
from fairlane_scheduler.feed.tokenizers import Tokenizers
from fairlane_scheduler.feed.uncalled_items import UncalledItems
from fairlane_scheduler.lanes.registry import ConnectionAwaited, LaneRegistry
from fairlane_scheduler.state.backlog import ActiveRun

RUNS_KEPT = 256
MOST_REASON_CHARS = 500
LOOKED_AHEAD = 512  # items that children get behind the one that is awaited
READ_AT_ONCE = 16  # items whose conversations are read together

log = get_logger("rows")


class Placement:
    """Renders each task once, to know its lane and its size.

    What a team may make as long as it likes is done by ``pool``; without one everything is done at once.
    """

    def __init__(
        self,
        runs: Runs,
        lanes: LaneRegistry,
        most_row_bytes: int,
        tokenizers: Tokenizers | None = None,
        pool: Pool | None = None,
    ) -> None:
        self._runs = runs
        self._lanes = lanes
        self._tokenizers = tokenizers
        self._pages = RowPages(runs, most_row_bytes, pool)
        self._work = None if pool is None else ChildWork(pool)
        self._asked_until: dict[RunRef, int] = {}  # how far children have the calls of items
        self._uncalled = UncalledItems(runs, self._work, lanes.servers)
        self._surprising: set[RunRef] = set()
        self.unconnected: dict[RunRef, str] = {}
        """By run, the connection that its next item waits for."""
        self._turns = TurnReader(runs.redis, runs.keys)
        self._renderings = Lru[RunRef, Rendering](RUNS_KEPT)

    def place(self, run: ActiveRun, upto: int, enough: Callable[[], bool]) -> tuple[FeedBatch, int]:
        """Place items from the cursor on until ``upto`` or ``enough``; also returns where it stopped.

        It stops at an item that a child process still works on, which may be the first. Children get the
        items behind it, too, so that a later call finds them done.
        """
        placed: list[PlacedItem] = []
        position, stop, stopped = run.cursor, 0, False
        self.unconnected.pop(run.ref, None)
        memory = self._runs.memory(run.ref) if run.plan.spec.order.remembers else None
        while position < upto and not (position > run.cursor and enough()):
            try:
                one = self._place_one(run, position, memory)
            except PageAwaited:
                break
            except ConnectionAwaited as awaited:
                self.unconnected[run.ref] = awaited.connection
                break
            except WorkAwaited:
                if run.serial:
                    break
                if not stopped:
                    stopped, stop = True, position
                    last = run.items if position < run.items else run.items * run.passes
                    upto = min(position + LOOKED_AHEAD, last)
                    position = max(position, self._asked_until.get(run.ref, 0) - 1)
                one = None
            position += 1
            if one is not None and not stopped:
                placed.append(one)
                if run.serial:
                    break
        if stopped:
            self._asked_until[run.ref] = max(position, self._asked_until.get(run.ref, 0))
        batch = FeedBatch()
        fed = len(self._queue_or_record(run, placed, memory or {}, batch, in_order=True))
        if fed < len(placed):
            return batch, placed[fed].position
        return batch, stop if stopped else position

    def place_turns(
        self, run: ActiveRun, turns: Sequence[Turn], enough: Callable[[], bool]
    ) -> tuple[FeedBatch, list[Turn]]:
        """Place items whose turn it is until ``enough``; also returns which are placed.

        Those that a child process still works on hold no others.
        """
        placed, memory = list[PlacedItem](), dict[bytes, bytes]()
        self.unconnected.pop(run.ref, None)
        for at, turn in enumerate(turns):
            if placed and enough():
                break
            if at % READ_AT_ONCE == 0:
                fields = self._read_fields(run, turns[at : at + READ_AT_ONCE])
                read = self._turns.memory(run.ref, [name for names in fields.values() for name in names])
                memory |= read
            if turn.item not in fields:
                continue
            names = [name.encode() for name in fields[turn.item]]
            own = {name: read[name] for name in names if name in read}
            try:
                one = self._place_one(run, turn.item, own)
            except ConnectionAwaited as awaited:
                self.unconnected[run.ref] = awaited.connection
            except (PageAwaited, WorkAwaited):
                pass
            else:
                placed += [one] if one is not None else []
        batch = FeedBatch()
        fed = {each.item.number for each in self._queue_or_record(run, placed, memory, batch)}
        return batch, [turn for turn in turns if turn.item in fed]

    def conversation_of(self, run: ActiveRun, item: int) -> str | None:
        """The items that an item waits for: its conversation. ``None`` for one whose row cannot be read.

        Raises `PageAwaited` and `NoChild`.
        """
        rendering, cell = self._rendering(run), cell_of(run.plan.spec, item)
        try:
            return changed_field(rendering, cell, self._pages.row(run.ref, run.plan.spec, cell.row))
        except (TemplateError, UnreadableRow, CutOff, WorkRaised, ValueError, RecursionError):
            return None

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

    def _rendering(self, run: ActiveRun) -> Rendering:
        return self._renderings.get_or_make(run.ref, lambda: Rendering(run.plan, checked=True))

    def forget(self, ref: RunRef) -> None:
        """Drop what is kept of a run that has ended."""
        self._renderings.drop(ref)
        self._pages.forget(ref)
        if self._work is not None:
            self._work.forget(ref)
        self._asked_until.pop(ref, None)
        self._surprising.discard(ref)
        self.unconnected.pop(ref, None)
        self._uncalled.forget(ref)

    def cut_off(self, ref: RunRef) -> int:
        """How many pages and other pieces of a run went past a limit since this was last asked for."""
        pieces = 0 if self._work is None else self._work.cut_off.pop(ref, 0)
        return self._pages.cut_off.pop(ref, 0) + pieces

    def _place_one(
        self, run: ActiveRun, position: int, memory: Mapping[bytes, bytes] | None
    ) -> PlacedItem | None:
        """An item to feed; ``None`` if it belongs to another turn.

        Raises `PageAwaited`, `WorkAwaited` and `ConnectionAwaited`.
        """
        spec = run.plan.spec
        turn, number = divmod(position, max(1, run.items))
        model = None
        rendering = self._rendering(run)
        item = RunItem.of(rendering, number, {})
        try:
            row = self._pages.row(run.ref, spec, item.cell.row)
            if _turn_of(spec, row) != turn:
                return None
            item = RunItem(rendering, number, item.cell, row)
            if spec.output_field is not None:
                return PlacedItem(
                    item, position, output=_given(row.get(spec.output_field), spec.output_field)
                )
            if self._work is None or has_linear_model(item):
                model = rendering.model(item.cell, row)
                self._lane_of(run, model)
            call = self._call(run, item, memory)
            return PlacedItem(item, position, self._lane_of(run, call.model), call, memory=memory)
        except (TemplateError, UnknownModel, UnreadableRow, CutOff, WorkRaised) as error:
            return PlacedItem(item, position, problem=str(error), model=model)
        except (PageAwaited, WorkAwaited, ConnectionAwaited, NoChild, RedisError, OSError, MemoryError):
            raise
        except Exception as error:  # noqa: BLE001  a row may make anything at all of a template or a request
            problem = f"{type(error).__name__}: {error}"[:MOST_REASON_CHARS]
            self._log_once(run.ref, number, problem)
            return PlacedItem(item, position, problem=problem, model=model)

    def _lane_of(self, run: ActiveRun, model: str) -> str:
        """The lane of a task. A model that no row decides was known when the run was admitted."""
        spec = run.plan.spec
        return self._lanes.lane_of_item(model, spec.lane, spec.team, checked=not run.open_ended)

    def _log_once(self, ref: RunRef, item: int, problem: str) -> None:
        """Log the first item of a run that raised what nobody expected."""
        if ref not in self._surprising:
            self._surprising.add(ref)
            log.warning(
                Event.ITEM_RAISED, run=ref.run, team=ref.team, item=item, error=problem, exc_info=True
            )

    def _call(self, run: ActiveRun, item: RunItem, memory: Mapping[bytes, bytes] | None) -> Call:
        """The call of an item's task, rendered here if that is linear in short texts."""
        if self._work is None or calls_linearly(item, memory):
            names = None if memory is None else recalled(item.rendering, item.cell, item.row, memory)
            return item.rendering.task(item.cell, item.row, names)
        call: Call = self._work.result(run, RenderCall(item.number, item.row, memory=memory))
        return call

    def _queue_or_record(
        self,
        run: ActiveRun,
        placed: Sequence[PlacedItem],
        memory: Mapping[bytes, bytes],
        batch: FeedBatch,
        *,
        in_order: bool = False,
    ) -> list[PlacedItem]:
        """Queue tasks that need a call; record those whose result is given, cached or taken over, and items
        that can never run. Returns them: all but those that a child scores, and ``in_order`` those behind.
        """
        known, fed, stopped = KnownTasks(), list[PlacedItem](), False
        if run.plan.spec.continues is not None or run.plan.spec.cache.reads:
            known = self._uncalled.known(run, placed, memory)
        for each in placed:
            finished = known.finished.get(each.item.number)
            if each.output is not None:
                finished = FinishedJob(Success(each.output))
            completion = None
            try:
                if each.problem is not None:
                    completion = self._uncalled.invalid(run, each)
                elif finished is not None:
                    completion = self._uncalled.completed(run, each, finished)
            except WorkAwaited as awaited:
                stopped = in_order
                if in_order and not awaited.new:
                    break
                continue
            if stopped:
                continue
            fed.append(each)
            batch.items += 1
            batch.memory |= known.memory.get(each.item.number, {})
            if completion is not None:
                batch.add(each.item, completion)
            elif each.call is not None:
                tokens = self._tokenizers.tokens(each.call) if self._tokenizers else each.call.tokens
                entry = Entry(each.item.job(0), tokens, each.item.cell.model)
                batch.entries.setdefault(each.lane, []).append(entry)
        batch.recorded.sort(key=lambda recorded: recorded.job)
        if self._work is not None:
            self._work.drop(run.ref, [each.item.number for each in fed])
        return fed


def _turn_of(spec: RunSpec, row: Mapping[str, object]) -> int:
    """The pass over the items that feeds this row: rows with a true serial field go in the first."""
    name = spec.order.serial_field
    return 0 if name is None or row.get(name) else 1


def _given(value: object, name: str) -> str:
    if value is None:
        raise UnreadableRow(f"the row has no output in its field {name!r}")
    return as_text(value)
