"""Adds up how the active runs stand, and counts how runs ended, without a label for any of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from fairlane.clock import Clock
from fairlane.job import JobState
from fairlane.store.glances import Glance, Glances
from fairlane.store.keys import RunRef
from fairlane_scheduler.monitoring.metrics import SchedulerMetrics

LOOKED_AT_ONCE = 500
"""Runs that one look reads; of more, each is read in its turn and counted as it was seen last."""


@dataclass(frozen=True, slots=True)
class RunFigures:
    """All active runs together. ``jobs`` by state, of all their jobs; ``progress``: the share that is over.

    ``standstill_s``: the longest that a run which is not paused has gone without the end of a job.
    """

    running: int = 0
    paused: int = 0
    progress: float = 1.0
    standstill_s: float = 0.0
    jobs: Mapping[JobState, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Seen:
    glance: Glance
    moved_ms: int


class RunTally:
    """Remembers the runs it has seen: one that is active no more has ended."""

    def __init__(self, glances: Glances, metrics: SchedulerMetrics, clock: Clock) -> None:
        self._glances, self._metrics, self._clock = glances, metrics, clock
        self._seen: dict[RunRef, _Seen] = {}
        self._known: set[RunRef] = set()

    def forget_all(self) -> None:
        """Another leads, and counts from now on."""
        self._seen.clear()
        self._known.clear()
        self._metrics.admitted.clear()

    def look(self) -> RunFigures:
        """Read what is to be read, and add up."""
        while self._metrics.admitted:
            self._known.add(self._metrics.admitted.popleft())
        active = set(self._glances.active())
        self._count_ended(self._known - active)
        self._known = active
        self._seen = {ref: seen for ref, seen in self._seen.items() if ref in active}
        # Those that were never read come first, then those whose turn is longest ago.
        unread = sorted(active - self._seen.keys(), key=str)
        due = [*unread, *self._seen][:LOOKED_AT_ONCE]
        for ref, glance in self._glances.of(due).items():
            self._note(ref, glance)
        return self._figures()

    def _count_ended(self, refs: set[RunRef]) -> None:
        for state in self._glances.states(sorted(refs, key=str)) if refs else ():
            if state is not None and state.finished:
                self._metrics.runs_ended.labels(state).inc()

    def _note(self, ref: RunRef, glance: Glance) -> None:
        before, now = self._seen.pop(ref, None), self._clock.monotonic_ms()
        still = before is not None and not glance.paused and before.glance.jobs_done == glance.jobs_done
        self._seen[ref] = _Seen(glance, before.moved_ms if before is not None and still else now)

    def _figures(self) -> RunFigures:
        jobs, glances = Counter[JobState](), [seen.glance for seen in self._seen.values()]
        for glance in glances:
            jobs.update(glance.ended)
            jobs[JobState.WAITING] += glance.waiting
            jobs[JobState.LEASED] += glance.in_flight
        total, done = sum(each.jobs for each in glances), sum(each.jobs_done for each in glances)
        paused = sum(glance.paused for glance in glances)
        moved = [seen.moved_ms for seen in self._seen.values() if not seen.glance.paused]
        now = self._clock.monotonic_ms()
        return RunFigures(
            running=len(self._known) - paused,
            paused=paused,
            progress=done / total if total else 1.0,
            standstill_s=max((now - each for each in moved), default=0) / 1000,
            jobs=jobs,
        )
