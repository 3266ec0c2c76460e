"""A limit that nobody reports changes while a lane runs: the lane finds it within its refusal budget."""

from __future__ import annotations

import heapq
from bisect import bisect_left

import pytest
from redis import Redis

from fairlane.lab.rehearsal.recording import Recording, record
from fairlane.lab.rehearsal.scenario import Load, Network, Scenario
from fairlane.lab.rehearsal.virtual.simulated_provider import ADMITTED
from fairlane.lab.simulator.config import SimulatedModel

OVER_S = 5.0
NEAR = 0.95


def _scenario(model: SimulatedModel, seed: int, minutes: float | None, jobs: int | None = None) -> Scenario:
    return Scenario(
        name="test",
        models={"model": model},
        loads=(Load(jobs=jobs),),
        workers=4,
        slots=400,
        minutes=minutes,
        warm_up_minutes=0.0,
        network=Network(median_ms=2.0 if minutes is None else 20.0),
        seed=seed,
    )


def _rejected_share(recording: Recording) -> float:
    arrivals = recording.lanes["sim:model"].log.arrivals
    return sum(arrival.verdict != ADMITTED for arrival in arrivals) / len(arrivals)


def _least_ms(recording: Recording, at_once: int) -> int:
    """How long the same calls take, in the same order, where one starts as soon as another ends."""
    ends_ms = [0] * at_once
    for start_ms, end_ms in sorted(recording.lanes["sim:model"].log.served):
        heapq.heapreplace(ends_ms, ends_ms[0] + end_ms - start_ms)
    return max(ends_ms)


def _found_after(recording: Recording, since_s: float, until_s: float, per_minute: float) -> float:
    """Seconds until the rate over five seconds is first near the limit; infinite if it never is."""
    arrivals = recording.lanes["sim:model"].log.arrivals
    admitted = [(a.at_ms - recording.began_ms) / 1000 for a in arrivals if a.verdict == ADMITTED]
    at_s = since_s
    while at_s + OVER_S <= until_s:
        count = bisect_left(admitted, at_s + OVER_S) - bisect_left(admitted, at_s)
        if count >= NEAR * per_minute / 60 * OVER_S - 1:
            return at_s - since_s
        at_s += 0.25
    return float("inf")


@pytest.mark.parametrize("seed", [11])
@pytest.mark.slow
def test_a_limit_that_falls_and_rises_is_found_again(real_redis: Redis, seed: int) -> None:
    model = SimulatedModel(
        requests_per_minute=3000, limit_changes=((20, 1500), (50, 4500)), latency_ms=600, latency_sigma=0.3
    )

    recording = record(_scenario(model, seed, minutes=80 / 60), real_redis)

    assert _found_after(recording, 20, 50, 1500) <= 5
    assert _found_after(recording, 50, 80, 4500) <= 20
    assert _rejected_share(recording) <= 0.01


@pytest.mark.parametrize("seed", [10, 11])
@pytest.mark.slow
def test_a_concurrency_limit_costs_few_429s_and_little_time(real_redis: Redis, seed: int) -> None:
    model = SimulatedModel(max_concurrency=16, latency_ms=1000, latency_sigma=0.3)

    recording = record(_scenario(model, seed, minutes=None, jobs=800), real_redis)

    assert recording.complete
    assert recording.ended_ms - recording.began_ms <= 1.05 * _least_ms(recording, at_once=16)
    assert _rejected_share(recording) <= 0.01
