"""Fails jobs that have waited for a lane that is down for as long as their run allows."""

from __future__ import annotations

from fairlane.store.write.lanes.lanes import Lanes, Outage
from fairlane_scheduler.state.backlog import ActiveRun, Backlog
from fairlane_scheduler.state.server_time import Moment
from fairlane_scheduler.upkeep.uncalled import AT_ONCE, Uncalled


class Outages:
    """Looks at lanes with waiting jobs once a second.

    A run waits from the time when the lane went down, or from its own start if that was later. Time in which
    it is paused does not count. Nothing fails while a probe is due or in flight, so that a lane which nobody
    used meanwhile is tested first.
    """

    def __init__(self, lanes: Lanes, backlog: Backlog, uncalled: Uncalled) -> None:
        self._lanes, self._backlog, self._uncalled = lanes, backlog, uncalled

    def tick(self, moment: Moment) -> bool:
        """Fail jobs that are due; true if some are left."""
        left = AT_ONCE
        for lane, outage in self._lanes.outages(self._backlog.waiting_lanes()).items():
            if outage.probe_ms <= moment.server_ms:
                continue
            for ref in self._backlog.queued(lane):
                if left <= 0:
                    return True
                run = self._backlog.get(ref)
                if run is not None and not run.paused and _has_waited(run, outage, moment.server_ms):
                    left -= self._fail(run, lane, outage, left, moment)
        return left <= 0

    def _fail(self, run: ActiveRun, lane: str, outage: Outage, most: int, moment: Moment) -> int:
        """Fail up to ``most`` jobs of a run on a lane; returns how many."""
        longest_s, reason = run.plan.spec.bounds.max_outage, outage.error or "no reason is known"
        error = f"{lane} answered nobody for {longest_s:g} s (max_outage): {reason}"
        return self._uncalled.fail(run, lane, "outage", error, most, moment)


def _has_waited(run: ActiveRun, outage: Outage, server_ms: int) -> bool:
    since_ms = max(outage.since_ms, run.started_ms)
    return run.unpaused_ms(since_ms, server_ms) >= run.plan.spec.bounds.max_outage * 1000
