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
    """The time until the last call is admitted, in minutes of the rate, and the calls that were refused."""

    minutes: float
    refused: int


def _play(redis: RedisClient, per_minute: int, jobs: int, lane: dict[str, float], **model: Any) -> Play:
    limits = {"requests_per_minute": per_minute, **QUICK, **model}
    scenario = Scenario.model_validate(
        {
            "name": "buckets", "models": {"model": limits}, "lanes": {"model": lane} if lane else {},
            "loads": [{"jobs": jobs}], "workers": 2, "minutes": None, "warm_up_minutes": 0,
        }
    )  # fmt: skip
    recording = record(scenario, redis)
    (lane_record,) = recording.lanes.values()
    admitted = [call.at_ms for call in lane_record.log.arrivals if call.verdict == ADMITTED]
    assert len(admitted) == jobs
    minutes = (max(admitted) - recording.began_ms) / 60_000
    return Play(minutes, len(lane_record.log.arrivals) - jobs)


@pytest.mark.parametrize("per_minute", [15, 60, 500, 1500])
@pytest.mark.slow
def test_a_bucket_that_is_shown_full_is_spent_besides_the_rate(
    real_redis: RedisClient, per_minute: int
) -> None:
    """Two minutes of the rate and the minute that was saved: one after the other, they take three."""
    found = _play(real_redis, per_minute, 3 * per_minute, {}, burst_seconds=60)
    assert found.minutes <= 2.15
    assert found.refused == 0


@pytest.mark.parametrize("per_minute", [60, 500, 1500])
@pytest.mark.slow
def test_a_minutes_view_of_a_shallow_bucket_costs_few_429s(real_redis: RedisClient, per_minute: int) -> None:
    found = _play(real_redis, per_minute, 3 * per_minute, {}, burst_seconds=2, remaining_of="minute")
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
    found = _play(real_redis, per_minute, 4 * per_minute, lane, burst_seconds=1)
    assert found.minutes <= 4 * 1.1
    assert found.refused <= 0.04 * 4 * per_minute
