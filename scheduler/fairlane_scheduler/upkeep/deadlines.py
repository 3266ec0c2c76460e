"""Ends runs whose ``max_duration`` or budget is used up, and queues jobs whose back-off has ended."""

from collections.abc import Callable, Mapping, Sequence

from fairlane.core.events import Event
from fairlane.model.ending import TIMED_OUT, Ending
from fairlane.model.run import RunRef
from fairlane.store.write.runs.runs import Runs
from fairlane.telemetry.logs import get_logger, logs_calls
from fairlane_scheduler.feed.run_loader import RunLoader
from fairlane_scheduler.state.backlog import Backlog
from fairlane_scheduler.state.server_time import Moment
from fairlane_scheduler.upkeep.outages import Outages

AT_ONCE = 500  # most jobs that a tick queues after their back-off
DAMAGED_MS = 5000  # until a damaged run's delayed jobs are tried again
ENDED_AT_ONCE = 100  # most runs that a tick ends, which takes some tens of milliseconds

log = get_logger("scheduler")


class EarlyEnds:
    """Ends runs whose ``max_duration`` has passed or whose budget is used up. Reads both from memory."""

    def __init__(
        self, runs: Runs, backlog: Backlog, loader: RunLoader, lanes: Callable[[], Sequence[str]]
    ) -> None:
        self._runs = runs
        self._backlog = backlog
        self._loader = loader
        self._lanes = lanes
        self.left: dict[RunRef, Ending] = {}

    def tick(self, out_of_budget: Mapping[RunRef, Ending], moment: Moment) -> int | None:
        """End runs that are due, some at a time.

        Returns milliseconds until the next ``max_duration`` ends, 0 if runs are left, ``None`` without any.
        """
        self.left |= out_of_budget
        ended = 0
        for ref, ending in list(self.left.items()):
            if ended == ENDED_AT_ONCE:
                return 0
            if self._backlog.get(ref) is not None:
                self._end(ref, ending, moment)
                ended += 1
            del self.left[ref]
        while (due := self._backlog.next_deadline()) is not None:
            ends_ms, run = due
            if ends_ms > moment.server_ms:
                return ends_ms - moment.server_ms
            if ended == ENDED_AT_ONCE:
                return 0
            ended += 1
            self._end(run.ref, TIMED_OUT, moment)
        return None

    def _end(self, ref: RunRef, ending: Ending, moment: Moment) -> None:
        left = self._runs.end(ref, self._lanes(), ending, moment.epoch, moment.argument)
        self._loader.forget(ref)
        log.warning(Event.RUN_ENDED_EARLY, run=ref.run, team=ref.team, jobs=left, reason=ending.reason)


class DelayedJobs:
    """Moves due jobs from the back-off index to their lanes' queues, except those that ``outages`` fails."""

    def __init__(self, runs: Runs, backlog: Backlog, outages: Outages) -> None:
        self._runs = runs
        self._backlog = backlog
        self._outages = outages

    def tick(self, next_due_ms: int, moment: Moment) -> int:
        """Queue the jobs that are due; ``next_due_ms`` (server time) is when the first back-off ends.

        Returns milliseconds until the next pass.
        """
        if next_due_ms > moment.server_ms:
            return next_due_ms - moment.server_ms
        for job in self._outages.keep(self._runs.delayed(moment.server_ms, AT_ONCE), moment):
            if job.ref in self._backlog.damaged:
                self._runs.postpone(job, moment.server_ms + DAMAGED_MS)
            elif self._runs.promote(job, moment.argument) and logs_calls(Event.QUEUEING):
                number, run = int(job.entry.partition(":")[0]), self._backlog.get(job.ref)
                fields = {"run": job.ref.run, "job": number, "team": job.ref.team}
                labels = run.plan.spec.labels(number) if run else {}
                depth = self._backlog.depth(job.lane) + 1
                log.info(Event.QUEUEING, **fields, **labels, lane=job.lane, queue_depth=depth)
        return 0
