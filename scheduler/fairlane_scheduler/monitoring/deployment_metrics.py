"""Metrics of the whole deployment, made at each scrape from the leader's last sample.

Of lanes: limits and their source, calls in flight, circuit, queues, and slots that they could fill.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TypeAlias

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from fairlane.model.job import JobState
from fairlane.store.read.demand import slots_needed, slots_needed_in_all
from fairlane.store.write.lanes.lane_view import AxisView, LaneView
from fairlane.store.write.leader import Leader
from fairlane.telemetry.metrics_server import OTHER, LabelValues
from fairlane_scheduler.monitoring.deployment_sampler import DeploymentSample, DeploymentSampler
from fairlane_scheduler.monitoring.metrics import LeaderSample, SchedulerMetrics

CIRCUIT = ("closed", "open", "half-open")
"""States of a lane's circuit breaker."""

DAY = "day"

Sums: TypeAlias = defaultdict[tuple[str, ...], float]


class DeploymentMetrics(Collector):
    """Exports the leader's sample. Families of a standby are empty, so that nothing counts twice."""

    def __init__(
        self,
        leader: Leader,
        metrics: SchedulerMetrics,
        sampler: DeploymentSampler,
        unmoved: Callable[[], tuple[int, float]] = lambda: (0, 0.0),
    ) -> None:
        """``unmoved``: how many runs wait for the archive, and for how many seconds the first is overdue."""
        self._leader, self._metrics, self._sampler, self._unmoved = leader, metrics, sampler, unmoved

    def describe(self) -> Iterable[Metric]:
        """No family, so that registering collects nothing: see `Collector`."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Every family."""
        yield _gauge("scheduler_is_leader", "Whether this scheduler leads", int(self._leader.leads))
        yield _gauge("scheduler_leader_epoch", "Epoch of its term; 0 on a standby", self._leader.epoch)
        yield _gauge("redis_reachable", "Whether Redis answered last", int(self._sampler.reachable))
        leads, evicts = self._leader.leads, self._sampler.evicts
        yield _gauge(
            "redis_evicts",
            "Whether Redis may evict keys of runs",
            None if evicts is None or not leads else int(evicts),
        )
        ahead_s = self._sampler.ahead_s if leads else None
        yield _gauge("clock_ahead_seconds", "How far the deployment's time is ahead of Redis' clock", ahead_s)
        sample = self._sampler.sample if self._leader.leads else None
        leader_sample = self._metrics.leader_sample if self._leader.leads else LeaderSample()
        views = sample.lanes if sample else ()
        yield from lane_families(views, self._metrics.lanes)
        yield from queue_families(leader_sample, self._metrics.lanes)
        yield from demand_families(views, leader_sample, self._metrics.lanes, self._metrics.max_in_flight)
        yield from _runs(sample)
        held = leader_sample.held_runs if leader_sample.known else None
        yield _gauge("runs_held", "Runs with jobs that are held after refusals", held)
        yield from _workers(sample)
        yield _labelled("team_waiting", "Jobs of the team that could start", "team", leader_sample.waiting)
        yield _labelled("team_weight", "Weight of a team's share", "team", leader_sample.weights)
        yield from _budgets(leader_sample, self._metrics.budgets)
        runs, late_s = self._unmoved() if self._leader.leads else (None, None)
        yield _gauge("archive_waiting_runs", "Finished runs that are due and not archived", runs)
        yield _gauge("archive_late_seconds", "For how long the first of them has been overdue", late_s)


def _runs(sample: DeploymentSample | None) -> Iterator[Metric]:
    states, jobs = dict[str, int](), dict[str, int]()
    if sample is not None:
        states = {"running": sample.runs.running, "paused": sample.runs.paused}
        jobs = {state.value: sample.runs.jobs.get(state, 0) for state in JobState}
    yield _labelled("runs", "Runs that are not finished", "state", states)
    yield _labelled("jobs", "Jobs of these runs", "state", jobs)
    progress, standstill = (sample.runs.progress, sample.runs.standstill_s) if sample else (None, None)
    yield _gauge("runs_progress_ratio", "Share of these jobs that have ended", progress)
    yield _gauge("runs_standstill_seconds", "Longest time in which no job of a run has ended", standstill)


def _workers(sample: DeploymentSample | None) -> Iterator[Metric]:
    infos = [beat.info for beat in sample.workers] if sample else []
    states = {"serving": 0, "stopping": 0} if sample else {}
    for info in infos:
        states["stopping" if info.stopping else "serving"] += 1
    yield _labelled("workers", "Workers with a recent heartbeat", "state", states)
    serving = [info for info in infos if not info.stopping]
    slots = sum(info.slots for info in serving) if sample else None
    yield _gauge("workers_slots", "Calls that these workers can run at once", slots)
    yield _gauge("workers_busy", "Slots in use", sum(info.busy for info in infos) if sample else None)


def _budgets(leader_sample: LeaderSample, names: LabelValues) -> Iterator[Metric]:
    labels = ("team", "lane", "per", "unit")
    used = _family("budget_used", "Used of the budget in its period", labels)
    most = _family("budget_limit", "Most of the budget's unit that may be used in its period", labels)
    for each in leader_sample.budgets:
        values = (each.team, each.lane, each.per, each.unit)
        if names.of(*values) == values:  # a sum of dollars and tokens has no meaning
            used.add_metric(values, each.used)
            most.add_metric(values, each.most)
    yield used
    yield most


def lane_families(views: Sequence[LaneView], names: LabelValues) -> Iterator[Metric]:
    """Lanes beyond the named ones are summed up if a sum has a meaning, else left out."""
    named = [(names.of(view.lane)[0], view) for view in views]
    yield from _limits([each for each in named if each[0] != OTHER])
    yield from _sums(named)


