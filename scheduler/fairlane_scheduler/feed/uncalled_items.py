"""Completes items that need no call: their result is given, cached or taken over, or they can never run."""

from collections.abc import Mapping, Sequence

from fairlane.core.errors import CutOff, WorkRaised
from fairlane.model.ending import Completion
from fairlane.model.run import RunRef
from fairlane.model.sessions import SessionMembership
from fairlane.pipeline.completion import complete_invalid, complete_task, task_cut_off
from fairlane.pipeline.evaluations import FinishedJob, KnownResult, RenderedEvaluations, render_evaluations
from fairlane.pipeline.linear import completes_linearly
from fairlane.sandbox.pieces import CompleteTask, EvaluationDigests
from fairlane.store.write.runs.runs import Runs
from fairlane_scheduler.feed.child_work import ChildWork
from fairlane_scheduler.feed.feed_batch import PlacedItem
from fairlane_scheduler.feed.known_results import KnownResults, KnownTasks
from fairlane_scheduler.feed.session_index import SessionIndex
from fairlane_scheduler.state.backlog import ActiveRun


class UncalledItems:
    """Finds existing results, and scores them; ``work`` scores those that may take long."""

    def __init__(self, runs: Runs, work: ChildWork | None, servers: Mapping[str, str]) -> None:
        self._runs, self._work, self._servers = runs, work, servers
        self._sessions = SessionIndex(runs)
        self._known = KnownResults(runs, servers)

    def known(
        self, run: ActiveRun, placed: Sequence[PlacedItem], memory: Mapping[bytes, bytes]
    ) -> KnownTasks:
        """Tasks that the continued run or the team's cache has; ``memory`` is the run's."""
        return self._known.tasks(run, placed, memory)

    def forget(self, ref: RunRef) -> None:
        """Drop the state of a run that has ended."""
        self._sessions.forget(ref)
        self._known.forget(ref)

    def invalid(self, run: ActiveRun, placed: PlacedItem) -> Completion:
        """The completion of an item that can never run."""
        item, problem = placed.item, placed.problem or ""
        membership = self._sessions.of(run.ref, run.plan.spec, item.cell.row)
        return complete_invalid(item, problem, placed.model, membership)

    def completed(self, run: ActiveRun, placed: PlacedItem, finished: FinishedJob) -> Completion:
        """The completion of a finished task, scored here if that is linear in short texts.

        Raises `WorkAwaited`.
        """
        item, spec = placed.item, run.plan.spec
        output = None if finished.answer is None else finished.answer.output
        membership = self._sessions.of(run.ref, spec, item.cell.row)
        memory = placed.memory
        if self._work is None or completes_linearly(item, output, memory):
            rendered = RenderedEvaluations()
            known: dict[int, KnownResult] = {}
            if output is not None:
                rendered = render_evaluations(item, output)
                digests = rendered.digests(item, self._servers) if spec.cache.reads else {}
                known = self._known.evaluations(run, item, output, digests)
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
                piece = EvaluationDigests(item.number, item.row, finished.answer.output, self._servers)
                digests = work.result(run, piece)
            known = self._known.evaluations(run, item, finished.answer.output, digests)
        call = placed.call if memory is not None and finished.answer is not None else None
        completion: Completion = work.result(
            run, CompleteTask(item.number, item.row, finished, membership, known, call, memory)
        )
        return completion
