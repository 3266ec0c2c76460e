"""Fails jobs that have waited for a lane that answers no call for as long as their run allows."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple

from fairlane.model.run import RunRef
from fairlane.store.write.lanes.lanes import LaneFailures, Lanes
from fairlane.store.write.runs.runs import Delayed
from fairlane.store.write.runs.uncalled_jobs import Cause, Spent
from fairlane_scheduler.state.backlog import ActiveRun, Backlog
from fairlane_scheduler.state.server_time import Moment
from fairlane_scheduler.upkeep.uncalled import AT_ONCE, Failure, Uncalled


class Outages:
    """Checks queued and delayed jobs once a second, and each retry before its call.

    A run waits from the time when the lane went down, or from its own start if that was later, without its
    pauses. If a probe is due or in flight when the wait is over, it is awaited: so an unused lane is tested
    first. A few failures may open no circuit. So a job also waits from the first of its failed calls, as long
    as the lane has answered no call since.
    """

    def __init__(self, lanes: Lanes, backlog: Backlog, uncalled: Uncalled) -> None:
        self._lanes, self._backlog, self._uncalled = lanes, backlog, uncalled
        self._cursor = 0

    def tick(self, moment: Moment) -> bool:
        """Fail jobs that have waited for too long; true if a full batch was, as more may be left."""
        waiting = [
            (lane, ref) for lane in self._backlog.waiting_lanes() for ref in self._backlog.queued(lane)
        ]
        left = AT_ONCE - self._fail_queued(waiting, AT_ONCE, moment)
        self._cursor, delayed = self._uncalled.jobs.some_delayed(self._cursor)
        left -= len(self._fail(self._overdue(delayed, moment)[: max(0, left)], moment))
        return left < AT_ONCE

    def look(self, overdue: Sequence[tuple[str, RunRef]], moment: Moment) -> None:
        """Fail jobs that were just queued for a retry, before they are called again.

        ``overdue``: their lanes and runs (`Backlog.overdue`).
        """
        left = AT_ONCE - self._fail_queued(overdue, AT_ONCE, moment)
        lanes = self._lanes.failures(sorted({lane for lane, _ in overdue}))
        for lane, ref in overdue:
            left -= self._fail_heads(lane, ref, lanes[lane], left, moment)

    def _fail_queued(self, queued: Sequence[tuple[str, RunRef]], most: int, moment: Moment) -> int:
        """Fail up to ``most`` jobs that wait for a lane that is down. Returns how many."""
        left, lanes = most, self._lanes.failures(sorted({lane for lane, _ in queued}))
        for lane, ref in queued:
            run, failures = self._backlog.get(ref), lanes[lane]
            if left > 0 and run is not None and _outlasts(run, failures, moment.server_ms):
                left -= self._uncalled.fail(_failure(run, lane, "outage", failures), left, moment)
        return most - left

    def _fail_heads(self, lane: str, ref: RunRef, failures: LaneFailures, most: int, moment: Moment) -> int:
        """Fail up to ``most`` retries at the head of a queue: those that `_is_unanswered`."""
        failed = 0
        while failed < most and (run := self._backlog.get(ref)) is not None:
            head = self._uncalled.jobs.first_queued(ref, lane, 1)
            if not head or not _is_unanswered(run, failures, head[0].spent, moment.server_ms):
                break
            if not self._uncalled.fail(_failure(run, lane, "unanswered", failures), 1, moment):
                break
            failed += 1
        return failed

    def keep(self, due: Sequence[Delayed], moment: Moment) -> list[Delayed]:
        """Fail jobs whose retry is ``due`` and that have waited for too long. Returns the others.

        Jobs beyond `AT_ONCE` are neither failed nor returned: they stay due.
        """
        overdue = self._overdue(due, moment)
        gone = {each.job.member for each in overdue[AT_ONCE:]}
        gone |= {job.member for job in self._fail(overdue[:AT_ONCE], moment)}
        return [job for job in due if job.member not in gone]

    def _overdue(self, jobs: Sequence[Delayed], moment: Moment) -> list[_Overdue]:
        """Those of the jobs that have waited for too long, by run, lane and cause."""
        now_ms, found = moment.server_ms, list[_Overdue]()
        runs = {ref: self._backlog.get(ref) for ref in {job.ref for job in jobs}}
        runs = {ref: run for ref, run in runs.items() if run and run.has_waited(run.started_ms, now_ms)}
        jobs = [job for job in jobs if job.ref in runs]
        if not jobs:
            return found
        lanes = self._lanes.failures(sorted({job.lane for job in jobs}))
        for job, spent in zip(jobs, self._uncalled.jobs.spent(jobs), strict=True):
            run, failures = runs[job.ref], lanes[job.lane]
            if run is None:
                continue
            if _outlasts(run, failures, now_ms):
                found.append(_Overdue(_failure(run, job.lane, "outage", failures), job, spent))
            elif _is_unanswered(run, failures, spent, now_ms):
                found.append(_Overdue(_failure(run, job.lane, "unanswered", failures), job, spent))
        return sorted(found, key=_kind)

    def _fail(self, overdue: Sequence[_Overdue], moment: Moment) -> list[Delayed]:
        """Fail these jobs while their cause lasts. Returns those that have failed."""
        failed = list[Delayed]()
        for _, group in groupby(overdue, _kind):
            alike = list(group)
            jobs = [(each.job, each.spent) for each in alike]
            failed += self._uncalled.fail_delayed(alike[0].failure, jobs, moment)
        return failed


class _Overdue(NamedTuple):
    """A job that waits for its retry for too long, and why."""

    failure: Failure
    job: Delayed
    spent: Spent


def _kind(overdue: _Overdue) -> tuple[str, str, str]:
    failure = overdue.failure
    return str(failure.run.ref), failure.lane, failure.cause


def _outlasts(run: ActiveRun, lane: LaneFailures, server_ms: int) -> bool:
    """Whether a lane has been down for the run's ``max_outage``, and no probe must be awaited."""
    if run.paused or lane.down_ms is None:
        return False
    since_ms = max(lane.down_ms, run.started_ms)
    if not run.has_waited(since_ms, server_ms):
        return False
    no_probe_due = lane.probe_ms is not None and lane.probe_ms > server_ms
    return no_probe_due or run.has_waited(since_ms, lane.probe_failed_ms)


def _is_unanswered(run: ActiveRun, lane: LaneFailures, spent: Spent, server_ms: int) -> bool:
    """Whether a job's calls have failed for its run's ``max_outage``, and the lane has answered none since.

    After a pause the job is called once more.
    """
    if run.paused or lane.stopped or not spent.failures or not spent.failed_ms:
        return False
    if lane.down_ms is not None and lane.probe_ms is None:  # a probe is in flight
        return False
    if spent.last_n <= lane.answered_n or any(until > lane.failed_ms for _, until in run.pauses):
        return False
    first_ms = min(spent.failed_ms, lane.first_ms or spent.failed_ms)
    return run.has_waited(max(first_ms, run.started_ms), server_ms)


def _failure(run: ActiveRun, lane: str, cause: Cause, failures: LaneFailures) -> Failure:
    longest_s, reason = run.plan.spec.bounds.max_outage, failures.error or "no reason is known"
    error = f"{lane} answered nobody for {longest_s:g} s (max_outage): {reason}"
    return Failure(run, lane, cause, error, failures.down_ms)
