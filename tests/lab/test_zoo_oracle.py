"""Nobody beats the oracle, at any time: neither a peer nor a caller that sends at random."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlane.core.clock import ManualClock
from fairlane.lab.rehearsal.virtual.event_queue import EventQueue
from fairlane.model.job import Attempt
from tests.benchmarks.zoo.generator import SMALL, generate
from tests.benchmarks.zoo.oracle import best_schedule
from tests.benchmarks.zoo.peer_client import play_peer
from tests.benchmarks.zoo.peers import PEERS
from tests.benchmarks.zoo.provider import ADMITTED, Arrival, GeneratedProvider
from tests.benchmarks.zoo.world import World

ROUNDING_MS = 1.0
CALL = Attempt("r", "zoo", 0, 1, "sim:model")


def beaten_by(world: World, arrivals: list[Arrival]) -> list[tuple[int, int]]:
    """``(time, lead)`` of each moment at which so many more calls had succeeded than the oracle's."""
    best = best_schedule(world)
    times = [at_ms for at_ms, verdict in arrivals if verdict == ADMITTED and at_ms <= world.horizon_ms]
    leads = ((at_ms, number - best.by(at_ms + ROUNDING_MS)) for number, at_ms in enumerate(times, 1))
    return [(at_ms, lead) for at_ms, lead in leads if lead > 0]


@pytest.mark.parametrize("peer", PEERS)
def test_no_peer_beats_the_oracle(peer: str) -> None:
    for seed in range(0, 80):
        course = play_peer(generate(seed, SMALL), peer)
        assert beaten_by(course.world, list(course.arrivals)) == [], seed


@settings(max_examples=60)
@given(seed=st.integers(0, 10_000), pace=st.floats(0.3, 5.0), burst=st.integers(1, 30))
def test_no_random_caller_beats_the_oracle(seed: int, pace: float, burst: int) -> None:
    world = generate(seed, SMALL)
    best = best_schedule(world)
    clock = ManualClock(0)
    events = EventQueue(clock)
    provider = GeneratedProvider(world, events)
    rng = random.Random(seed)
    mean_ms = world.horizon_ms / max(1, len(best.times_ms)) / pace * burst

    def send() -> None:
        for _ in range(burst):
            provider.serve(CALL, lambda outcome: None)
        events.after(round(rng.expovariate(1 / mean_ms)) + 1, send)

    send()
    while (next_ms := events.next_ms) is not None and next_ms <= world.horizon_ms:
        clock.advance((next_ms - clock.now_ms()) / 1000)
        events.run_due()

    assert beaten_by(world, provider.arrivals) == []


def test_the_oracle_makes_no_call_into_an_outage() -> None:
    worlds = [generate(seed, SMALL) for seed in range(200)]
    closed = [w for w in worlds if any(outage.share >= 1 for outage in w.outages)]
    assert closed
    for world in closed:
        for outage in world.outages:
            if outage.share >= 1:
                begins_ms, ends_ms = outage.at_s * 1000, (outage.at_s + outage.lasts_s) * 1000
                assert not any(begins_ms <= at_ms < ends_ms for at_ms in best_schedule(world).times_ms)
