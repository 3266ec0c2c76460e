"""Metrics of lanes: limits and their source, calls in flight, circuit, queues, and slots they could fill."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeAlias

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric

from fairlane.store.read.demand import slots_needed, slots_needed_in_all
from fairlane.store.write.lanes.lane_view import AxisView, LaneView
from fairlane.telemetry.metrics_server import OTHER, LabelValues
from fairlane_scheduler.monitoring.metrics import LeaderSample

CIRCUIT = ("closed", "open", "half-open")
"""States of a lane's circuit breaker."""

DAY = "day"

Sums: TypeAlias = defaultdict[tuple[str, ...], float]


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
    family = GaugeMetricFamily("fairlane_lane_slots_needed", "Slots it could fill now", labels=("lane",))
    for name, needed in by_name.items():
        family.add_metric((name,), needed)
    yield family
    total = GaugeMetricFamily("fairlane_slots_needed", "Slots that all lanes could fill now")
    if leader_sample.known:
        total.add_metric((), slots_needed_in_all(each.values(), max_in_flight))
    yield total


def queue_families(leader_sample: LeaderSample, names: LabelValues) -> Iterator[Metric]:
    """Jobs queued on each lane."""
    queued: Sums = defaultdict(float)
    ready: Sums = defaultdict(float)
    for lane, count in leader_sample.queued.items():
        queued[names.of(lane)] += count
        ready[names.of(lane)] += leader_sample.ready[lane]
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
    said = (("configured", axis.configured), ("headers", axis.reported), ("probed", axis.probed))
    return ((source, number) for source, number in said if number)


def _sums(named: Iterable[tuple[str, LaneView]]) -> Iterator[Metric]:
    in_flight: Sums = defaultdict(float)
    circuit: Sums = defaultdict(float)
    shut: Sums = defaultdict(float)
    granted: Sums = defaultdict(float)
    returned: Sums = defaultdict(float)
    ended: Sums = defaultdict(float)
    last: Sums = defaultdict(float)
    for lane, view in named:
        in_flight[lane,] += view.in_flight
        granted[lane,] += view.granted
        returned[lane,] += view.returned
        if view.last_error_ms is not None:
            last[lane,] = max(last[lane,], view.last_error_ms / 1000)
        for state in CIRCUIT:
            circuit[lane, state] += view.circuit == state
        if view.shut is not None:
            shut[lane, view.shut.reason] += 1
        results = {"succeeded": view.succeeded, "rate_limited": view.limited, "failed": view.failed}
        for result, count in results.items():
            ended[lane, result] += count
    yield _gauge("in_flight", "Attempts that hold a permit", ("lane",), in_flight)
    yield _gauge("circuit_state", "1: its circuit is in this state", ("lane", "state"), circuit)
    yield _gauge("shut", "1: nothing starts now, for this reason", ("lane", "reason"), shut)
    yield _counter("granted", "Permits, by all schedulers", ("lane",), granted)
    yield _counter("returned", "Permits that came too late to be used", ("lane",), returned)
    yield _counter("calls", "Calls that ended, as its controller counts", ("lane", "result"), ended)
    yield _gauge("last_error_timestamp_seconds", "When a call failed last, by Redis's clock", ("lane",), last)


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
