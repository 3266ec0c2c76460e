"""Decides for each item: its task is queued on a lane, or recorded at once because it needs no call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from fairlane.core.errors import TemplateError, UnknownModel, UnreadableRow
from fairlane.core.lru import Lru
from fairlane.model.ending import ReadyJob, RecordedJob, SessionCompletion
from fairlane.model.job import Success
from fairlane.model.run import RunRef, RunSpec
from fairlane.model.tokens import Entry
from fairlane.pipeline.completion import Completion, complete_invalid, complete_task
from fairlane.pipeline.conversation import recalled
from fairlane.pipeline.evaluations import FinishedJob, KnownResult, RenderedEvaluations, render_evaluations
from fairlane.pipeline.rendering import Call, Rendering, RunItem
from fairlane.sandbox.pool import Pool
from fairlane.store.write.runs.runs import Runs
from fairlane_scheduler.feed.known_results import KnownResults
from fairlane_scheduler.feed.row_pages import PageAwaited, RowPages
from fairlane_scheduler.feed.session_index import SessionIndex
from fairlane_scheduler.feed.tokenizers import Tokenizers
from fairlane_scheduler.lanes.registry import LaneRegistry
from fairlane_scheduler.state.backlog import ActiveRun

RUNS_KEPT = 256


@dataclass(slots=True)
class FeedBatch:
    """A batch of placed items, as ``run_feed`` takes it.

    ``entries``: jobs to queue, by lane; ``recorded``: jobs that end without a call; ``items``: how many items
    are fed with it; ``memory``: outputs that later items read; ``sessions``: session completions by item.
    """

    entries: dict[str, list[Entry]] = field(default_factory=dict)
    recorded: list[RecordedJob] = field(default_factory=list)
    items: int = 0
    memory: dict[str, str] = field(default_factory=dict)
    sessions: dict[int, SessionCompletion] = field(default_factory=dict)

    def add(self, item: RunItem, completion: Completion) -> None:
        """Record an item's task; record or queue its evaluations."""
        self.recorded.append(completion.recorded(item))
        for job in completion.follow:
            if isinstance(job, ReadyJob):
                self.entries.setdefault(job.lane, []).append(job.entry)
            else:
                self.recorded.append(job)
        self.memory |= completion.memory
        if completion.session is not None:
            self.sessions[item.number] = completion.session


@dataclass(frozen=True, slots=True)
class PlacedItem:
    """An item with its task's ``lane`` and ``call``, or with the ``output`` that its row has already."""

    item: RunItem
    lane: str = ""
    call: Call | None = None
    output: str | None = None


class Placement:
    """Renders each task once, to know its lane and its size."""

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
        self._sessions = SessionIndex(runs)
        self._known = KnownResults(runs)
        self._renderings = Lru[RunRef, Rendering](RUNS_KEPT)

    def place(self, run: ActiveRun, upto: int, enough: Callable[[], bool]) -> tuple[FeedBatch, int]:
        """Place items from the cursor on until ``upto`` or ``enough``; also returns where it stopped.

        It stops at an item whose page a child process decodes, which may be the first.
        """
        batch = FeedBatch()
        placed: list[PlacedItem] = []
        position = run.cursor
        memory = self._runs.memory(run.ref) if run.plan.spec.order.remembers else {}
        while position < upto and not (position > run.cursor and enough()):
            turn, item = divmod(position, max(1, run.items))
            try:
                one = self._place_one(run, item, turn, memory, batch)
            except PageAwaited:
                break
            position += 1
            if one is not None:
                placed.append(one)
                if run.serial:
                    break
        self._queue_or_record(run, placed, batch)
        return batch, position

    def forget(self, ref: RunRef) -> None:
        """Drop what is kept of a run that has ended."""
        self._renderings.drop(ref)
        self._pages.forget(ref)
        self._sessions.forget(ref)
        self._known.forget(ref)

    def pages_cut_off(self, ref: RunRef) -> int:
        """How many pages of a run could not be decoded within the limits since it was last asked for."""
        return self._pages.cut_off.pop(ref, 0)

    def _place_one(
        self, run: ActiveRun, number: int, turn: int, memory: Mapping[bytes, bytes], batch: FeedBatch
    ) -> PlacedItem | None:
        """An item to feed; ``None`` if it is invalid, or belongs to another turn."""
        spec = run.plan.spec
        model = None
        rendering = self._renderings.get_or_make(run.ref, lambda: Rendering(run.plan))
        item = RunItem.of(rendering, number, {})
        try:
            row = self._pages.row(run.ref, spec, item.cell.row)
            if _turn_of(spec, row) != turn:
                return None
            item = RunItem(rendering, number, item.cell, row)
            if spec.output_field is not None:
                return PlacedItem(item, output=_given(row.get(spec.output_field), spec.output_field))
            model = rendering.model(item.cell, row)
            lane = self._lanes.lane_of(model, spec.lane)
            names = recalled(rendering, item.cell, row, memory) if spec.order.remembers else None
            return PlacedItem(item, lane, rendering.task(item.cell, row, names))
        except (TemplateError, UnknownModel, UnreadableRow) as error:
            membership = self._sessions.of(run.ref, spec, item.cell.row)
            batch.add(item, complete_invalid(item, str(error), model, membership))
            batch.items += 1
            return None

    def _queue_or_record(self, run: ActiveRun, placed: list[PlacedItem], batch: FeedBatch) -> None:
        """Queue tasks that need a call; record those whose result is given, cached or taken over."""
        spec = run.plan.spec
        known: dict[int, FinishedJob] = {}
        if spec.continues is not None or spec.cache.reads:
            known = self._known.tasks(run.ref, spec, [(each.item, each.call) for each in placed])
        for each in placed:
            batch.items += 1
            finished = (
                known.get(each.item.number) if each.output is None else FinishedJob(Success(each.output))
            )
            if finished is not None:
                self._record(run, each, finished, batch)
            elif each.call is not None:
                tokens = self._tokenizers.tokens(each.call) if self._tokenizers else each.call.tokens
                entry = Entry(each.item.job(0), tokens, each.item.cell.model)
                batch.entries.setdefault(each.lane, []).append(entry)
        batch.recorded.sort(key=lambda recorded: recorded.job)

    def _record(self, run: ActiveRun, placed: PlacedItem, finished: FinishedJob, batch: FeedBatch) -> None:
        """Record a finished task; its evaluations are queued behind fresh items."""
        item, spec = placed.item, run.plan.spec
        rendered = RenderedEvaluations()
        known: dict[int, KnownResult] = {}
        if finished.answer is not None:
            rendered = render_evaluations(item, finished.answer.output)
            known = self._known.evaluations(run.ref, spec, item, rendered)
        completion = complete_task(
            item,
            finished,
            self._sessions.of(run.ref, spec, item.cell.row),
            rendered=rendered,
            known=known,
            call=placed.call,
            memory=self._runs.memory(run.ref) if spec.order.remembers else None,
        )
        batch.add(item, completion)


def _turn_of(spec: RunSpec, row: Mapping[str, object]) -> int:
    """The pass over the items that feeds this row: rows with a true serial field go in the first."""
    name = spec.order.serial_field
    return 0 if name is None or row.get(name) else 1


def _given(value: object, name: str) -> str:
    if value is None:
        raise UnreadableRow(f"the row has no output in its field {name!r}")
    return value if isinstance(value, str) else str(value)
