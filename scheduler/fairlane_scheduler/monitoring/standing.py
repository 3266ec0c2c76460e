"""How the deployment stands, as metrics: made at each scrape of what the leader knows already."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from fairlane.job import JobState
from fairlane.label_values import LabelValues
from fairlane_scheduler.leader import Leader
from fairlane_scheduler.monitoring.demand import demand_families
from fairlane_scheduler.monitoring.metrics import Ledger, SchedulerMetrics
from fairlane_scheduler.monitoring.standing_lanes import lane_families, queue_families
from fairlane_scheduler.monitoring.survey import Picture, Survey


class Standing(Collector):
    """Families are there without samples while another scheduler leads, so that nobody counts twice."""

    def __init__(self, leader: Leader, metrics: SchedulerMetrics, survey: Survey) -> None:
        self._leader, self._metrics, self._survey = leader, metrics, survey

    def describe(self) -> Iterable[Metric]:
        """None is made when it is registered: see `Collector`."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """Every family."""
        yield _gauge("scheduler_is_leader", "Whether this scheduler leads", int(self._leader.leads))
        yield _gauge("scheduler_leader_epoch", "Its term; 0 while another leads", self._leader.epoch)
        yield _gauge("redis_reachable", "Whether the last look succeeded", int(self._survey.reachable))
        picture = self._survey.picture if self._leader.leads else None
        ledger = self._metrics.ledger if self._leader.leads else Ledger()
        views = picture.lanes if picture else ()
        yield from lane_families(views, self._metrics.lanes)
        yield from queue_families(ledger, self._metrics.lanes)
        yield from demand_families(views, ledger, self._metrics.lanes, self._metrics.max_in_flight)
        yield from _runs(picture)
        yield from _workers(picture)
        yield _labelled("team_waiting", "Jobs that could start", "team", ledger.waiting)
        yield _labelled("team_weight", "What its share is in proportion to", "team", ledger.weights)
        yield from _budgets(ledger, self._metrics.budgets)


def _runs(picture: Picture | None) -> Iterator[Metric]:
    states, jobs = dict[str, int](), dict[str, int]()
    if picture is not None:
        states = {"running": picture.runs.running, "paused": picture.runs.paused}
        jobs = {state.value: picture.runs.jobs.get(state, 0) for state in JobState}
    yield _labelled("runs", "Runs that are not finished", "state", states)
    yield _labelled("jobs", "Jobs of these runs", "state", jobs)
    progress, standstill = (picture.runs.progress, picture.runs.standstill_s) if picture else (None, None)
    yield _gauge("runs_progress_ratio", "Share of these jobs that is over", progress)
    yield _gauge("runs_standstill_seconds", "The longest that no job of a run has ended", standstill)


def _workers(picture: Picture | None) -> Iterator[Metric]:
    infos = [beat.info for beat in picture.workers] if picture else []
    states = {"serving": 0, "stopping": 0} if picture else {}
    for info in infos:
        states["stopping" if info.stopping else "serving"] += 1
    yield _labelled("workers", "Workers that beat", "state", states)
    serving = [info for info in infos if not info.stopping]
    slots = sum(info.slots for info in serving) if picture else None
    yield _gauge("workers_slots", "Calls that they run at once", slots)
    yield _gauge("workers_busy", "Calls in hand", sum(info.busy for info in infos) if picture else None)


def _budgets(ledger: Ledger, names: LabelValues) -> Iterator[Metric]:
    labels = ("team", "lane", "per", "unit")
    used = GaugeMetricFamily("fairlane_budget_used", "Used of it in its period", labels=labels)
    most = GaugeMetricFamily("fairlane_budget_limit", "The most that may be used", labels=labels)
    for each in ledger.budgets:
        values = (each.team, each.lane, each.per, each.unit)
        if names.of(*values) == values:  # sums of dollars and tokens of many teams would say nothing
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
