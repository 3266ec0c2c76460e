"""Calls whose answers nothing limits use what a token limit allows, and few of them are refused."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from fairlane.lab.rehearsal.recording import record
from fairlane.lab.rehearsal.scenario import Scenario
from fairlane.lab.rehearsal.virtual.simulated_provider import ADMITTED, Arrival
from fairlane.store.connection.connect import RedisClient

JOBS = 300
STATED = {"output_tokens": 150.0, "output_tokens_stddev": 100.0, "tokens_per_minute": 60_000.0}
HIDDEN = {
    "output_tokens": 100.0, "output_tokens_stddev": 60.0, "headers": "full",
    "input_tokens_per_minute": 60_000.0, "output_tokens_per_minute": 16_000.0,
}  # fmt: skip
BRIEF = {"output_tokens": 20.0, "output_tokens_stddev": 10.0, "output_tokens_per_minute": 16_000.0}


class Play(NamedTuple):
    """The wall time as a multiple of the least that the limits allow, and the refused calls of a thousand."""

    slowdown: float
    refused: float


def play(redis: RedisClient, model: dict[str, Any], seed: int, *, saved_s: float, **lane: float) -> Play:
    """Play 300 jobs without `max_tokens`. ``saved_s``: seconds of the rate that a lane may spend at once."""
    more = {"latency_ms": 500.0, "latency_sigma": 0.4} | model
    scenario = Scenario.model_validate(
        {
            "name": "lengths", "models": {"model": more}, "lanes": {"model": lane} if lane else {},
            "loads": [{"jobs": JOBS, "input_tokens": 200, "max_tokens": None}],
            "workers": 2, "minutes": None, "warm_up_minutes": 0, "seed": seed,
        }
    )  # fmt: skip
    recording = record(scenario, redis)
    (lane_record,) = recording.lanes.values()
    arrivals = lane_record.log.arrivals
    admitted = [arrival for arrival in arrivals if arrival.verdict == ADMITTED]
    assert len(admitted) == JOBS
    least_s = _least_s(scenario.models["model"].model_dump(), admitted) - saved_s + more["latency_ms"] / 1000
    taken_s = (lane_record.log.last_ms - recording.began_ms) / 1000
    return Play(taken_s / least_s, 1000 * (len(arrivals) - JOBS) / JOBS)


def _least_s(model: dict[str, Any], admitted: list[Arrival]) -> float:
    """Seconds in which the limits earn what these calls took."""
    taken = {
        "tokens": sum(arrival.input_tokens + arrival.output_tokens for arrival in admitted),
        "output_tokens": sum(arrival.output_tokens for arrival in admitted),
        "input_tokens": sum(arrival.input_tokens for arrival in admitted),
    }
    rates = {axis: model[f"{axis}_per_minute"] for axis in taken}
    return max(60 * taken[axis] / rate for axis, rate in rates.items() if rate)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_a_stated_limit_is_used_although_no_call_states_its_answers_length(
    real_redis: RedisClient, seed: int
) -> None:
    played = play(real_redis, STATED, seed, saved_s=1.0, tokens_per_minute=60_000, burst_seconds=1)
    assert played.slowdown <= 1.08
    assert played.refused <= 10


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_a_reported_limit_a_minute_deep_is_used(real_redis: RedisClient, seed: int) -> None:
    played = play(real_redis, HIDDEN | {"burst_seconds": 60.0}, seed, saved_s=0.0)
    assert played.slowdown <= 1.03
    assert played.refused <= 2


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_a_reported_limit_of_less_than_three_calls_is_used_for_the_most_part(
    real_redis: RedisClient, seed: int
) -> None:
    """A bucket of 267 tokens and calls of 100 ± 60: decision 0059 says what is possible."""
    played = play(real_redis, HIDDEN, seed, saved_s=1.0)
    assert played.slowdown <= 1.42
    assert played.refused <= 20


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_a_lane_starts_calls_beside_long_ones_whose_lengths_vary_by_more_than_its_bucket(
    real_redis: RedisClient, seed: int
) -> None:
    """A second of the limit is 133 tokens, and answers have 500 ± 400."""
    model = {
        "output_tokens": 500.0, "output_tokens_stddev": 400.0, "output_tokens_per_minute": 8000.0,
        "input_tokens_per_minute": 600_000.0, "latency_ms": 15_000.0, "burst_seconds": 60.0,
    }  # fmt: skip
    played = play(real_redis, model, seed, saved_s=1.0, output_tokens_per_minute=8000, burst_seconds=1)
    assert played.slowdown <= 1.4
    assert played.refused <= 20


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
def test_waits_beyond_a_full_bucket_shrink_while_no_call_is_refused(
    real_redis: RedisClient, seed: int
) -> None:
    """A second of the limit holds three answers of 500 ± 450, and the provider saves a minute."""
    model = {
        "output_tokens": 500.0, "output_tokens_stddev": 450.0, "output_tokens_per_minute": 90_000.0,
        "input_tokens_per_minute": 450_000.0, "latency_ms": 4500.0, "burst_seconds": 60.0,
    }  # fmt: skip
    played = play(real_redis, model, seed, saved_s=1.0, output_tokens_per_minute=90_000, burst_seconds=1)
    assert played.slowdown <= 1.33
    assert played.refused <= 20


@pytest.mark.slow
def test_a_guess_longer_than_a_bucket_lets_more_than_one_call_through_at_a_time(
    real_redis: RedisClient,
) -> None:
    model = BRIEF | {"latency_ms": 3000.0}
    played = play(real_redis, model, 0, saved_s=1.0, output_tokens_per_minute=16_000, burst_seconds=1)
    assert played.slowdown <= 1.5
    assert played.refused <= 10
