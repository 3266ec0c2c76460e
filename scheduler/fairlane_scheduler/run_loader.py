"""Keeps the backlog in step with the runs that are active in Redis."""

from __future__ import annotations

from pydantic import ValidationError

from fairlane.errors import RunNotFound
from fairlane.logs import get_logger
from fairlane.run import Plan
from fairlane.sessions import Seat
from fairlane.store.connect import RedisClient
from fairlane.store.keys import Keys, RunRef
from fairlane.store.reading import RunReader
from fairlane.store.runs import Runs, known_jobs
from fairlane_scheduler.backlog import ActiveRun, Backlog
from fairlane_scheduler.feeder import Feeder
from fairlane_scheduler.seats import Seats

LOADED_AT_ONCE = 200  # a few hundred milliseconds: a leader must bid again in time

log = get_logger("runs")


class RunLoader:
    """All that the scheduler knows of runs can be read again; this is where it is."""

    def __init__(self, redis: RedisClient, keys: Keys, runs: Runs, backlog: Backlog, feeder: Feeder) -> None:
        self._runs, self._backlog, self._feeder = runs, backlog, feeder
        self._reader = RunReader(redis, keys)
        self._seats = Seats(runs)
        self._unreadable: set[RunRef] = set()  # told once: they wait for a scheduler of a later version

    def refresh(self) -> bool:
        """Forget runs that have ended and load new ones; true where some are still to be loaded."""
        active = set(self._runs.active())
        for run in self._backlog.runs():
            if run.ref not in active:
                self.forget(run.ref)
        self._unreadable &= active
        unknown = [ref for ref in active if self._backlog.get(ref) is None]
        loaded = [self._load(ref) for ref in unknown[:LOADED_AT_ONCE]]
        return any(loaded) and len(unknown) > LOADED_AT_ONCE

    def forget(self, ref: RunRef) -> None:
        """A run has ended."""
        self._backlog.drop_run(ref)
        self._feeder.forget(ref)
        self._seats.forget(ref)

    def forget_all(self) -> None:
        """What is known may be out of date: `refresh` reads it again."""
        for run in self._backlog.runs():
            self.forget(run.ref)

    def plan(self, ref: RunRef) -> Plan | None:
        """An admitted run's plan; ``None`` for one that is gone, or that another version wrote."""
        run = self._backlog.get(ref)
        if run is not None:
            return run.plan
        try:
            return self._runs.plan(ref)
        except ValidationError as error:
            if ref not in self._unreadable:
                log.warning("plan_unreadable", run=ref.run, team=ref.team, errors=error.error_count())
            self._unreadable.add(ref)
            return None

    def seat(self, ref: RunRef, plan: Plan, item: int) -> Seat | None:
        """Which session an item's row belongs to; ``None`` where nothing is evaluated by session."""
        return self._seats.of(ref, plan.spec, item // plan.spec.cells_per_row)

    def _load(self, ref: RunRef) -> bool:
        plan = self.plan(ref)
        if plan is None:
            return False
        try:
            task_lanes = self._task_lanes(ref, plan)
        except RunNotFound:  # it has ended since
            return False
        extent = self._runs.extent(ref)
        run = ActiveRun(ref, plan, extent.cursor, task_lanes, extent.rows, extent.open, extent.started_ms)
        run.paused = extent.paused
        self._backlog.add_run(run)
        for lane, count in self._runs.queued(ref, sorted(self._runs.lanes(ref))).items():
            self._backlog.settle(lane, ref, count)
        return True

    def _task_lanes(self, ref: RunRef, plan: Plan) -> set[str]:
        """Lanes that items have gone to: those with more jobs than the judges alone will have there."""
        judges = known_jobs(plan, plan.spec.items)
        return {
            lane.lane
            for lane in self._reader.status(ref, plan.spec).lanes
            if lane.known > judges.get(f"known:{lane.lane}", 0)
        }
