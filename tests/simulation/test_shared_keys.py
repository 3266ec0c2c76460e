"""A lane is not starved by its own shadow: what no other user of its key takes, it uses."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from redis import Redis

from fairlane.lab.rehearsal.figures.measure import measure
from fairlane.lab.rehearsal.recording import Recording, record
from fairlane.lab.rehearsal.scenario import Scenario
from fairlane.lab.simulator.config import SimulatedModel

LEAST = 0.95  # of what is free, from a cold start
SHARED = "shared"
NO_RESET: dict[str, Any] = {"headers": "ratelimit", "reset_header": False}
ON_429: dict[str, Any] = {"headers": "ratelimit", "headers_on": "rejected"}
QUICK, LONG = {"latency_ms": 300}, {"latency_ms": 5000, "latency_sigma": 0.4}
WINDOW = {"requests_per_minute": 60, "shape": "window"}

ALONE: dict[str, dict[str, Any]] = {
    "a proxy's fixed minute": {**WINDOW, **NO_RESET, **QUICK},
    "a proxy's fixed minute, long calls": {**WINDOW, **NO_RESET, **LONG},
    "a sliding minute": {**WINDOW, "shape": "sliding", **NO_RESET, **QUICK},
    "a deep bucket without resets": {**WINDOW, "shape": "bucket", "burst_seconds": 60, **NO_RESET, **QUICK},
    "a minute's view of a bucket": {
        **WINDOW, "shape": "bucket", "burst_seconds": 2, "remaining_of": "minute", **NO_RESET, **QUICK,
    },
    "a window that reports on 429s alone": {**WINDOW, **ON_429, **QUICK},
    "a bucket that reports on 429s alone": {"requests_per_minute": 60, "burst_seconds": 5, **ON_429, **QUICK},
}  # fmt: skip
MINUTES = {"a proxy's fixed minute, long calls": 15.0}  # its first answer, and so its limit, comes late

limits = st.fixed_dictionaries(
    {
        "requests_per_minute": st.sampled_from([30, 60, 120]),
        "shape": st.sampled_from(["bucket", "window", "sliding"]),
        "burst_seconds": st.sampled_from([10, 60]),
        "remaining_of": st.sampled_from(["limit", "minute"]),
        "reset_header": st.booleans(),
        "headers_on": st.sampled_from(["every", "every", "rejected"]),
        "latency_ms": st.sampled_from([200, 1500]),
        "latency_sigma": st.sampled_from([0.0, 0.6]),
    }
)


def _play(redis: Redis, model: dict[str, Any], minutes: float, seed: int = 0, **more: Any) -> Recording:
    scenario = {
        "name": "test",
        "models": {"model": SimulatedModel.model_validate({"windows_from": "start", **model})},
        "minutes": minutes,
        "warm_up_minutes": 0.0,
        "seed": seed,
        **more,
    }
    return record(Scenario.model_validate(scenario), redis)


def _news(recording: Recording) -> list[str]:
    return [news for lane in recording.lanes.values() for _, news in lane.news]


@pytest.mark.parametrize("provider", ALONE)
@pytest.mark.slow(seconds=9)
def test_an_unshared_key_is_used_to_its_limit(real_redis: Redis, provider: str) -> None:
    model, minutes = ALONE[provider], MINUTES.get(provider, 8.0)
    recording = _play(real_redis, model, minutes)
    found = measure(recording).lanes[0]
    assert found.admitted >= LEAST * model["requests_per_minute"] * minutes
    assert found.rejected_share <= 0.06
    assert SHARED not in _news(recording)


@pytest.mark.slow
def test_other_users_of_a_fixed_window_without_resets_are_noticed_and_keep_their_part(
    real_redis: Redis,
) -> None:
    others = {"requests_per_minute": 120, "foreign": ((0, 480, 48),)}
    recording = _play(real_redis, ALONE["a proxy's fixed minute"] | others, 6.0)
    found = measure(recording).lanes[0]
    assert SHARED in _news(recording)
    assert LEAST * 72 * 6 <= found.admitted <= 1.1 * 72 * 6


UNSHARED: dict[str, dict[str, Any]] = {
    "a window, long calls": {"shape": "window", "window_seconds": 10, "latency_ms": 2500},
    "a sliding window": {"shape": "sliding", "window_seconds": 10, "latency_ms": 300},
    "a sliding minute, long calls": {"shape": "sliding", "latency_ms": 2500},
    "a bucket": {"shape": "bucket", "burst_seconds": 10, "latency_ms": 300},
    "a deep bucket, long calls": {"shape": "bucket", "burst_seconds": 60, "latency_ms": 2500},
}


@pytest.mark.parametrize("provider", UNSHARED)
@pytest.mark.slow
def test_answers_of_unknown_length_are_no_calls_of_others(real_redis: Redis, provider: str) -> None:
    """Headers count tokens that the lane learns only with its answers: an eighth of their `max_tokens`."""
    tokens = {"output_tokens_per_minute": 8000, "output_tokens": 130, "output_tokens_stddev": 90}
    model = {**tokens, **UNSHARED[provider], "headers": "full", "latency_sigma": 0.3}
    loads = ({"max_tokens": 1000, "input_tokens": 600},)
    assert SHARED not in _news(_play(real_redis, model, 3.0, seed=1, loads=loads))


@pytest.mark.slow
def test_others_who_take_tokens_are_noticed(real_redis: Redis) -> None:
    """A call of 3,020 tokens is known to within its answer. Others take 30 % of the window."""
    model = {
        "tokens_per_minute": 604_000, "shape": "window", "headers": "full", "latency_ms": 300,
        "output_tokens": 20, "foreign": ((0, 300, 60),), "foreign_tokens": 3020,
    }  # fmt: skip
    recording = _play(real_redis, model, 4.0, loads=({"max_tokens": 160, "input_tokens": 3000},))
    found = measure(recording).lanes[0]
    assert SHARED in _news(recording)
    assert found.rejected_share <= 0.02
    assert found.admitted >= 0.9 * 140 * 4


@settings(
    max_examples=6,
    derandomize=True,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    phases=set(Phase) - {Phase.explain, Phase.shrink},
)
@given(model=limits, seed=st.integers(0, 999))
@pytest.mark.slow(seconds=30)
def test_no_form_of_reporting_the_remainder_starves_a_lane(
    real_redis: Redis, model: dict[str, Any], seed: int
) -> None:
    found = measure(_play(real_redis, {"headers": "ratelimit", **model}, 5.0, seed)).lanes[0]
    assert found.admitted >= 0.85 * model["requests_per_minute"] * 5, found
