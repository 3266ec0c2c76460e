"""What a scheduler counts and times, and what it remembers for whoever asks how everything stands."""

from __future__ import annotations

from collections import Counter as Tally
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

from fairlane.admission.lanes import Grant, Offer
from fairlane.label_values import LabelValues
from fairlane.run import RunState
from fairlane.settings import Settings
from fairlane.store.budgets import Allowance
from fairlane.store.keys import RunRef
from fairlane_scheduler.backlog import Backlog

MOST_PAIRS = 2000
"""Combinations of lane and team, or of a budget's labels, that are told by name."""

MOST_REASONS = 30
MOST_ADMITTED = 100_000
"""Runs admitted between two looks; of more, some ends go uncounted."""

QUICK_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
"""Bounds for what is done in one round trip or a few."""


@dataclass(frozen=True, slots=True)
class Ledger:
    """What the leader knew when it last kept house. By lane: jobs queued, and those of them that could start
    (``ready``); by team, as it is told: those, and its weight.
    """

    queued: Mapping[str, int] = field(default_factory=dict)
    ready: Mapping[str, int] = field(default_factory=dict)
    waiting: Mapping[str, int] = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)
    budgets: Sequence[Allowance] = ()
    known: bool = False


class SchedulerMetrics:
    """One process' registry. Counting is done on the loop's thread, and costs microseconds a grant.

    Labels have few values: lanes and teams as many as `MetricsSettings` says, reasons and states those there
    are. Nothing is labelled by run, job or worker.
    """

    def __init__(self, settings: Settings) -> None:
        self.registry = registry = CollectorRegistry()
        self.lanes = LabelValues(settings.metrics.lanes)
        self.teams = LabelValues(settings.metrics.teams)
        self.pairs, self.budgets = LabelValues(MOST_PAIRS), LabelValues(MOST_PAIRS)
        self._reasons = LabelValues(MOST_REASONS)
        for lane in settings.lanes:
            self.lanes.of(lane)
        for team in settings.teams:
            self.teams.of(team)
        self.admitted: deque[RunRef] = deque(maxlen=MOST_ADMITTED)
        self.ledger = Ledger()
        self.max_in_flight = settings.scheduler.max_in_flight

        ProcessCollector(registry=registry)
        info = Gauge("fairlane_build_info", "1", ["version", "role"], registry=registry)
        info.labels(version("fairlane"), "scheduler").set(1)
        self.tick_seconds = Histogram(
            "fairlane_scheduler_tick_seconds", "One pass of the loop", buckets=QUICK_S, registry=registry
        )
        self.grant_seconds = Histogram(
            "fairlane_grant_seconds", "Asking one lane for permits", buckets=QUICK_S, registry=registry
        )
        self.redis_seconds = Histogram(
            "fairlane_redis_seconds", "A round trip to Redis", buckets=QUICK_S, registry=registry
        )
        self.redis_errors = Counter("fairlane_redis_errors", "Looks that Redis refused", registry=registry)
        self._asked = Counter(
            "fairlane_lane_asked", "Lanes asked for permits", ["lane", "held_by"], registry=registry
        )
        self._permits = Counter("fairlane_permits", "Permits granted", ["lane", "team"], registry=registry)
        self._shares = Counter(
            "fairlane_team_share", "Shares of lanes charged", ["lane", "team"], registry=registry
        )
        self.runs_ended = Counter("fairlane_runs_ended", "Runs that ended", ["state"], registry=registry)
        for state in RunState:
            if state.finished:
                self.runs_ended.labels(state)
        self.workers_lost = Counter("fairlane_workers_lost", "Workers that fell silent", registry=registry)

    def asked(self, lane: str, offers: Sequence[Offer], grant: Grant, seconds: float) -> None:
        """A lane has answered."""
        self.grant_seconds.observe(seconds)
        (name,) = self.lanes.of(lane)
        self._asked.labels(name, *self._reasons.of(grant.reason or "nothing")).inc()
        counts, shares = Tally[str](), dict[str, float]()
        for permit in grant.permits:
            team = offers[permit.offer].ref.team
            counts[team] += 1
            shares[team] = shares.get(team, 0.0) + permit.share
        for team, share in shares.items():
            pair = self.pairs.of(name, *self.teams.of(team))
            self._permits.labels(*pair).inc(counts[team])
            self._shares.labels(*pair).inc(max(0.0, share))

    def note(
        self,
        backlog: Backlog,
        lanes: Iterable[str],
        weight: Callable[[str], float],
        budgets: Sequence[Allowance],
    ) -> None:
        """The leader has kept house: remember what it knows. On the loop's thread."""
        waiting, ready = Tally[str](), Tally[str]()
        queued = {lane: backlog.depth(lane) for lane in lanes}
        for lane, depth in queued.items():
            ready[lane] = 0
            for ref, count in backlog.queued(lane).items() if depth else ():
                ready[lane] += count
                waiting[self.teams.of(ref.team)[0]] += count
        weights = {team: weight(team) for (team,) in self.teams.known()}
        self.ledger = Ledger(queued, ready, waiting, weights, tuple(budgets), known=True)
