"""Logs each active run's progress and what it waits for, so that the log alone shows why nothing moves."""

from collections.abc import Callable

from fairlane.core.events import Event
from fairlane.store.run_queries import RunStates
from fairlane.telemetry.logs import get_logger
from fairlane_scheduler.state.backlog import ActiveRun, Backlog
from fairlane_scheduler.state.server_time import Moment

EVERY_MS = 30_000
MOST_RUNS = 500
"""Most runs that one heartbeat logs: those that were admitted first."""

log = get_logger("scheduler")


class RunHeartbeat:
    """``reason_of``: why a lane granted no more permits at the last request; empty if it granted all."""

    def __init__(self, run_states: RunStates, backlog: Backlog, reason_of: Callable[[str], str]) -> None:
        self._run_states, self._backlog, self._reason_of = run_states, backlog, reason_of

    def tick(self, moment: Moment) -> int:
        """Log a line for each active run. Returns when the next heartbeat is due (monotonic, ms)."""
        runs = {run.ref: run for run in list(self._backlog.runs())[:MOST_RUNS]}
        for ref, progress in self._run_states.of(list(runs)).items():
            log.info(
                Event.RUN_PROGRESS,
                run=ref.run,
                team=ref.team,
                done=progress.jobs_done,
                total=progress.jobs,
                in_flight=progress.in_flight,
                waiting_for="run_paused" if progress.paused else self._waiting_for(runs[ref]),
            )
        return moment.monotonic_ms + EVERY_MS

    def _waiting_for(self, run: ActiveRun) -> dict[str, str]:
        """What the run's queued jobs wait for, by lane: a bound of the run, or one of the lane."""
        return {
            lane: bound or self._reason_of(lane) or "permits"
            for lane, bound in self._backlog.bounds_of(run.ref).items()
        }
