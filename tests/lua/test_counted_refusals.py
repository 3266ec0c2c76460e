"""Limits that count what they refuse: a lane that asks on and on never opens them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import pytest
from redis import Redis

from tests.support.deployment import Deployment
from tests.support.hidden_limit import HiddenLimit

MINUTE_MS = 60_000


@dataclass
class CountedBucket:
    """A bucket that a refused call charges, too; it falls to one bucket and one call below empty at most."""

    per_minute: float
    depth: float
    level: float = field(init=False)
    at_ms: int = 0

    def __post_init__(self) -> None:
        self.level = self.depth

    def admit(self, now_ms: int, in_flight: int) -> bool:
        earned = (now_ms - self.at_ms) * self.per_minute / MINUTE_MS if self.at_ms else 0
        self.level, self.at_ms = min(self.depth, self.level + earned), now_ms
        admitted = self.level >= 1
        self.level = max(-self.depth - 1, self.level - 1)
        return admitted


@dataclass
class CountedWindow:
    """So many calls in any span, refused ones included."""

    count: int
    span_ms: int
    calls: deque[int] = field(default_factory=deque)

    def admit(self, now_ms: int, in_flight: int) -> bool:
        while self.calls and self.calls[0] <= now_ms - self.span_ms:
            self.calls.popleft()
        admitted = len(self.calls) < self.count
        self.calls.append(now_ms)
        return admitted


@pytest.mark.parametrize(
    ("limit", "per_minute"),
    [
        (CountedBucket(6, 1.8), 6),
        (CountedBucket(60, 1), 60),
        (CountedWindow(2, 20_000), 6),
        (CountedWindow(10, MINUTE_MS), 10),
    ],
)
@pytest.mark.slow
def test_a_limit_that_counts_refused_calls_gets_none_until_it_admits(
    real_redis: Redis, limit: CountedBucket | CountedWindow, per_minute: int
) -> None:
    d = Deployment(real_redis)
    lane = HiddenLimit(d, d.unknown_lane(jobs=2000), limit)
    lane.run(4 * MINUTE_MS)
    began_ms = d.now_ms
    lane.run(10 * MINUTE_MS)
    assert lane.admitted(began_ms) >= 0.6 * 10 * per_minute
    assert lane.refused(began_ms) <= 0.35 * len([call for call in lane.calls if call.at_ms >= began_ms])
