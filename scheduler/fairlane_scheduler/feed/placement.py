"""Decides for each item: its task is queued on a lane, or recorded at once because it needs no call."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from redis.exceptions import RedisError

from fairlane.core.errors import CutOff, NoChild, TemplateError, UnknownModel, UnreadableRow, WorkRaised
from fairlane.core.events import Event
from fairlane.core.lru import Lru
from fairlane.model.ending import ReadyJob, RecordedJob, SessionCompletion
from fairlane.model.job import Success
from fairlane.model.run import RunRef, RunSpec
from fairlane.model.sessions import SessionMembership
from fairlane.model.tokens import Entry
from fairlane.pipeline.completion import Completion, complete_invalid, complete_task
from fairlane.pipeline.conversation import recalled
from fairlane.pipeline.cut_off import invalid_without_row, task_cut_off
from fairlane.pipeline.evaluations import FinishedJob, KnownResult, RenderedEvaluations, render_evaluations
from fairlane.pipeline.linear import calls_linearly, completes_linearly, has_linear_model
from fairlane.pipeline.rendering import Call, Rendering, RunItem
from fairlane.sandbox.pieces import CompleteTask, EvaluationDigests, RenderCall
from fairlane.sandbox.pool import Pool
from fairlane.store.write.runs.runs import Runs
from fairlane.telemetry.logs import get_logger
from fairlane_scheduler.feed.child_work import ChildWork, WorkAwaited
from fairlane_scheduler.feed.known_results import KnownResults
from fairlane_scheduler.feed.row_pages import PageAwaited, RowPages
from fairlane_scheduler.feed.session_index import SessionIndex
from fairlane_scheduler.feed.tokenizers import Tokenizers
from fairlane_scheduler.lanes.registry import LaneRegistry
from fairlane_scheduler.state.backlog import ActiveRun

RUNS_KEPT = 256
MOST_REASON_CHARS = 500
LOOKED_AHEAD = 512  # items that children get behind the one that is awaited

log = get_logger("feeder")


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
    """An item with its task's ``lane`` and ``call``, with the ``output`` of its row, or with the
    ``problem`` for which it can never run.
    """

    item: RunItem
    position: int
    lane: str = ""
    call: Call | None = None
    output: str | None = None
    problem: str | None = None
    model: str | None = None


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
        self._surprising: set[RunRef] = set()
        self._sessions = SessionIndex(runs)
        self._known = KnownResults(runs)
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
        self._surprising.discard(ref)
        self._sessions.forget(ref)
        self._known.forget(ref)

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
                self._lanes.lane_of(model, spec.lane, spec.team)
            call = self._call(run, item, memory)
            return PlacedItem(item, position, self._lanes.lane_of(call.model, spec.lane, spec.team), call)
        except (TemplateError, UnknownModel, UnreadableRow, CutOff, WorkRaised) as error:
            return PlacedItem(item, position, problem=str(error), model=model)
        except (PageAwaited, WorkAwaited, NoChild, RedisError, OSError, MemoryError):
            raise
        except Exception as error:  # noqa: BLE001  a row may make anything at all of a template or a request
            problem = f"{type(error).__name__}: {error}"[:MOST_REASON_CHARS]
            self._log_once(run.ref, number, problem)
            return PlacedItem(item, position, problem=problem, model=model)

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

    def _queue_or_record(self, run: ActiveRun, placed: list[PlacedItem], batch: FeedBatch, end: int) -> int:
        """Queue tasks that need a call; record those whose result is given, cached or taken over, and items
        that can never run. Returns where it stopped: at an item that a child scores, or at ``end``.
        """
        spec, stop = run.plan.spec, None
        known: dict[int, FinishedJob] = {}
        if spec.continues is not None or spec.cache.reads:
            runnable = [each for each in placed if each.problem is None]
            known = self._known.tasks(run.ref, spec, [(each.item, each.call) for each in runnable])
        for each in placed:
            finished = (
                known.get(each.item.number) if each.output is None else FinishedJob(Success(each.output))
            )
            completion = None
            try:
                if each.problem is not None:
                    completion = self._invalid(run, each)
                elif finished is not None:
                    completion = self._completed(run, each, finished)
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

    def _invalid(self, run: ActiveRun, placed: PlacedItem) -> Completion:
        """The completion of an item that can never run."""
        item, problem = placed.item, placed.problem or ""
        membership = self._sessions.of(run.ref, run.plan.spec, item.cell.row)
        invalid = complete_invalid if self._work is None else invalid_without_row
        return invalid(item, problem, placed.model, membership)

    def _completed(self, run: ActiveRun, placed: PlacedItem, finished: FinishedJob) -> Completion:
        """The completion of a finished task, scored here if that is linear in short texts.

        Raises `WorkAwaited`.
        """
        item, spec = placed.item, run.plan.spec
        output = None if finished.answer is None else finished.answer.output
        membership = self._sessions.of(run.ref, spec, item.cell.row)
        memory = self._runs.memory(run.ref) if spec.order.remembers else None
        if self._work is None or completes_linearly(item, output, memory):
            rendered = RenderedEvaluations()
            known: dict[int, KnownResult] = {}
            if output is not None:
                rendered = render_evaluations(item, output)
                digests = rendered.digests(item.cell.repetition) if spec.cache.reads else {}
                known = self._known.evaluations(run.ref, spec, item, digests)
            return complete_task(
                item, finished, membership, rendered=rendered, known=known, call=placed.call, memory=memory
            )
        try:
            return self._completed_by_child(self._work, run, placed, finished, membership, memory)
        except (CutOff, WorkRaised) as error:
            model = None if placed.call is None else placed.call.model
            return task_cut_off(item, finished, membership, str(error), model)

    def _completed_by_child(
        self,
        work: ChildWork,
        run: ActiveRun,
        placed: PlacedItem,
        finished: FinishedJob,
        membership: SessionMembership | None,
        memory: Mapping[bytes, bytes] | None,
    ) -> Completion:
        item, spec = placed.item, run.plan.spec
        known: dict[int, KnownResult] = {}
        if finished.answer is not None and not work.is_asked(run.ref, item.number, CompleteTask):
            digests: dict[int, str] = {}
            if spec.evals and spec.cache.reads:
                piece = EvaluationDigests(item.number, item.row, finished.answer.output)
                digests = work.result(run, piece)
            known = self._known.evaluations(run.ref, spec, item, digests)
        call = placed.call if memory is not None and finished.answer is not None else None
        completion: Completion = work.result(
            run, CompleteTask(item.number, item.row, finished, membership, known, call, memory)
        )
        return completion


def _turn_of(spec: RunSpec, row: Mapping[str, object]) -> int:
    """The pass over the items that feeds this row: rows with a true serial field go in the first."""
    name = spec.order.serial_field
    return 0 if name is None or row.get(name) else 1


def _given(value: object, name: str) -> str:
    if value is None:
        raise UnreadableRow(f"the row has no output in its field {name!r}")
    return value if isinstance(value, str) else str(value)
