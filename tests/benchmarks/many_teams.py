"""What it costs to decide who is next, with few teams and with many."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

from fairlane.store.keys import RunRef
from fairlane_scheduler.fairness import LaneShares
from fairlane_scheduler.lane_queue import LaneQueue
from tests.benchmarks.report import Finding

LANES, JOBS, DECISIONS, AT_ONCE = 10, 1_000_000, 20_000, 50
NAME = "who is next"


def many_teams() -> Iterator[Finding]:
    """1,000,000 waiting jobs on 10 lanes, of 10 teams and of 1,000: permits decided a second."""
    few, many = _decide(10), _decide(1000)
    for teams, (per_second, p99_us) in ((10, few), (1000, many)):
        yield Finding(NAME, f"permits decided, {teams:,} teams", per_second, "/s")
        yield Finding(NAME, f"a decision of {AT_ONCE} permits, p99, {teams:,} teams", p99_us, "µs")
    yield Finding(NAME, "1,000 teams ÷ 10 teams", few[0] / many[0], bar=2)


def _decide(teams: int) -> tuple[float, float]:
    """Permits a second, and the 99th percentile of a decision in µs."""
    rng = random.Random(1)
    lanes = []
    for _ in range(LANES):
        queue, shares = LaneQueue(), LaneShares(lambda team: 1.0)
        for number in range(teams):
            queue.add(RunRef(f"team{number}", "r1"), JOBS // LANES // teams)
        lanes.append((queue, shares))
    took: list[float] = []
    for queue, shares in lanes:  # whoever waits has a place in the order
        shares.arrive(queue.arrivals())
        shares.order(queue.waiting, lambda ref: 0, 1)
    granted, started = 0, time.perf_counter()
    for n in range(DECISIONS // AT_ONCE * LANES):
        queue, shares = lanes[n % LANES]
        begun = time.perf_counter()
        shares.arrive(queue.arrivals())
        for offer in shares.order(queue.waiting, lambda ref: 0, AT_ONCE, n):
            for _ in range(offer.most):
                shares.charge(offer.ref, rng.uniform(0.5, 1.5), n)
            queue.settle(offer.ref, queue.count(offer.ref) - offer.most)
            granted += offer.most
        took.append(time.perf_counter() - begun)
    whole = time.perf_counter() - started
    return granted / whole, sorted(took)[int(0.99 * len(took))] * 1e6
