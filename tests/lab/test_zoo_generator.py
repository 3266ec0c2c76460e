"""Worlds are what their seed says: repeatable, within the drawn ranges, and together of every form."""

from __future__ import annotations

import pytest

from tests.benchmarks.zoo.admission import draw
from tests.benchmarks.zoo.generator import (
    DEEPEST_S,
    FULL,
    LONGEST_WINDOW_S,
    MOST_PER_MINUTE,
    SHALLOWEST_S,
    SMALL,
    Size,
    generate,
)
from tests.benchmarks.zoo.oracle import best_schedule
from tests.benchmarks.zoo.world import World

SEEDS = range(300)
BURST = 2
"""A first window may hold more calls than a horizon has at most."""


@pytest.fixture(scope="module")
def worlds() -> list[World]:
    return [generate(seed, SMALL) for seed in SEEDS]


@pytest.mark.parametrize("size", [FULL, SMALL])
def test_a_seed_always_gives_the_same_world(size: Size) -> None:
    assert generate(7, size) == generate(7, size)
    assert generate(7, size) != generate(8, size)


def test_a_draw_depends_on_the_seed_and_the_ordinal_alone() -> None:
    world = generate(3, SMALL)
    assert draw(world, 5) == draw(generate(3, SMALL), 5)
    assert len({draw(world, ordinal) for ordinal in range(20)}) > 1


def test_limits_lie_within_the_ranges(worlds: list[World]) -> None:
    for world in worlds:
        for limit in world.limits:
            shortest_s = SHALLOWEST_S if limit.shape == "bucket" else 1.0
            longest_s = DEEPEST_S if limit.shape == "bucket" else LONGEST_WINDOW_S
            assert shortest_s <= limit.span_s <= longest_s
        assert 0 < world.horizon_s <= SMALL.longest_s


def test_fast_and_slow_limits_occur() -> None:
    rates = [
        limit.per_minute
        for seed in SEEDS
        for limit in generate(seed).limits
        if limit.axis == "requests" and limit.span_s <= FULL.longest_s
    ]
    assert min(rates) < 6
    assert max(rates) > MOST_PER_MINUTE / 3


def test_every_form_occurs(worlds: list[World]) -> None:
    def seen(values: object) -> set[object]:
        return set(values)  # type: ignore[call-overload]

    limits = [limit for world in worlds for limit in world.limits]
    assert seen(limit.shape for limit in limits) == {"bucket", "window", "sliding"}
    assert seen(limit.axis for limit in limits) == {"requests", "tokens", "input", "output", "day"}
    assert seen(w.signals.view for w in worlds) == {"none", "true", "minute", "stale", "other"}
    assert seen(w.signals.wait_form for w in worlds) == {
        "none",
        "milliseconds",
        "seconds",
        "fraction",
        "date",
    }
    assert seen(w.signals.wait_error for w in worlds) == {0.1, 1.0, 10.0}
    assert len(seen(w.signals.style for w in worlds if w.signals.view != "none")) == 10
    assert seen(w.charge for w in worlds) == {"used", "reserved", "refunded"}
    assert seen(w.latency.shape for w in worlds) == {"constant", "lognormal", "bimodal", "pareto"}
    assert seen(w.at_once_status for w in worlds) == {429, 503}
    forms = seen(outage.form for w in worlds for outage in w.outages)
    assert forms == {"503", "529", "500", "refused", "hang", "malformed"}
    assert any(w.latency.growth for w in worlds)
    assert any(step.others for w in worlds for step in w.steps)
    assert any(step.factor > 1 for w in worlds for step in w.steps)
    assert any(step.factor < 1 for w in worlds for step in w.steps)
    assert seen(w.counts_refused for w in worlds) == {False, True}
    assert seen(w.work.max_tokens is None for w in worlds) == {False, True}


def test_worlds_have_few_enough_calls(worlds: list[World]) -> None:
    counts = sorted(len(best_schedule(world).times_ms) for world in worlds)
    assert counts[len(counts) * 95 // 100] <= BURST * SMALL.most_calls


def test_configured_worlds_keep_their_limits(worlds: list[World]) -> None:
    configured = [world for world in worlds if world.configured is not None]
    assert configured
    for world in configured:
        assert world.steps == ()
        assert {limit.shape for limit in world.limits} == {"bucket"}
        assert world.charge == "reserved" or {limit.axis for limit in world.limits} == {"requests"}
