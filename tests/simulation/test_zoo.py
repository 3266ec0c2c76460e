"""Generated providers: fifty fixed ones and ten fresh ones in the short form. `make zoo` plays long ones.

The bars of the long form are measured, not asserted: docs/control/zoo.md has them. Here stands what holds in
every world.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import pytest

from tests.benchmarks.zoo import keeper
from tests.benchmarks.zoo.generator import SMALL, generate
from tests.benchmarks.zoo.measure import Figures, measure, quantile
from tests.benchmarks.zoo.provider import ADMITTED
from tests.benchmarks.zoo.report import one_line
from tests.benchmarks.zoo.world import World

FIXED = range(50)
FRESH = 10
FRESH_BITS = 31
REFUSALS_A_JOB, REFUSALS = 4, 20
"""A lane that nobody configured may be refused so often: no world makes it ask without end."""
LEAST_MEDIAN = 0.6
"""The fixed worlds' median use of what an oracle gets within half a minute from a cold start."""


@pytest.fixture(scope="module", autouse=True)
def _server() -> Iterator[None]:
    yield
    keeper.close()


@pytest.fixture(scope="module")
def fresh() -> list[int]:
    return [secrets.randbits(FRESH_BITS) for _ in range(FRESH)]


@cache
def figures(seed: int) -> Figures:
    course = keeper.course_of(seed, size=SMALL)
    played = measure(course, keeper.FAIRLANE)
    again = f'{one_line(played)}\nmake zoo ARGS="--seed {seed} --small --ours"'
    for number, arrival in enumerate(a for a in course.arrivals if a.verdict == ADMITTED):
        assert number < course.best.by(arrival.at_ms + 1) or arrival.at_ms > course.world.horizon_ms, again
    assert played.lost == 0, again
    succeeded = course.jobs - course.failed - course.unfinished
    assert succeeded <= sum(a.verdict == ADMITTED for a in course.arrivals), again
    if _only_limits_refuse(course.world):
        assert played.failed == 0, again
    if played.configured:
        assert played.refused_calls == 0, again
    assert played.refused_calls <= REFUSALS_A_JOB * course.jobs + REFUSALS, again
    return played


def _only_limits_refuse(world: World) -> bool:
    """Whether no call of the world can cost its job an attempt: all refusals are 429s."""
    answers_503 = world.most_at_once is not None and world.at_once_status == 503
    return not (world.outages or world.fault_share or answers_503)


@pytest.mark.parametrize("seed", FIXED)
def test_a_fixed_world_loses_no_job_and_keeps_configured_limits(seed: int) -> None:
    figures(seed)


@pytest.mark.parametrize("number", range(FRESH))
def test_a_fresh_world_loses_no_job_and_keeps_configured_limits(fresh: list[int], number: int) -> None:
    figures(fresh[number])


@pytest.mark.timeout(600)  # alone, it plays all fixed worlds
def test_the_fixed_worlds_are_used() -> None:
    used = [figures(seed).used for seed in FIXED]
    assert quantile(used, 0.5) >= LEAST_MEDIAN


def test_a_seed_plays_the_same_course_again() -> None:
    first, second = (keeper.course_of(3, size=SMALL) for _ in range(2))
    assert first.arrivals == second.arrivals


def test_two_calls_between_429s_of_a_second_do_not_refute_a_sure_estimate() -> None:
    """A window of 87 calls a second, of which the lane is sure after its overshoot. It meets 429s twice in
    one window: the two calls in between say little of the limit.
    """
    world = replace(generate(20048), horizon_s=19.0)
    course = keeper.course_at(world)
    limit = world.limits[0].per_minute
    (known_ms, _), *later = [(at_ms, pace) for at_ms, pace in course.paces if at_ms > 14_500]
    assert [pace for at_ms, pace in later if pace < limit / 2] == [], f"lower than half after {known_ms} ms"
