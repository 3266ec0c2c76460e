"""Decides for each item: its task is queued on a lane, or recorded at once because it needs no call."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from fairlane.core.errors import CutOff, TemplateError, UnknownModel, UnreadableRow, WorkRaised
from fairlane.core.lru import Lru
from fairlane.model.job import Success
from fairlane.model.run import RunRef, RunSpec
from fairlane.model.tokens import Entry
from fairlane.pipeline.conversation import recalled
from fairlane.pipeline.evaluations import FinishedJob
from fairlane.pipeline.linear import calls_linearly, has_linear_model
from fairlane.pipeline.rendering import Call, Rendering, RunItem
from fairlane.sandbox.pieces import RenderCall
from fairlane.sandbox.pool import Pool
from fairlane.store.write.runs.runs import Runs
from fairlane_scheduler.feed.child_work import ChildWork, WorkAwaited
from fairlane_scheduler.feed.feed_batch import FeedBatch, PlacedItem
from fairlane_scheduler.feed.row_pages import PageAwaited, RowPages
from fairlane_scheduler.feed.tokenizers import Tokenizers
from fairlane_scheduler.feed.uncalled_items import UncalledItems
from fairlane_scheduler.lanes.registry import LaneRegistry
from fairlane_scheduler.state.backlog import ActiveRun

RUNS_KEPT = 256
LOOKED_AHEAD = 512  # items that children get behind the one that is awaited


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
        self._uncalled = UncalledItems(runs, self._work)
        self._renderings = Lru[RunRef, Rendering](RUNS_KEPT)

    def place(self, run: ActiveRun, upto: int, enough: Callable[[], bool]) -> tuple[FeedBatch, int]:
        """Place items from the cursor on until ``upto`` or ``enough``; also returns where it stopped.

        It stops at an item that a child process still works on, which may be the first. Children get the
        items behind it, too, so that a later call finds them done.
        """
        placed: list[PlacedItem] = []
        position, stop, stopped = run.cursor, 0, False
        memory = self._runs.memory(run.ref) if run.plan.spec.order.remembers else None
        while position < upto and not (position > run.cursor and enough()):
            try:
                one = self._place_one(run, position, memory)
            except PageAwaited:
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
        batch, end = FeedBatch(), stop if stopped else position
        return batch, self._queue_or_record(run, placed, batch, end)

    def forget(self, ref: RunRef) -> None:
        """Drop what is kept of a run that has ended."""
        self._renderings.drop(ref)
        self._pages.forget(ref)
        if self._work is not None:
            self._work.forget(ref)
        self._asked_until.pop(ref, None)
        self._uncalled.forget(ref)

    def cut_off(self, ref: RunRef) -> int:
        """How many pages and other pieces of a run went past a limit since this was last asked for."""
        pieces = 0 if self._work is None else self._work.cut_off.pop(ref, 0)
        return self._pages.cut_off.pop(ref, 0) + pieces

    def _place_one(
        self, run: ActiveRun, position: int, memory: Mapping[bytes, bytes] | None
    ) -> PlacedItem | None:
        """An item to feed; ``None`` if it belongs to another turn. Raises `PageAwaited` and `WorkAwaited`."""
        spec = run.plan.spec
        turn, number = divmod(position, max(1, run.items))
        model = None
        rendering = self._renderings.get_or_make(run.ref, lambda: Rendering(run.plan, checked=True))
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
                self._lanes.lane_of(model, spec.lane)
            call = self._call(run, item, memory)
            return PlacedItem(item, position, self._lanes.lane_of(call.model, spec.lane), call)
        except (TemplateError, UnknownModel, UnreadableRow, CutOff, WorkRaised) as error:
            return PlacedItem(item, position, problem=str(error), model=model)

    def _call(self, run: ActiveRun, item: RunItem, memory: Mapping[bytes, bytes] | None) -> Call:
        """The call of an item's task, rendered here if that is linear in short texts."""
        if self._work is None or calls_linearly(item, memory):
            names = None if memory is None else recalled(item.rendering, item.cell, item.row, memory)
            return item.rendering.task(item.cell, item.row, names)
        call: Call = self._work.result(run, RenderCall(item.number, item.row, memory=memory))
        return call

    def _queue_or_record(self, run: ActiveRun, placed: list[PlacedItem], batch: FeedBatch, end: int) -> int:
        """Queue tasks that need a call; record those whose result is given, cached or taken over, and items
        that can never run. Returns where it stopped: at an item that a child scores, or at ``end``.
        """
        spec, stop = run.plan.spec, None
        known: dict[int, FinishedJob] = {}
        if spec.continues is not None or spec.cache.reads:
            known = self._uncalled.known(run, placed)
        for each in placed:
            finished = (
                known.get(each.item.number) if each.output is None else FinishedJob(Success(each.output))
            )
            completion = None
            try:
                if each.problem is not None:
                    completion = self._uncalled.invalid(run, each)
                elif finished is not None:
                    completion = self._uncalled.completed(run, each, finished)
            except WorkAwaited as awaited:
                stop = each.position if stop is None else stop
                if not awaited.new:
                    break
            if stop is not None:
                continue
            batch.items += 1
            if completion is not None:
                batch.add(each.item, completion)
            elif each.call is not None:
                tokens = self._tokenizers.tokens(each.call) if self._tokenizers else each.call.tokens
                entry = Entry(each.item.job(0), tokens, each.item.cell.model)
                batch.entries.setdefault(each.lane, []).append(entry)
        batch.recorded.sort(key=lambda recorded: recorded.job)
        fed = [each.item.number for each in placed if stop is None or each.position < stop]
        if self._work is not None:
            self._work.drop(run.ref, fed)
        return end if stop is None else stop


def _turn_of(spec: RunSpec, row: Mapping[str, object]) -> int:
    """The pass over the items that feeds this row: rows with a true serial field go in the first."""
    name = spec.order.serial_field
    return 0 if name is None or row.get(name) else 1


def _given(value: object, name: str) -> str:
    if value is None:
        raise UnreadableRow(f"the row has no output in its field {name!r}")
    return value if isinstance(value, str) else str(value)
