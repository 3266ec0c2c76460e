"""How lanes stand, as metrics: what each allows and who says so, what is in flight, what shuts it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from fairlane.admission.views import AxisView, LaneView
from fairlane.label_values import OTHER, LabelValues
from fairlane_scheduler.monitoring.metrics import Ledger

CIRCUIT = ("closed", "open", "half_open")
"""States of a lane's circuit breaker."""

DAY = "day"

Sums: TypeAlias = defaultdict[tuple[str, ...], float]


def lane_families(views: Sequence[LaneView], names: LabelValues) -> Iterator[Metric]:
    """Lanes beyond those that are told by name are added up where a sum has a meaning, else left out."""
    named = [(names.of(view.lane)[0], view) for view in views]
    yield from _limits([each for each in named if each[0] != OTHER])
    yield from _sums(named)


def queue_families(ledger: Ledger, names: LabelValues) -> Iterator[Metric]:
    """What waits on each lane."""
    queued: Sums = defaultdict(float)
    ready: Sums = defaultdict(float)
    for lane, count in ledger.queued.items():
        queued[names.of(lane)] += count
        ready[names.of(lane)] += ledger.ready[lane]
    yield _gauge("queue_depth", "Jobs queued", ("lane",), queued)
    yield _gauge("ready", "Those that only the lane holds back", ("lane",), ready)


def _limits(named: Sequence[tuple[str, LaneView]]) -> Iterator[Metric]:
    by_axis = ("lane", "axis", "source")
    allowed = _empty("allowed_per_minute", "What it keeps to now, and who says so", by_axis)
    limit = _empty("limit_per_minute", "What each source says", by_axis)
    level = _empty("level", "What may start now", ("lane", "axis"))
    full = _empty("level_limit", "The most that may start at once", ("lane", "axis"))
    allowed_day = _empty("allowed_per_day", "What it keeps to now, and who says so", ("lane", "source"))
    limit_day = _empty("limit_per_day", "What each source says", ("lane", "source"))
    window = _empty("window", "The most calls in flight, and who says so", ("lane", "source"))
    for lane, view in named:
        for axis, one in view.axes.items():
            labels = (lane,) if axis == DAY else (lane, axis)
            if one.allowed is not None:
                family = allowed_day if axis == DAY else allowed
                family.add_metric((*labels, one.source or "none"), one.allowed)
            for source, number in _said(one):
                (limit_day if axis == DAY else limit).add_metric((*labels, source), number)
            if one.level is not None:
                level.add_metric((lane, axis), one.level)
            if one.full is not None:
                full.add_metric((lane, axis), one.full)
        if view.places.most is not None:
            window.add_metric((lane, view.places.source or "none"), view.places.most)
    yield from (allowed, limit, level, full, allowed_day, limit_day, window)


def _said(axis: AxisView) -> Iterator[tuple[str, float]]:
    said = (("configured", axis.stated), ("headers", axis.told), ("probed", axis.probed))
    return ((source, number) for source, number in said if number)


def _sums(named: Iterable[tuple[str, LaneView]]) -> Iterator[Metric]:
    flying: Sums = defaultdict(float)
    circuit: Sums = defaultdict(float)
    shut: Sums = defaultdict(float)
    granted: Sums = defaultdict(float)
    ended: Sums = defaultdict(float)
    for lane, view in named:
        flying[lane,] += view.in_flight
        granted[lane,] += view.granted
        for state in CIRCUIT:
            circuit[lane, state] += view.circuit == state
        if view.shut is not None:
            shut[lane, view.shut.reason] += 1
        results = {"succeeded": view.succeeded, "rate_limited": view.limited, "failed": view.failed}
        for result, count in results.items():
            ended[lane, result] += count
    yield _gauge("in_flight", "Attempts that hold a permit", ("lane",), flying)
    yield _gauge("circuit_state", "1: its circuit is in this state", ("lane", "state"), circuit)
    yield _gauge("shut", "1: nothing starts now, for this reason", ("lane", "reason"), shut)
    yield _counter("granted", "Permits, by all schedulers", ("lane",), granted)
    yield _counter("calls", "Calls that ended, as its controller counts", ("lane", "result"), ended)


def _empty(name: str, documentation: str, labels: Sequence[str]) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"fairlane_lane_{name}", documentation, labels=labels)


def _gauge(name: str, documentation: str, labels: Sequence[str], sums: Sums) -> Metric:
    family = _empty(name, documentation, labels)
    for values, number in sums.items():
        family.add_metric(values, number)
    return family


def _counter(name: str, documentation: str, labels: Sequence[str], sums: Sums) -> Metric:
    family = CounterMetricFamily(f"fairlane_lane_{name}", documentation, labels=labels)
    for values, number in sums.items():
        family.add_metric(values, number)
    return family
