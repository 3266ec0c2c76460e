"""Counters and timings of a scheduler, and the leader's queues as the next scrape shows them."""

from collections import Counter as Tally
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector

from fairlane.config.settings import Settings
from fairlane.model.run import RunRef, RunState
from fairlane.store.write.budgets import Allowance
from fairlane.store.write.permits import Grant, Offer
from fairlane.telemetry.log_stream import LostLines
from fairlane.telemetry.metrics_server import LabelValues
from fairlane_scheduler.state.backlog import REFUSED, ActiveRun, Backlog

MOST_PAIRS = 2000
"""Most combinations of lane and team, or of a budget's labels, with labels of their own."""

MOST_REASONS = 30
MOST_ADMITTED = 100_000
"""Most runs admitted between two samples; beyond that some ends go uncounted."""

QUICK_S = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)
"""Buckets for work of one or a few round trips, in seconds."""


MEANT_BY_USERS = frozenset(
    ("run_paused", "task_rate", "eval_rate", "delay", "budget", "team_budget", "model", REFUSED)
)
"""Bounds of runs that a user or operator set, or that end at a known time: a run that waits for one is no
alert. ``model_seconds`` bounds how long a model waits for its turn."""

MEANT_ON_LANES = frozenset(("paused", "parked", "held", "day"))
"""Reasons of lanes that last until a quota renews, or until an operator acts; these have their own alerts."""


@dataclass(frozen=True, slots=True)
class LeaderSample:
    """The leader's state at its last housekeeping.

    By lane: jobs ``queued``, and those that could start (``ready``). By team label: jobs that could start
    (``waiting``), and ``weights``. ``held_runs``: how many runs have jobs that are held after refusals.
    """

    queued: Mapping[str, int] = field(default_factory=dict)
    ready: Mapping[str, int] = field(default_factory=dict)
    waiting: Mapping[str, int] = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)
    budgets: Sequence[Allowance] = ()
    held_runs: int = 0
    waiting_on_purpose: frozenset[RunRef] = frozenset()
    known: bool = False  # whether this scheduler has led


class SchedulerMetrics:
    """One process' registry. The loop's thread counts, at a cost of microseconds a grant.

    Labels have few values: lanes and teams as many as `MetricsSettings` says, reasons and states those there
    are. Nothing is labelled by run, job or worker.
    """

    def __init__(self, settings: Settings) -> None:
        """Lanes and teams of the configuration get their labels first; others as they appear."""
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
        self.leader_sample = LeaderSample()
        self.max_in_flight = settings.scheduler.max_in_flight

        ProcessCollector(registry=registry)
        LostLines.register(registry)
        info = Gauge("fairlane_build_info", "1", ["version", "role"], registry=registry)
        info.labels(version("fairlane"), "scheduler").set(1)
        self.tick_seconds = Histogram(
            "fairlane_scheduler_tick_seconds", "One pass of the loop", buckets=QUICK_S, registry=registry
        )
        self.grant_seconds = Histogram(
            "fairlane_grant_seconds", "Time of one request for permits", buckets=QUICK_S, registry=registry
        )
        self.redis_seconds = Histogram(
            "fairlane_redis_seconds", "A round trip to Redis", buckets=QUICK_S, registry=registry
        )
        self.redis_errors = Counter("fairlane_redis_errors", "Samples that failed", registry=registry)
        self._asked = Counter(
            "fairlane_lane_asked", "Lanes asked for permits", ["lane", "held_by"], registry=registry
        )
        self._permits = Counter("fairlane_permits", "Permits granted", ["lane", "team"], registry=registry)
        self._shares = Counter(
            "fairlane_team_share", "Minutes of the lane charged", ["lane", "team"], registry=registry
        )
        self.runs_ended = Counter("fairlane_runs_ended", "Runs that ended", ["state"], registry=registry)
        for state in RunState:
            if state.finished:
                self.runs_ended.labels(state)
        self.workers_lost = Counter("fairlane_workers_lost", "Workers that fell silent", registry=registry)

    def asked(self, lane: str, offers: Sequence[Offer], grant: Grant, seconds: float) -> None:
        """Count a lane's answer to a request for permits."""
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

    def lost_worker(self) -> None:
        """Count a worker whose heartbeat stopped."""
        self.workers_lost.inc()

    def decided(self, ref: RunRef, admitted: bool) -> None:
        """Count a rejected run as ended; note an admitted one, so that its end is counted."""
        if admitted:
            self.admitted.append(ref)
        else:
            self.runs_ended.labels(RunState.REFUSED).inc()

    def note(
        self,
        backlog: Backlog,
        lanes: Iterable[str],
        weight: Callable[[str], float],
        budgets: Sequence[Allowance],
        reason_of: Callable[[str], str] = lambda lane: "",
    ) -> None:
        """Keep the leader's state for the next scrapes. Called on the loop's thread.

        ``reason_of``: why a lane granted no more permits when it was asked last.
        """
        waiting, ready = Tally[str](), Tally[str]()
        queued = {lane: backlog.depth(lane) for lane in lanes}
        for lane, depth in queued.items():
            ready[lane] = 0
            for ref, count in backlog.queued(lane).items() if depth else ():
                ready[lane] += count
                waiting[self.teams.of(ref.team)[0]] += count
        weights = {team: weight(team) for (team,) in self.teams.known()}
        held = len({ref for _, ref in backlog.throttled_by(REFUSED)})
        on_purpose = waiting_on_purpose(backlog, reason_of)
        self.leader_sample = LeaderSample(
            queued, ready, waiting, weights, tuple(budgets), held, on_purpose, known=True
        )


def waiting_on_purpose(backlog: Backlog, reason_of: Callable[[str], str]) -> frozenset[RunRef]:
    """Runs that wait because a user, an operator or a quota wants it: their standstill is no alert.

    A bound of `MEANT_BY_USERS` or a reason of `MEANT_ON_LANES` delays every queued job, or they are open and
    wait for rows. ``docs/constraints.md`` has all bounds of runs and all reasons of lanes.
    ``reason_of``: why a lane granted no more permits when it was asked last. Runs with calls in flight may be
    among them.
    """
    delayed = {run.ref for run in backlog.runs() if _awaits_rows(run)}
    others = set[RunRef]()
    for ref, is_meant in _queued(backlog, reason_of):
        (delayed if is_meant else others).add(ref)
    return frozenset(delayed - others)


def _queued(backlog: Backlog, reason_of: Callable[[str], str]) -> Iterator[tuple[RunRef, bool]]:
    """Runs with queued jobs, once for each lane, and whether they are meant to wait there."""
    for name, lane in backlog.lanes():
        shut = reason_of(name) in MEANT_ON_LANES
        yield from ((ref, shut or bound in MEANT_BY_USERS) for ref, bound in lane.bounds())


def _awaits_rows(run: ActiveRun) -> bool:
    """Whether an open run has fed all rows so far, and waits for its client to add more."""
    return run.open and run.caught_up and run.plan.spec.source is None
