"""Repairs active runs of which Redis has lost a part: fails lost jobs, and recounts lanes and runs."""

from collections.abc import Callable, Iterable, Sequence
from itertools import islice

from fairlane.core.events import Event
from fairlane.model.sessions import session_of_job
from fairlane.model.tokens import Estimate
from fairlane.store.write.lanes.lanes import Lanes
from fairlane.store.write.runs.lost_jobs import LostJobs
from fairlane.store.write.runs.runs import Runs
from fairlane.telemetry.logs import get_logger
from fairlane_scheduler.feed.run_loader import RunLoader
from fairlane_scheduler.state.backlog import ActiveRun, Backlog
from fairlane_scheduler.state.server_time import Moment

EVERY_MS = 10_000
RUNS_AT_ONCE = 100  # most runs that one pass checks; each costs a look at all leases and delayed jobs
JOBS_AT_ONCE = 200  # most jobs that one pass fails, as in `uncalled`
LOST = (
    "Redis has lost this job's place in its queue, or the lease of its call. It evicts keys unless "
    "maxmemory-policy is noeviction. Continue the run to call it"
)

log = get_logger("scheduler")


class LostState:
    """Checks runs without queued jobs every ten seconds. One without calls and retries has lost jobs."""

    def __init__(
        self, jobs: LostJobs, runs: Runs, lanes: Lanes, backlog: Backlog, loader: RunLoader, lease_ms: int
    ) -> None:
        self._jobs, self._runs, self._lanes = jobs, runs, lanes
        self._backlog, self._loader, self._lease_ms = backlog, loader, lease_ms
        self._due_ms = 0
        self._first = 0  # index of the run at which the next pass begins, if there are more than it checks

    def tick(
        self, moment: Moment, names: Callable[[], Sequence[str]], stay: Callable[[], object] = lambda: None
    ) -> None:
        """Check if it is time. ``names`` returns all lanes; ``stay`` renews the lease between runs."""
        if moment.monotonic_ms < self._due_ms:
            return
        self._due_ms = moment.monotonic_ms + EVERY_MS
        if off := self._lanes.recount(names(), moment.epoch, self._lease_ms, moment.argument):
            log.warning(Event.LANES_RECOUNTED, lanes=off)
        stay()
        refs = [run.ref for run in self._backlog.runs()]
        if refs and (off := self._jobs.recount(refs, moment.epoch, moment.argument)):
            log.warning(Event.RUNS_RECOUNTED, runs=off)
        left = JOBS_AT_ONCE
        for run in self._idle():
            stay()
            left -= self._fail(run, left, moment)
            if left <= 0:
                self._due_ms = 0
                return

    def _idle(self) -> list[ActiveRun]:
        """Some runs that have no queued jobs; the next call returns others."""
        queued = {ref for _, lane in self._backlog.lanes() if lane.depth for ref, _ in lane.bounds()}
        idle = [run for run in self._backlog.runs() if run.ref not in queued and not run.paused]
        first = self._first if self._first < len(idle) else 0
        self._first = first + RUNS_AT_ONCE
        return idle[first : first + RUNS_AT_ONCE]

    def _fail(self, run: ActiveRun, most: int, moment: Moment) -> int:
        lanes, term = sorted(run.known_lanes | self._runs.lanes(run.ref)), (moment.epoch, moment.argument)
        if not self._jobs.is_stranded(run.ref, lanes, *term):
            return 0
        rebuilt = run.by_turns and self._runs.refind(run.ref, lanes, *term) is not None
        if rebuilt or self._jobs.mend(run.ref, *term):
            log.warning(Event.RUNS_RECOUNTED, runs=1)
            self._loader.forget(run.ref)  # it is loaded again
            return 0
        jobs = list(islice(self._jobs.unrecorded(run.ref, run.plan.spec, self._fed(run)), most))
        failed = 0
        for job, attempts in zip(jobs, self._jobs.attempts(run.ref, jobs), strict=True):
            completion = self._loader.completion_of(run.ref, run.plan, job, Estimate(0, 0), LOST, attempts)
            lane = self._lane_of(run, job)
            reply = self._jobs.fail(run.ref, job, lane, completion, moment.epoch, moment.argument)
            failed += reply > 0
            if reply == 2:
                self._loader.forget(run.ref)
            if reply != 1 or completion.session is not None:
                break  # evaluations of its session may be queued now
        if failed:
            log.error(Event.JOBS_LOST, run=run.ref.run, team=run.ref.team, jobs=failed, reason=LOST)
        return failed

    def _fed(self, run: ActiveRun) -> Iterable[int] | None:
        """Items that were fed; of rows that go first, only the last. ``None``: those in the run's bitmap."""
        if run.by_turns:
            return None
        cursor = self._runs.cursor(run.ref)
        if run.passes == 2 and cursor < run.items:
            handed, done = self._runs.turn(run.ref)
            return range(cursor - (handed > done), cursor)
        return range(min(cursor - run.items if run.passes == 2 else cursor, run.items))

    def _lane_of(self, run: ActiveRun, job: int) -> str:
        spec, plan = run.plan.spec, run.plan
        if (of_session := session_of_job(spec, job)) is not None:
            return plan.session_lanes[of_session[2]]
        if step := job % spec.steps:
            return plan.eval_lanes[step - 1]
        return next(iter(run.task_lanes)) if len(run.task_lanes) == 1 else ""
