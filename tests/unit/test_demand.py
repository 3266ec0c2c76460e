"""How many slots lanes could fill: no more than work, windows and rates allow, whatever waits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from prometheus_client.metrics_core import Metric
from redis import Redis

from fairlane.store.read.demand import slots_needed, slots_needed_in_all
from fairlane.store.write.lanes.lane_view import AxisView, Hold, LaneView, Places
from fairlane.store.write.permits import Offer
from fairlane.store.write.workers import WorkerInfo
from fairlane.telemetry.metrics_server import LabelValues
from fairlane_scheduler.monitoring.deployment_metrics import demand_families
from fairlane_scheduler.monitoring.metrics import LeaderSample
from tests.support.command_line import CommandLine
from tests.support.deployment import Deployment
from tests.support.idle_lane import IDLE

LANE = "sim:fast"


def lane(**changes: Any) -> LaneView:
    """A lane that waits for slots, and has no limit."""
    requests, day = changes.pop("requests", AxisView()), changes.pop("day", AxisView())
    most = changes.pop("most", None)
    axes = {**IDLE.axes, "requests": requests, "day": day}
    return replace(IDLE, **{"reason": "slots", "axes": axes, "places": Places(most)} | changes)


def test_without_limits_all_that_could_start_needs_a_slot() -> None:
    assert slots_needed(lane(in_flight=10), 500) == 510
    assert slots_needed(lane(in_flight=10), 0) == 10


def test_a_rate_needs_as_many_slots_as_calls_start_before_the_first_ends() -> None:
    # 600 a minute of 2.5 s each are 25 at once, whatever waits.
    rate = AxisView(allowed=600.0, level=0.0)
    assert slots_needed(lane(in_flight=5, requests=rate, latency_ms=2500.0), 10_000) == 25
    assert slots_needed(lane(in_flight=5, requests=rate, latency_ms=2500.0), 3) == 8


def test_what_a_bucket_holds_may_start_at_once() -> None:
    rate = AxisView(allowed=600.0, level=40.0)
    assert slots_needed(lane(requests=rate, latency_ms=1000.0), 10_000) == 50


def test_a_lane_whose_latency_nobody_knows_needs_a_slot_to_find_out() -> None:
    rate = AxisView(allowed=6.0, level=0.2)
    assert slots_needed(lane(requests=rate), 10_000) == 1


def test_a_window_is_never_exceeded() -> None:
    assert slots_needed(lane(in_flight=7, most=8), 500) == 8


def test_a_ramp_needs_less() -> None:
    rate = AxisView(allowed=600.0, level=0.0)
    assert slots_needed(lane(requests=rate, latency_ms=10_000.0, ramp=0.5), 10_000) == 50


@pytest.mark.parametrize("reason", ["requests", "tokens", "window", "gap", "reserved"])
def test_what_the_lane_itself_holds_back_needs_no_slot(reason: str) -> None:
    assert slots_needed(lane(in_flight=12, reason=reason), 10_000) == 12


@pytest.mark.parametrize("reason", ["paused", "parked", "circuit", "blocked"])
def test_a_lane_that_is_shut_needs_what_is_in_flight(reason: str) -> None:
    assert slots_needed(lane(in_flight=3, shut=Hold(reason)), 10_000) == 3


def test_a_day_that_is_nearly_used_up_needs_what_is_left_of_it() -> None:
    assert slots_needed(lane(in_flight=2, day=AxisView(allowed=1000.0, level=5.0)), 10_000) == 7


def test_together_lanes_need_no_more_than_may_be_in_flight() -> None:
    assert slots_needed_in_all([300, 400], 1000) == 700
    assert slots_needed_in_all([300, 900], 1000) == 1000


def samples(metric: Metric) -> dict[tuple[str, ...], float]:
    return {tuple(sample.labels.values()): sample.value for sample in metric.samples}


def test_metrics_report_it_by_lane_and_in_all() -> None:
    views = [lane(in_flight=1), replace(lane(in_flight=2), lane="sim:other")]
    leader_sample = LeaderSample(ready={views[0].lane: 30, "sim:other": 5}, known=True)
    each, total = demand_families(views, leader_sample, LabelValues(10), 20)
    assert samples(each) == {(views[0].lane,): 31, ("sim:other",): 7}
    assert samples(total) == {(): 20}


def test_where_nothing_is_known_no_demand_is_reported() -> None:
    each, total = demand_families((), LeaderSample(), LabelValues(10), 20)
    assert (samples(each), samples(total)) == ({}, {})


def test_without_a_worker_the_lane_that_waits_for_one_is_seen(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=30, requests_per_minute=0)
    granted = d.lanes.grant(
        LANE, d.epoch, [Offer(ref, 30)], room=0, max_in_flight=99, lease_ms=9000, now_ms=d.now_ms
    )
    assert granted is not None
    assert granted.permits == []
    assert slots_needed(d.lanes.view(LANE, d.now_ms), 30) == 30


def test_a_lane_at_its_rate_needs_no_more_than_it_uses(real_redis: Redis) -> None:
    d = Deployment(real_redis)
    ref = d.queued_lane(jobs=60, requests_per_minute=60)
    taken = len(d.take(ref, 60))
    assert slots_needed(d.lanes.view(LANE, d.now_ms), 60 - taken) == taken


def test_capacity_compares_slots_with_what_lanes_could_fill(real_redis: Redis) -> None:
    cli = CommandLine(real_redis)
    cli.submitted(40)
    for worker, stopping in (("a", False), ("b", True)):
        info = WorkerInfo(worker, 5, (LANE,), "1", 1, "h", 0, busy=2, stopping=stopping)
        cli.stage.deployment.workers.beat(worker, info, [], 1000, changed=True).run(real_redis)

    found = cli.json("capacity")

    assert (found["workers"], found["slots"], found["free"]) == (1, 5, 3)
    assert found["needed"] == found["lanes"][LANE] == 40
    assert "needed" in cli.out("capacity")
