"""Keeps the backlog in step with the runs that are active in Redis."""

from pydantic import ValidationError

from fairlane.core.clock import Clock
from fairlane.core.errors import ResultsLost, RunNotFound
from fairlane.core.events import Event
from fairlane.model.ending import Completion
from fairlane.model.run import Plan, RunRef
from fairlane.model.sessions import SessionMembership, session_of_job
from fairlane.model.tokens import NO_UNKEPT, Estimate, Unkept
from fairlane.pipeline.completion import complete_without_row
from fairlane.pipeline.evaluations import FinishedJob
from fairlane.store.connection.connect import RedisClient
from fairlane.store.keys import Keys
from fairlane.store.read.mistyped import damaged_runs, refusal_of
from fairlane.store.read.reading import RunReader
from fairlane.store.write.runs.run_control import restore_active
from fairlane.store.write.runs.runs import Runs
from fairlane.telemetry.logs import get_logger
from fairlane_scheduler.feed.feeder import Feeder, in_turn
from fairlane_scheduler.feed.session_index import SessionIndex
from fairlane_scheduler.state.backlog import ActiveRun, Backlog

LOADED_AT_ONCE = 200
LOADED_MS = 200
"""A pass ends after so many runs or milliseconds, so that the leader renews its lease in time."""

log = get_logger("runs")