def demand_families(
    views: Sequence[LaneView], leader_sample: LeaderSample, names: LabelValues, max_in_flight: int
) -> Iterator[Metric]:
    """Slots that lanes could fill, for autoscaling; no samples if unknown, which is not zero demand."""
    each = {view.lane: slots_needed(view, leader_sample.ready.get(view.lane, 0)) for view in views}
    by_name: dict[str, int] = defaultdict(int)
    for lane, needed in each.items():
        by_name[names.of(lane)[0]] += needed
    yield _labelled("lane_slots_needed", "Slots that the lane could fill now", "lane", by_name)
    total = slots_needed_in_all(each.values(), max_in_flight) if leader_sample.known else None
    yield _gauge("slots_needed", "Slots that all lanes could fill now", total)


def queue_families(leader_sample: LeaderSample, names: LabelValues) -> Iterator[Metric]:
    """Jobs queued on each lane."""
    queued: Sums = defaultdict(float)
    ready: Sums = defaultdict(float)
    for lane, count in leader_sample.queued.items():
        queued[names.of(lane)] += count
        ready[names.of(lane)] += leader_sample.ready[lane]
    yield _family("lane_queue_depth", "Jobs queued", ("lane",), queued)
    yield _family("lane_ready", "Queued jobs that wait for nothing but the lane", ("lane",), ready)


def _limits(named: Sequence[tuple[str, LaneView]]) -> Iterator[Metric]:
    by_axis = ("lane", "axis", "source")
    allowed = _family("lane_allowed_per_minute", "Limit in force, and its source", by_axis)
    limit = _family("lane_limit_per_minute", "Limit by source", by_axis)
    level = _family("lane_level", "Level of the bucket: what may start now", ("lane", "axis"))
    full = _family("lane_level_limit", "Level of the full bucket", ("lane", "axis"))
    allowed_day = _family("lane_allowed_per_day", "Calls a day, and the source", ("lane", "source"))
    limit_day = _family("lane_limit_per_day", "Limit of calls a day by source", ("lane", "source"))
    window = _family("lane_window", "Most calls in flight, and the source", ("lane", "source"))
    for lane, view in named:
        for axis, one in view.axes.items():
            labels = (lane,) if axis == DAY else (lane, axis)
            if one.allowed is not None:
                family = allowed_day if axis == DAY else allowed
                family.add_metric((*labels, one.source or "none"), one.allowed)
            for source, number in _limits_by_source(one):
                (limit_day if axis == DAY else limit).add_metric((*labels, source), number)
            if one.level is not None:
                level.add_metric((lane, axis), one.level)
            if one.full is not None:
                full.add_metric((lane, axis), one.full)
        if view.places.most is not None:
            window.add_metric((lane, view.places.source or "none"), view.places.most)
    yield from (allowed, limit, level, full, allowed_day, limit_day, window)


def _limits_by_source(axis: AxisView) -> Iterator[tuple[str, float]]:
    limits = (("configured", axis.configured), ("headers", axis.reported), ("probed", axis.probed))
    return ((source, number) for source, number in limits if number)


def _sums(named: Iterable[tuple[str, LaneView]]) -> Iterator[Metric]:
    sums: defaultdict[str, Sums] = defaultdict(lambda: defaultdict(float))
    last = sums["last_error_timestamp_seconds"]
    for lane, view in named:
        sums["in_flight"][lane,] += view.in_flight
        sums["granted"][lane,] += view.granted
        sums["returned"][lane,] += view.returned
        if view.last_error_ms is not None:
            last[lane,] = max(last[lane,], view.last_error_ms / 1000)
        for state in CIRCUIT:
            sums["circuit_state"][lane, state] += view.circuit == state
        if view.shut is not None:
            sums["shut"][lane, view.shut.reason] += 1
        results = {"succeeded": view.succeeded, "rate_limited": view.limited, "failed": view.failed}
        for result, count in results.items():
            sums["calls"][lane, result] += count
    for kind, name, documentation, *more in (
        (GaugeMetricFamily, "in_flight", "Attempts that hold a permit"),
        (GaugeMetricFamily, "circuit_state", "1 for the state of the lane's circuit", "state"),
        (GaugeMetricFamily, "shut", "1 for the reason why the lane starts nothing now", "reason"),
        (CounterMetricFamily, "granted", "Permits granted by all schedulers"),
        (CounterMetricFamily, "returned", "Permits that were returned unused"),
        (CounterMetricFamily, "calls", "Calls that ended, by result", "result"),
        (GaugeMetricFamily, "last_error_timestamp_seconds", "When a call last failed, by Redis' clock"),
    ):
        yield _family(f"lane_{name}", documentation, ("lane", *more), sums[name], kind)


def _gauge(name: str, documentation: str, value: float | None) -> Metric:
    return _family(name, documentation, (), {} if value is None else {(): value})


def _labelled(name: str, documentation: str, label: str, values: Mapping[str, float]) -> Metric:
    return _family(name, documentation, (label,), {(value,): number for value, number in values.items()})


def _family(
    name: str,
    documentation: str,
    labels: Sequence[str],
    samples: Mapping[tuple[str, ...], float] = MappingProxyType({}),
    kind: type[GaugeMetricFamily | CounterMetricFamily] = GaugeMetricFamily,
) -> GaugeMetricFamily | CounterMetricFamily:
    family = kind(f"fairlane_{name}", documentation, labels=labels)
    for values, number in samples.items():
        family.add_metric(values, number)
    return family
