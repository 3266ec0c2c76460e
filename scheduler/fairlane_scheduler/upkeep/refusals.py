"""Fails a run's jobs for a model whose provider rejected the run's first calls in the same way."""

from __future__ import annotations

from fairlane.core.events import Event
from fairlane.store.rejections import rejections_in
from fairlane.store.run_queries import RunStates
from fairlane.telemetry.logs import get_logger
from fairlane_scheduler.state.backlog import REFUSED, ActiveRun, Backlog
from fairlane_scheduler.state.server_time import Moment
from fairlane_scheduler.upkeep.uncalled import AT_ONCE, Uncalled

log = get_logger("scheduler")


class Refusals:
    """Looks at runs to which a lane grants nothing for that reason; logs those that want their jobs held."""

    def __init__(self, states: RunStates, backlog: Backlog, uncalled: Uncalled) -> None:
        self._states, self._backlog, self._uncalled = states, backlog, uncalled

    def tick(self, moment: Moment) -> bool:
        """Fail some of their jobs; true if that was not all that may be failed now."""
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
                failed += self._uncalled.fail(
                    run, lane, "refusals", error, most - failed, moment, kind=each.kind
                )
        return failed
