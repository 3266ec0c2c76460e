"""Sums up all active runs, and counts ended runs by state, without a label for any run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from fairlane.core.clock import Clock
from fairlane.model.job import JobState
from fairlane.model.run import RunRef
from fairlane.store.run_queries import RunProgress, RunStates
from fairlane_scheduler.monitoring.metrics import SchedulerMetrics

LOOKED_AT_ONCE = 500
"""Runs that one look reads; of more, each is read in its turn and counted as it was seen last."""


@dataclass(frozen=True, slots=True)
class RunTotals:
    """All active runs together. ``jobs`` by state, of all their jobs; ``progress``: the share that is over.

    ``standstill_s``: the longest that a run has gone without the end of a job. Time in which it is paused, or
    waits as it is meant to (`resting`), does not count.
    """

    running: int = 0
    paused: int = 0
    progress: float = 1.0
    standstill_s: float = 0.0
    jobs: Mapping[JobState, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Seen:
    run: RunProgress
    moved_ms: int
    rests: bool


class RunTally:
    """Remembers the runs it has seen: one that is active no more has ended."""

    def __init__(self, run_states: RunStates, metrics: SchedulerMetrics, clock: Clock) -> None:
        self._run_states, self._metrics, self._clock = run_states, metrics, clock
        self._seen: dict[RunRef, _Seen] = {}
        self._known: set[RunRef] = set()

    def forget_all(self) -> None:
        """Another leads, and counts from now on."""
        self._seen.clear()
        self._known.clear()
        self._metrics.admitted.clear()

    def look(self) -> RunTotals:
        """Read what is to be read, and add up."""
        while self._metrics.admitted:
            self._known.add(self._metrics.admitted.popleft())
        active = set(self._run_states.active())
        self._count_ended(self._known - active)
        self._known = active
        self._seen = {ref: seen for ref, seen in self._seen.items() if ref in active}
        # Those that were never read come first, then those whose turn is longest ago.
        unread = sorted(active - self._seen.keys(), key=str)
        due = [*unread, *self._seen][:LOOKED_AT_ONCE]
        for ref, run in self._run_states.of(due).items():
            self._note(ref, run)
        return self._figures()

    def _count_ended(self, refs: set[RunRef]) -> None:
        for state in self._run_states.states(sorted(refs, key=str)) if refs else ():
            if state is not None and state.finished:
                self._metrics.runs_ended.labels(state).inc()

    def _note(self, ref: RunRef, run: RunProgress) -> None:
        before, now = self._seen.pop(ref, None), self._clock.monotonic_ms()
        rests = run.paused or (ref in self._metrics.leader_sample.resting and not run.in_flight)
        still = before is not None and not rests and before.run.jobs_done == run.jobs_done
        self._seen[ref] = _Seen(run, before.moved_ms if before is not None and still else now, rests)

    def _figures(self) -> RunTotals:
        jobs, progress = Counter[JobState](), [seen.run for seen in self._seen.values()]
        for run in progress:
            jobs.update(run.ended)
            jobs[JobState.WAITING] += run.waiting
            jobs[JobState.LEASED] += run.in_flight
        total, done = sum(each.jobs for each in progress), sum(each.jobs_done for each in progress)
        paused = sum(run.paused for run in progress)
        moved = [seen.moved_ms for seen in self._seen.values() if not seen.rests]
        now = self._clock.monotonic_ms()
        return RunTotals(
            running=len(self._known) - paused,
            paused=paused,
            progress=done / total if total else 1.0,
            standstill_s=max((now - each for each in moved), default=0) / 1000,
            jobs=jobs,
        )
