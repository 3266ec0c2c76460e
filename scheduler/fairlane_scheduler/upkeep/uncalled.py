"""Fails jobs that will not be called again, and the jobs that depend on them."""

from collections.abc import Sequence
from typing import NamedTuple

from fairlane.core.events import Event
from fairlane.model.ending import Completion
from fairlane.model.run import RunRef
from fairlane.model.tokens import Entry
from fairlane.store.rejections import rejections_in
from fairlane.store.run_queries import RunStates
from fairlane.store.write.runs.runs import Delayed
from fairlane.store.write.runs.uncalled_jobs import Cause, Spent, UncalledJobs
from fairlane.telemetry.logs import get_logger
from fairlane_scheduler.feed.run_loader import RunLoader
from fairlane_scheduler.state.backlog import REFUSED, ActiveRun, Backlog
from fairlane_scheduler.state.server_time import Moment

AT_ONCE = 200  # most jobs that one pass fails, which takes some tens of milliseconds

log = get_logger("scheduler")


class Failure(NamedTuple):
    """Why jobs of a run on a lane are not called again; an outage also says since when the lane is down."""

    run: ActiveRun
    lane: str
    cause: Cause
    error: str
    down_ms: int | None = None


class Uncalled:
    """Fails jobs at the head of a run's queue on a lane, and jobs that wait there for their retry."""

    def __init__(self, jobs: UncalledJobs, backlog: Backlog, loader: RunLoader) -> None:
        self.jobs = jobs
        self._backlog, self._loader = backlog, loader

    def fail(self, failure: Failure, most: int, moment: Moment, *, kind: int | None = None) -> int:
        """Fail up to ``most`` queued jobs (of one ``kind``) while the cause lasts. Returns how many."""
        (run, lane, cause, error, down_ms), failed = failure, 0
        for queue, text, spent in self.jobs.first_queued(run.ref, lane, most):
            entry = Entry.parse(text)
            if kind is not None and entry.kind != kind:
                break
            completion = self._completion(run, entry, error, spent)
            epoch, now_ms = moment.epoch, moment.argument
            reply = self.jobs.fail(
                run.ref, lane, queue, text, cause, completion, epoch, now_ms, down_ms=down_ms
            )
            failed += reply > 0
            if reply == 2:
                self._loader.forget(run.ref)
            if reply != 1:
                break
        if failed and self._backlog.get(run.ref) is not None:
            left = self._backlog.count(lane, run.ref) - failed
            self._backlog.set_queued(lane, run.ref, max(0, left))
        _note(run.ref, lane, failed, error)
        return failed

    def fail_delayed(
        self, failure: Failure, jobs: Sequence[tuple[Delayed, Spent]], moment: Moment
    ) -> list[Delayed]:
        """Fail jobs that wait for their retry, while the cause lasts. Returns those."""
        (run, lane, cause, error, down_ms), failed = failure, list[Delayed]()
        for job, spent in jobs:
            completion = self._completion(run, Entry.parse(job.entry), error, spent)
            reply = self.jobs.fail_delayed(
                job, cause, completion, moment.epoch, moment.argument, down_ms=down_ms
            )
            if reply:
                failed.append(job)
            if reply == 2:
                self._loader.forget(run.ref)
                break
        _note(run.ref, lane, len(failed), error)
        return failed

    def _completion(self, run: ActiveRun, entry: Entry, error: str, spent: Spent) -> Completion:
        return self._loader.completion_of(
            run.ref, run.plan, entry.job, entry.tokens, error, spent.attempts, spent.unkept
        )


class Refusals:
    """Fails a run's jobs for a model whose provider rejected the run's first calls in the same way.

    It checks runs that a lane throttles for that reason. With ``on_refusal="hold"`` it only logs them.
    """

    def __init__(self, states: RunStates, backlog: Backlog, uncalled: Uncalled) -> None:
        self._states, self._backlog, self._uncalled = states, backlog, uncalled

    def tick(self, moment: Moment) -> bool:
        """Fail some of their jobs; true if more may be failed at once."""
        left = AT_ONCE
        for lane, ref in self._backlog.throttled_by(REFUSED):
            if left <= 0:
                break
            run = self._backlog.get(ref)
            if run is None or run.paused:
                continue
            if run.plan.spec.bounds.on_refusal == "hold":
                left -= self._note_held(run, lane)
            else:
                left -= self._fail(run, lane, left, moment)
        return left < AT_ONCE

    def _note_held(self, run: ActiveRun, lane: str) -> bool:
        """Log once, until the run is resumed, that its jobs are held on a lane.

        False if it was logged, or if the answer to a call of the run may still release them.
        """
        if lane in run.held_on:
            return False
        (state,) = self._states.read([run.ref])
        words = next((each.words for each in rejections_in(state.texts) if each.lane == lane), None)
        if words is None:
            return False
        run.held_on.add(lane)
        log.warning(Event.RUN_HELD, run=run.ref.run, team=run.ref.team, lane=lane, reason=words)
        return True

    def _fail(self, run: ActiveRun, lane: str, most: int, moment: Moment) -> int:
        (state,) = self._states.read([run.ref])
        failed = 0
        for each in rejections_in(state.texts):
            if each.lane == lane and failed < most:
                error = f"no more calls: {lane} rejected the run's first ones alike: {each.words}"
                failure = Failure(run, lane, "refusals", error)
                failed += self._uncalled.fail(failure, most - failed, moment, kind=each.kind)
        return failed


def _note(ref: RunRef, lane: str, failed: int, error: str) -> None:
    if failed:
        log.warning(
            Event.JOBS_FAILED_UNCALLED, run=ref.run, team=ref.team, lane=lane, jobs=failed, reason=error
        )
