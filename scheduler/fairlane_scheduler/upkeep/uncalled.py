"""Fails queued jobs that are never called, and the jobs that depend on them."""

from __future__ import annotations

from fairlane.core.events import Event
from fairlane.model.run import RunRef
from fairlane.model.tokens import Entry
from fairlane.store.write.runs.uncalled_jobs import Cause, UncalledJobs
from fairlane.telemetry.logs import get_logger
from fairlane_scheduler.feed.run_loader import RunLoader
from fairlane_scheduler.state.backlog import ActiveRun, Backlog
from fairlane_scheduler.state.server_time import Moment

AT_ONCE = 200  # jobs that one pass fails: they take some tens of milliseconds of a tick

log = get_logger("scheduler")


class Uncalled:
    """Fails jobs at the head of a run's queue on a lane."""

    def __init__(self, jobs: UncalledJobs, backlog: Backlog, loader: RunLoader) -> None:
        self._jobs, self._backlog, self._loader = jobs, backlog, loader

    def fail(
        self,
        run: ActiveRun,
        lane: str,
        cause: Cause,
        error: str,
        most: int,
        moment: Moment,
        *,
        kind: int | None = None,
    ) -> int:
        """Fail up to ``most`` jobs (of one ``kind``, if given) while ``cause`` lasts. Returns how many."""
        failed = 0
        for queue, text, attempts in self._jobs.first_queued(run.ref, lane, most):
            entry = Entry.parse(text)
            if kind is not None and entry.kind != kind:
                break
            completion = self._loader.completion_of(
                run.ref, run.plan, entry.job, entry.tokens, error, attempts
            )
            reply = self._jobs.fail(
                run.ref, lane, queue, text, cause, completion, moment.epoch, moment.argument
            )
            failed += reply > 0
            if reply == 2:
                self._loader.forget(run.ref)
            if reply != 1:
                break
        self._note(run.ref, lane, failed, error)
        return failed

    def _note(self, ref: RunRef, lane: str, failed: int, error: str) -> None:
        if not failed:
            return
        left = self._backlog.count(lane, ref) - failed
        if self._backlog.get(ref) is not None:
            self._backlog.set_queued(lane, ref, max(0, left))
        log.warning(
            Event.JOBS_FAILED_UNCALLED, run=ref.run, team=ref.team, lane=lane, jobs=failed, reason=error
        )
