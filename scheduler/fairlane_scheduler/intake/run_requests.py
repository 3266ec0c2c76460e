"""Acts on requests for admitted runs: more rows, cancel, pause, resume."""

from fairlane.core.events import Event
from fairlane.model.ending import CANCELLED, Ending
from fairlane.model.job import JobState
from fairlane.model.run import RunRef, RunState
from fairlane.store.write.runs.inbox import Request
from fairlane.store.write.runs.runs import ReadPage, Runs
from fairlane.telemetry.logs import get_logger
from fairlane_scheduler.feed.feeder import Feeder
from fairlane_scheduler.feed.run_loader import RunLoader
from fairlane_scheduler.intake.admission import PayloadLimits, check_jobs
from fairlane_scheduler.intake.template_check import RequestAwaited
from fairlane_scheduler.lanes.registry import LaneRegistry
from fairlane_scheduler.state.backlog import ActiveRun, Backlog
from fairlane_scheduler.state.server_time import Moment

DAMAGED_MS = 1000  # until a request for a damaged run is tried again

log = get_logger("receiver")


class RunRequests:
    """Each request takes effect at most once: the scripts check the run's state."""

    def __init__(
        self,
        runs: Runs,
        backlog: Backlog,
        loader: RunLoader,
        feeder: Feeder,
        lanes: LaneRegistry,
        limits: PayloadLimits,
    ) -> None:
        self._runs = runs
        self._loader = loader
        self._backlog = backlog
        self._feeder = feeder
        self._lanes = lanes
        self._limits = limits

    def is_damaged(self, ref: RunRef) -> bool:
        """Whether requests for the run wait, as a key of it has another type."""
        return ref in self._backlog.damaged

    def act(self, ref: RunRef, request: Request, moment: Moment) -> None:
        """Act on a request that submits nothing.

        Raises `RequestAwaited` while a key of the run has a wrong type.
        """
        if self.is_damaged(ref):
            raise RequestAwaited(DAMAGED_MS)
        match request.op:
            case "extend":
                self._extend(ref, request, moment)
            case "cancel":
                self._cancel(ref, moment)
            case _:
                self._pause_or_resume(ref, request, moment)

    def _cancel(self, ref: RunRef, moment: Moment) -> None:
        cancelled = self._runs.end(ref, self._lanes.names(), CANCELLED, moment.epoch, moment.argument)
        if cancelled >= 0:
            self._forget(ref)
            log.info(Event.RUN_CANCELLED, run=ref.run, team=ref.team, jobs=cancelled)

    def _pause_or_resume(self, ref: RunRef, request: Request, moment: Moment) -> None:
        pauses = request.op == "pause"
        verb = self._runs.pause if pauses else self._runs.resume
        if not verb(ref, request.by, moment.epoch, moment.argument):
            return
        if (run := self._backlog.get(ref)) is not None:
            extent = self._runs.extent(ref)
            run.paused, run.pauses = extent.paused, extent.pauses
            run.held_on.clear()
        event = Event.RUN_PAUSED if pauses else Event.RUN_RESUMED
        log.info(event, run=ref.run, team=ref.team, by=request.by)

    def _extend(self, ref: RunRef, request: Request, moment: Moment) -> None:
        """Add the rows of an open run; a run that grows too large is stopped."""
        run = self._loader.find(ref)
        if run is None or run.plan.spec.source is not None:
            return
        try:
            check_jobs(run.plan.spec, request.rows)
            self._limits.check_rows(run.plan.spec, request.rows)
        except ValueError as error:
            ending = Ending(RunState.STOPPED, JobState.SKIPPED, str(error))
            self._runs.end(ref, self._lanes.names(), ending, moment.epoch, moment.argument)
            run.ended = True
        else:
            extend(self._runs, run, request.rows, moment, last=request.last)
        if run.ended:
            self._forget(ref)

    def _forget(self, ref: RunRef) -> None:
        self._backlog.drop_run(ref)
        self._feeder.forget(ref)


def extend(
    runs: Runs, run: ActiveRun, rows: int, moment: Moment, *, last: bool, page: ReadPage | None = None
) -> bool:
    """Set an open run's number of rows, and store their ``page``; ``last`` closes the run.

    Returns whether that took effect. If not, ``run`` gets the number of rows that Redis has.
    """
    extended = runs.extend(run.ref, run.plan, rows, moment.epoch, moment.argument, last=last, page=page)
    if extended:
        run.rows, run.open = rows, not last
    else:
        extent = runs.extent(run.ref)
        run.rows, run.open = max(run.rows, extent.rows), extent.open
    run.ended = extended == 2
    return extended != 0
