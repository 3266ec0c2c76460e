"""A provider that rejects a share of all calls, whatever their rate, is used as far as it answers.

Google serves some models so to all customers from one pool. Each such 429 had lowered a rate: one call in a
hundred left a quarter of it, and one in five next to nothing.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.benchmarks.zoo import keeper
from tests.benchmarks.zoo.playing import Course
from tests.benchmarks.zoo.provider import ADMITTED
from tests.benchmarks.zoo.world import AxisLimit, Latency, Outage, Shape, Signals, Work, World
from tests.support.plain_world import plain_world

HORIZON_S, SETTLED_S = 300.0, 200.0
FOREVER_S = 1e9


@pytest.fixture(scope="module", autouse=True)
def _server() -> Iterator[None]:
    yield
    keeper.close()


def world(
    by_chance: float, per_minute: float, seed: int, shape: Shape = "bucket", span_s: float = 1.0
) -> World:
    """One limit of requests, and 429s by chance that come first."""
    return plain_world(
        seed=seed,
        limits=(AxisLimit("requests", per_minute, shape, span_s),),
        latency=Latency("lognormal", 0.5, 0.3),
        signals=Signals("protocol", "none"),
        outages=(Outage(0.0, FOREVER_S, "429", by_chance),) if by_chance else (),
        work=Work(100, 50, 10, 100, 200),
        one_way_ms=5.0,
        horizon_s=HORIZON_S,
    )


def settled(course: Course) -> tuple[float, float]:
    """Of the last third: admitted calls a minute, and the share of calls that were rejected."""
    last = [each.verdict for each in course.arrivals if SETTLED_S <= each.at_ms / 1000 < HORIZON_S]
    admitted = last.count(ADMITTED)
    return admitted * 60 / (HORIZON_S - SETTLED_S), 1 - admitted / max(1, len(last))


@pytest.mark.parametrize(
    ("by_chance", "shape", "span_s"),
    [
        (0.01, "bucket", 1.0),
        (0.05, "bucket", 10.0),
        (0.05, "sliding", 1.0),
        (0.2, "bucket", 1.0),
        (0.2, "sliding", 1.0),
    ],
)
def test_the_limit_is_found_amid_random_429s(by_chance: float, shape: Shape, span_s: float) -> None:
    per_minute, rejected = settled(keeper.course_at(world(by_chance, 1200, 1, shape, span_s)))

    assert per_minute >= 0.75 * 1200
    assert rejected <= by_chance + 0.15


@pytest.mark.parametrize(("shape", "span_s"), [("bucket", 1.0), ("window", 10.0), ("sliding", 10.0)])
def test_429s_of_a_limit_are_not_mistaken_for_random_ones(shape: Shape, span_s: float) -> None:
    per_minute, rejected = settled(keeper.course_at(world(0.0, 600, 1, shape, span_s)))

    assert per_minute >= 0.9 * 600
    assert rejected <= 0.05
