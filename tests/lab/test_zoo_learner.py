"""The learner never beats the oracle, and is refused about as often as halving its ignorance takes."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from itertools import pairwise

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.benchmarks.zoo.belief import Belief, Prior
from tests.benchmarks.zoo.classes import HIDDEN, TRUE_HEADERS, classes_of
from tests.benchmarks.zoo.forms import Forms, forms_of
from tests.benchmarks.zoo.gates import FixedWindow, Gate, SlidingWindow
from tests.benchmarks.zoo.generator import (
    DEEPEST_S,
    LEAST_PER_MINUTE,
    MOST_PER_MINUTE,
    SHALLOWEST_S,
    SMALL,
    generate,
)
from tests.benchmarks.zoo.learner import FIRST_CALLS, MOST_AT_ONCE, Learned, learn
from tests.benchmarks.zoo.learners import shares_of, table
from tests.benchmarks.zoo.oracle import as_configured, best_schedule
from tests.benchmarks.zoo.world import AxisLimit, Shape, World

ROUNDING_MS = 1.0
ON_THEIR_WAY = 0.05
"""The share of calls that may be refused, too: those that left before a refusal was heard."""

played = cache(learn)
seeds = st.integers(0, 20_000)


def hidden(seed: int) -> World:
    """The first world from this seed on whose limits nobody has configured."""
    world = generate(seed, SMALL)
    return world if world.configured is None else hidden(seed + 1)


def unknown(world: World) -> float:
    """The size of what a learner does not know, as a factor."""
    rates = 4 * MOST_PER_MINUTE / LEAST_PER_MINUTE
    at_once = MOST_AT_ONCE if world.most_at_once is not None else 1
    return rates * DEEPEST_S / SHALLOWEST_S * at_once


@settings(max_examples=15)
@given(seed=seeds, blind=st.booleans())
def test_no_learner_has_more_than_the_oracle_at_any_time(seed: int, blind: bool) -> None:
    """Except for refunds: a bucket that is full when a call ends loses them, so waiting may pay there."""
    world = hidden(seed)
    best, learned = best_schedule(world), played(world, blind=blind)
    if world.charge != "refunded":
        times = enumerate(learned.schedule.times_ms, 1)
        assert all(best.by(at_ms + ROUNDING_MS) >= number for number, at_ms in times)


@settings(max_examples=1)
@given(some=st.lists(seeds, min_size=15, max_size=15, unique=True))
def test_refusals_halve_what_is_unknown(some: list[int]) -> None:
    """In one of two thousand worlds (seeds 1953 and 4688 of 4,800) the guess misses the truth for long."""
    worlds = [(world, played(world)) for world in map(hidden, some)]
    over = [
        world.seed
        for world, learned in worlds
        if learned.refused > math.log2(unknown(world)) + ON_THEIR_WAY * learned.calls
    ]
    assert len(over) <= 1


def test_with_configured_limits_the_learner_equals_the_oracle_within_the_burst() -> None:
    worlds = [w for w in (generate(seed, SMALL) for seed in range(60)) if w.configured is not None]
    assert worlds
    for world in worlds:
        whole, best = best_schedule(world), best_schedule(as_configured(world))
        assert learn(world) == Learned(best, len(best.times_ms), 0)
        assert all(whole.by(at_ms + ROUNDING_MS) >= n for n, at_ms in enumerate(best.times_ms, 1))


def test_after_the_first_answer_true_headers_make_the_limit_known() -> None:
    for world in (generate(seed, SMALL) for seed in range(200)):
        best = best_schedule(world)
        reported = classes_of(world, len(best.times_ms)) == (TRUE_HEADERS,) and world.most_at_once is None
        if reported and world.signals.wait_form == "none":
            learned = played(world)
            told_ms = learned.schedule.times_ms[0] + 3 * world.latency.median_s * 1000
            late = len(best.times_ms) - best.by(told_ms)
            assert len(learned.schedule.times_ms) - learned.schedule.by(told_ms) >= 0.9 * late - 1, world.seed


def test_each_hidden_world_is_in_a_class_of_its_retry_after() -> None:
    for world in (hidden(seed) for seed in range(100)):
        named = classes_of(world, 100)
        if named[0] == HIDDEN:
            assert ("hidden, Retry-After honest" in named) != ("hidden, Retry-After wrong or absent" in named)


@pytest.mark.parametrize("error", [0.1, 10.0])
def test_a_wrong_retry_after_is_obeyed(error: float) -> None:
    world = next(
        w
        for w in map(hidden, range(500))
        if w.signals.wait_form == "seconds" and w.limits[0].shape == "bucket"
    )
    world = replace(
        world, signals=replace(world.signals, view="none", wait_error=error), outages=(), steps=()
    )
    learned = learn(world)
    assert learned.refused > 0
    named_ms = 1000 * math.ceil(error / 1000)
    times = learned.schedule.times_ms
    assert max(later - sooner for sooner, later in pairwise(times)) >= named_ms


@given(rate=st.floats(5.0, 20_000.0), depth_s=st.floats(0.1, 30.0))
@settings(max_examples=20)
def test_two_refusals_show_a_buckets_rate_and_depth(rate: float, depth_s: float) -> None:
    """A bucket of two calls or more is emptied twice. Then the belief admits what it admits, to a tenth.

    A smaller one may refuse its second call at once: then two refusals say little of its rate.
    """
    limit = AxisLimit("requests", rate, "bucket", depth_s)
    ranges = (LEAST_PER_MINUTE, 4 * MOST_PER_MINUTE), (SHALLOWEST_S, DEEPEST_S)
    belief = Belief(limit, 1.0, Prior(*ranges), (), 1)
    capacity, level, at_ms = max(1.0, rate / 60 * depth_s), 0.0, 0.0
    one = capacity / 40 if capacity > 40 else 1.0
    assume(capacity >= 2 * one)
    level = capacity
    for span_ms in (0.0, 500.0 * depth_s):
        at_ms, level = at_ms + span_ms, min(capacity, level + span_ms * rate / 60_000)
        admitted = True
        while admitted:
            admitted = level >= one * (1 - 1e-6)
            call = belief.sent(one, at_ms)
            call.admitted = admitted
            belief.heard(call)
            level -= one if admitted else 0.0
    later_ms = at_ms + 250.0 * depth_s
    (found_ms,) = belief.times_ms(one, later_ms, (0.5,))
    true_ms = later_ms + max(0.0, one - level - (later_ms - at_ms) * rate / 60_000) * 60_000 / rate
    assert found_ms - at_ms == pytest.approx(true_ms - at_ms, rel=0.1, abs=2 * one * 60_000 / rate)


@pytest.mark.parametrize("shape", ["window", "sliding"])
def test_answers_show_that_a_limit_is_a_window(shape: Shape) -> None:
    """Twelve calls are offered a second, of which the limit admits ten. Soon nothing else explains that."""
    world = replace(hidden(1), horizon_s=120.0, steps=())
    limit = AxisLimit("requests", 600.0, shape, 5.0)
    forms = Forms(world, limit, 1.0, lambda _, __: Prior((6.0, 60_000.0), (SHALLOWEST_S, DEEPEST_S)))
    sliding = shape == "sliding"
    window: Gate = SlidingWindow(600.0, 5000.0, 1.0) if sliding else FixedWindow(600.0, 5000.0, 1.0, 0, 0, 0)
    for number in range(300):
        at_ms = number * 1000 / 12.3
        call = forms.sent(1.0, at_ms)
        call.admitted = window.earliest_ms(1.0, at_ms) <= at_ms
        if call.admitted:
            window.spend(1.0, at_ms)
        forms.heard(call)
    likely = forms.likely()
    assert likely[shape] > 0.99, likely


def test_the_forms_are_those_that_the_generator_draws_and_the_limits_own() -> None:
    for world in map(hidden, range(60)):
        for limit in world.limits:
            forms = forms_of(world, limit)
            assert any((form.shape, form.span_s) == (limit.shape, limit.span_s) for form in forms) or (
                limit.shape == "bucket" and forms[0].shape == "bucket"
            )
            assert len({(form.shape, form.span_s) for form in forms}) == len(forms)


def test_a_blind_learner_starts_as_tcp_does() -> None:
    """Before the first answer it has sent a few calls; the learner, which hears sooner, may send more."""
    world = next(w for w in map(hidden, range(500)) if not w.outages and w.latency.shape == "constant")
    first_ms = 1000 * world.latency.median_s
    assert learn(world, blind=True).schedule.by(first_ms - ROUNDING_MS) <= FIRST_CALLS


def test_both_learners_are_shown_by_class() -> None:
    found = [shares_of(seed, SMALL) for seed in range(4)]
    shown = table(found)
    assert shown.row_count >= 1
    assert all(0 <= share <= 1 for shares in found for share in (*shares.used, *shares.refused))
