"""Buckets whose headers show what is left: the lane spends what they have saved, at the cost of few 429s."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from fairlane.lab.rehearsal.recording import record
from fairlane.lab.rehearsal.scenario import Scenario
from fairlane.lab.rehearsal.virtual.simulated_provider import ADMITTED
from fairlane.store.connection.connect import RedisClient

QUICK: dict[str, Any] = {"headers": "full", "latency_ms": 700, "latency_sigma": 0.4}


class Play(NamedTuple):
    """The time until the last call is admitted, in minutes of the rate, what was used, and the 429s."""

    minutes: float
    output_tokens: int
    refused: int


def _play(redis: RedisClient, load: dict[str, int], lane: dict[str, float], **model: Any) -> Play:
    scenario = Scenario.model_validate(
        {
            "name": "buckets", "models": {"model": QUICK | model}, "lanes": {"model": lane} if lane else {},
            "loads": [load], "workers": 2, "minutes": None, "warm_up_minutes": 0,
        }
    )  # fmt: skip
    recording = record(scenario, redis)
    (lane_record,) = recording.lanes.values()
    arrivals = lane_record.log.arrivals
    admitted = [call for call in arrivals if call.verdict == ADMITTED]
    assert len(admitted) == load["jobs"]
    minutes = (max(call.at_ms for call in admitted) - recording.began_ms) / 60_000
    return Play(minutes, sum(call.output_tokens for call in admitted), len(arrivals) - len(admitted))


def _play_requests(
    redis: RedisClient, per_minute: int, jobs: int, lane: dict[str, float], **model: Any
) -> Play:
    return _play(redis, {"jobs": jobs}, lane, requests_per_minute=per_minute, **model)


@pytest.mark.parametrize("per_minute", [15, 60, 500, 1500])
@pytest.mark.slow
def test_a_bucket_that_is_shown_full_is_spent_besides_the_rate(
    real_redis: RedisClient, per_minute: int
) -> None:
    """Two minutes of the rate and the minute that was saved: one after the other, they take three."""
    found = _play_requests(real_redis, per_minute, 3 * per_minute, {}, burst_seconds=60)
    assert found.minutes <= 2.15
    assert found.refused == 0


@pytest.mark.parametrize("per_minute", [60, 500, 1500])
@pytest.mark.slow
def test_a_minutes_view_of_a_shallow_bucket_costs_few_429s(real_redis: RedisClient, per_minute: int) -> None:
    found = _play_requests(real_redis, per_minute, 3 * per_minute, {}, burst_seconds=2, remaining_of="minute")
    assert found.minutes <= 3.2
    assert found.refused <= 3 + 0.01 * 3 * per_minute


@pytest.mark.parametrize("configured", [True, False])
@pytest.mark.parametrize("per_minute", [30, 50, 60])
@pytest.mark.slow
def test_a_bucket_of_one_call_is_used_without_many_429s(
    real_redis: RedisClient, per_minute: int, configured: bool
) -> None:
    """Jitter on the way brings some calls of an even rate too early: that does not show a lower limit."""
    lane = {"requests_per_minute": float(per_minute)} if configured else {}
    found = _play_requests(real_redis, per_minute, 4 * per_minute, lane, burst_seconds=1)
    assert found.minutes <= 4 * 1.1
    assert found.refused <= 0.04 * 4 * per_minute


LONG: dict[str, Any] = {"output_tokens": 500, "output_tokens_stddev": 250, "latency_ms": 10_500}
OUTPUT = {"output_tokens_per_minute": 30_000}


@pytest.mark.parametrize("headers", ["full", "ratelimit"])
@pytest.mark.parametrize("depth_s", [20, 60])
@pytest.mark.slow
def test_lengths_that_differ_cost_less_rate_where_headers_show_a_deeper_bucket(
    real_redis: RedisClient, depth_s: int, headers: str
) -> None:
    """The configured burst of a second holds one answer: a bucket of that depth would need a margin."""
    load = {"jobs": 120, "input_tokens": 50, "max_tokens": 1024}
    model = {**OUTPUT, **LONG, "headers": headers, "burst_seconds": depth_s}
    found = _play(real_redis, load, OUTPUT, **model)
    assert found.minutes * 30_000 <= 1.2 * found.output_tokens
    assert found.refused == 0


@pytest.mark.slow
def test_a_minutes_view_of_a_configured_token_limit_costs_few_429s(real_redis: RedisClient) -> None:
    load = {"jobs": 240, "input_tokens": 50, "max_tokens": 1024}
    model = {**OUTPUT, **LONG, "burst_seconds": 2}
    shown = _play(real_redis, load, OUTPUT, **model, remaining_of="minute")
    silent = _play(real_redis, load, OUTPUT, **{**model, "headers": "none"})
    assert shown.refused <= silent.refused + 5
