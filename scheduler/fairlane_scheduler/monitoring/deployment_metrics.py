"""Metrics of the whole deployment, made at each scrape from the leader's last sample."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from fairlane.model.job import JobState
from fairlane.store.write.leader import Leader
from fairlane.telemetry.metrics_server import LabelValues
from fairlane_scheduler.monitoring.deployment_sampler import DeploymentSample, DeploymentSampler
from fairlane_scheduler.monitoring.lane_metrics import demand_families, lane_families, queue_families
from fairlane_scheduler.monitoring.metrics import LeaderSample, SchedulerMetrics


class DeploymentMetrics(Collector):
    """While another scheduler leads, families have no samples, so that nothing counts twice."""

    def __init__(
        self,
        leader: Leader,
        metrics: SchedulerMetrics,
        sampler: DeploymentSampler,
        unmoved: Callable[[], tuple[int, float]] = lambda: (0, 0.0),
    ) -> None:
        """``unmoved``: runs that wait for the archive, and the seconds for which the first has been due."""
        self._leader, self._metrics, self._sampler, self._unmoved = leader, metrics, sampler, unmoved

    def describe(self) -> Iterable[Metric]:
        """Nothing, so that registering collects nothing: see `Collector`."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Every family."""
        yield _gauge("scheduler_is_leader", "Whether this scheduler leads", int(self._leader.leads))
        yield _gauge("scheduler_leader_epoch", "Its term; 0 while another leads", self._leader.epoch)
        yield _gauge("redis_reachable", "Whether the last look succeeded", int(self._sampler.reachable))
        leads, evicts = self._leader.leads, self._sampler.evicts
        yield _gauge(
            "redis_evicts",
            "Whether Redis would delete parts of runs",
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
        yield _gauge("runs_held", "Runs with jobs that refusals hold", held)
        yield from _workers(sample)
        yield _labelled("team_waiting", "Jobs that could start", "team", leader_sample.waiting)
        yield _labelled("team_weight", "What its share is in proportion to", "team", leader_sample.weights)
        yield from _budgets(leader_sample, self._metrics.budgets)
        runs, late_s = self._unmoved() if self._leader.leads else (None, None)
        yield _gauge("archive_waiting_runs", "Finished runs that are due and not moved", runs)
        yield _gauge("archive_late_seconds", "How long the first of them has been due", late_s)


def _runs(sample: DeploymentSample | None) -> Iterator[Metric]:
    states, jobs = dict[str, int](), dict[str, int]()
    if sample is not None:
        states = {"running": sample.runs.running, "paused": sample.runs.paused}
        jobs = {state.value: sample.runs.jobs.get(state, 0) for state in JobState}
    yield _labelled("runs", "Runs that are not finished", "state", states)
    yield _labelled("jobs", "Jobs of these runs", "state", jobs)
    progress, standstill = (sample.runs.progress, sample.runs.standstill_s) if sample else (None, None)
    yield _gauge("runs_progress_ratio", "Share of these jobs that is over", progress)
    yield _gauge("runs_standstill_seconds", "The longest that no job of a run has ended", standstill)


def _workers(sample: DeploymentSample | None) -> Iterator[Metric]:
    infos = [beat.info for beat in sample.workers] if sample else []
    states = {"serving": 0, "stopping": 0} if sample else {}
    for info in infos:
        states["stopping" if info.stopping else "serving"] += 1
    yield _labelled("workers", "Workers that beat", "state", states)
    serving = [info for info in infos if not info.stopping]
    slots = sum(info.slots for info in serving) if sample else None
    yield _gauge("workers_slots", "Calls that they run at once", slots)
    yield _gauge("workers_busy", "Calls in hand", sum(info.busy for info in infos) if sample else None)


def _budgets(leader_sample: LeaderSample, names: LabelValues) -> Iterator[Metric]:
    labels = ("team", "lane", "per", "unit")
    used = GaugeMetricFamily("fairlane_budget_used", "Used of it in its period", labels=labels)
    most = GaugeMetricFamily("fairlane_budget_limit", "The most that may be used", labels=labels)
    for each in leader_sample.budgets:
        values = (each.team, each.lane, each.per, each.unit)
        if names.of(*values) == values:  # a sum of dollars and tokens has no meaning
            used.add_metric(values, each.used)
            most.add_metric(values, each.most)
    yield used
    yield most


def _gauge(name: str, documentation: str, value: float | None) -> Metric:
    family = GaugeMetricFamily(f"fairlane_{name}", documentation)
    if value is not None:
        family.add_metric((), value)
    return family


def _labelled(name: str, documentation: str, label: str, values: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily(f"fairlane_{name}", documentation, labels=(label,))
    for value, number in values.items():
        family.add_metric((value,), number)
    return family