class RunLoader:
    """Loads runs that another scheduler admitted, and drops runs that have ended."""

    def __init__(
        self, redis: RedisClient, keys: Keys, runs: Runs, backlog: Backlog, feeder: Feeder, clock: Clock
    ) -> None:
        self._clock = clock
        self._redis, self._keys = redis, keys
        self._runs, self._backlog, self._feeder = runs, backlog, feeder
        self._reader = RunReader(redis, keys)
        self._sessions = SessionIndex(runs)
        self.complete = False
        """Whether the backlog had every active run after the last `refresh`."""
        self._unreadable: set[RunRef] = set()  # logged once; they wait for a scheduler of a later version

    def refresh(self) -> bool:
        """Drop runs that have ended and load new ones; true if some are left to load."""
        damaged = self._backlog.damaged
        if damaged:
            damaged.intersection_update(damaged_runs(self._redis, self._keys, damaged))
        active = set(self._runs.active())
        missing = [run.ref for run in self._backlog.runs() if run.ref not in active]
        lost = self._restored(missing) if missing else set()
        active |= lost
        for ref in missing:
            if ref not in lost:
                self.forget(ref)
        self._unreadable &= active
        unknown = [ref for ref in active if self._backlog.get(ref) is None and ref not in damaged]
        loaded, began_ms = list[bool](), self._clock.monotonic_ms()
        readable = [ref for ref in unknown if ref not in self._unreadable]
        for ref in [*in_turn(readable, lambda ref: ref.team), *self._unreadable]:
            if len(loaded) >= LOADED_AT_ONCE or self._clock.monotonic_ms() - began_ms >= LOADED_MS:
                break
            loaded.append(self._load(ref))
        self.complete = len(unknown) == len(loaded) and all(loaded) and not damaged
        return any(loaded) and len(unknown) > len(loaded)

    def find(self, ref: RunRef) -> ActiveRun | None:
        """An active run, loaded at once if `refresh` has not come to it; ``None`` if it cannot be."""
        if ref not in self._backlog.damaged and self._backlog.get(ref) is None and self._runs.is_active(ref):
            self._load(ref)
        return self._backlog.get(ref)

    def set_aside(self) -> bool:
        """Skip runs that have a key of a wrong type, and those that continue them, until it is deleted.

        Returns whether some are new.
        """
        continued = {old for run in self._backlog.runs() if (old := run.plan.spec.continued)}
        found = damaged_runs(self._redis, self._keys) | damaged_runs(self._redis, self._keys, continued)
        new = found.keys() - self._backlog.damaged
        for ref in new:
            log.error(Event.RUN_DAMAGED, run=ref.run, team=ref.team, error=str(refusal_of(found[ref])))
        self._backlog.damaged |= new
        waiting = [run.ref for run in self._backlog.runs() if run.plan.spec.continued in found]
        for ref in (*new, *waiting):
            self.forget(ref)
        return bool(new or waiting)

    def is_damaged(self, ref: RunRef) -> bool:
        """Whether a run is skipped because one of its keys has a wrong type."""
        return ref in self._backlog.damaged

    def forget(self, ref: RunRef) -> None:
        """Drop the state of a run that has ended."""
        self._backlog.drop_run(ref)
        self._feeder.forget(ref)
        self._sessions.forget(ref)

    def forget_all(self) -> None:
        """Drop all runs, so that `refresh` reads them again."""
        for run in self._backlog.runs():
            self.forget(run.ref)

    def plan(self, ref: RunRef) -> Plan | None:
        """An admitted run's plan; ``None`` if the run is deleted, or another version wrote it."""
        run = self._backlog.get(ref)
        if run is not None or ref in self._backlog.damaged:
            return run.plan if run else None
        try:
            return self._runs.plan(ref)
        except ValidationError as error:
            if ref not in self._unreadable:
                log.warning(Event.PLAN_UNREADABLE, run=ref.run, team=ref.team, errors=error.error_count())
            self._unreadable.add(ref)
            return None

    def session_of(self, ref: RunRef, plan: Plan, item: int) -> SessionMembership | None:
        """The session of an item's row; ``None`` if the run evaluates no sessions."""
        return self._sessions.of(ref, plan.spec, item // plan.spec.cells_per_row)

    def completion_of(
        self,
        ref: RunRef,
        plan: Plan,
        job: int,
        tokens: Estimate,
        error: str,
        attempts: int = 0,
        unkept: Unkept = NO_UNKEPT,
    ) -> Completion:
        """The completion of a job that fails; its row is not read. ``unkept``: its paid answers so far."""
        of_session = session_of_job(plan.spec, job) is not None
        membership = None if of_session else self.session_of(ref, plan, job // plan.spec.steps)
        failed = FinishedJob(error=error, attempts=attempts, unkept=unkept)
        return complete_without_row(plan, job, failed, tokens, membership)

    def _restored(self, missing: list[RunRef]) -> set[RunRef]:
        """Add unfinished runs again that Redis has lost from its set of active runs. Returns them."""
        found = set(restore_active(self._runs.redis, self._runs.keys, missing))
        if found:
            log.warning(Event.INDEX_RESTORED, index="active", entries=len(found))
        return found

    def _load(self, ref: RunRef) -> bool:
        plan = self.plan(ref)
        if plan is None or plan.spec.continued in self._backlog.damaged:
            return False
        try:
            task_lanes = self._task_lanes(ref, plan)
        except (RunNotFound, ResultsLost):  # it has ended since, or Redis has lost its state
            return False
        extent = self._runs.extent(ref)
        run = ActiveRun(ref, plan, extent.cursor, task_lanes, extent.rows, extent.open, extent.started_ms)
        run.paused, run.pauses = extent.paused, extent.pauses
        self._backlog.add_run(run)
        # The set of the run's lanes may be lost; those that its state and its plan name have its queues.
        lanes = run.known_lanes | self._runs.lanes(ref)
        for lane, count in self._runs.queued(ref, sorted(lanes)).items():
            self._backlog.set_queued(lane, ref, count)
        return True

    def _task_lanes(self, ref: RunRef, plan: Plan) -> set[str]:
        """Lanes with task jobs: those with more jobs than the judges alone have there."""
        judges = plan.known_jobs(plan.spec.items)
        return {
            lane.lane
            for lane in self._reader.status(ref, plan.spec).lanes
            if lane.known > judges.get(f"known:{lane.lane}", 0)
        }
