"""The oracle: the best schedule of a world, which sends each call as soon as all limits admit it.

It knows the limits, their later steps, the outages, and each call's length. No other schedule has more
successes at any time: a call that is sent as soon as it is admitted delays no later call, and the n-th call
is the same for every player. There is one exception: where calls get tokens back at their end, a bucket that
is full by then loses them, so waiting may pay.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from dataclasses import dataclass, replace

from tests.benchmarks.zoo.admission import Admission, draw
from tests.benchmarks.zoo.gates import NEVER
from tests.benchmarks.zoo.world import World

MOST_CALLS = 20_000


@dataclass(frozen=True, slots=True)
class Schedule:
    """Times at which successful calls reach the provider, in ms from the start; ``peak``: most in flight."""

    times_ms: tuple[float, ...]
    peak: int

    def by(self, at_ms: float) -> int:
        """How many calls were admitted by that time."""
        return bisect_right(self.times_ms, at_ms)


def best_schedule(world: World, most_calls: int = MOST_CALLS) -> Schedule:
    """The best schedule until the world's horizon, or until ``most`` calls are admitted."""
    admission, now_ms, ordinal, peak = Admission(world, 0), 0.0, 0, 0
    ends: list[tuple[float, float, int]] = []  # when a call ends, when it was admitted, its output tokens
    closed = sorted(
        (outage.at_s * 1000, (outage.at_s + outage.lasts_s) * 1000)
        for outage in world.outages
        if outage.share >= 1
    )
    times: list[float] = []
    while len(times) < most_calls:
        fate = draw(world, ordinal)
        taken, _ = admission.charges(fate.output_tokens)
        while True:
            at_ms = _open_from(closed, now_ms)
            while ends and ends[0][0] <= at_ms:
                _end(admission, ends)
            if admission.rejects(taken, at_ms) is None:
                break
            next_ms = admission.earliest_ms(taken, at_ms)
            if ends and (next_ms <= at_ms or world.charge == "refunded" or next_ms == NEVER):
                next_ms = min(next_ms if next_ms > at_ms else NEVER, ends[0][0])
            if next_ms > world.horizon_ms:
                return Schedule(tuple(times), peak)
            now_ms = next_ms
        now_ms = at_ms
        if now_ms > world.horizon_ms:
            break
        admission.admit(taken, now_ms)
        heapq.heappush(ends, (now_ms + admission.latency_ms(fate), now_ms, fate.output_tokens))
        peak = max(peak, admission.in_flight)
        ordinal += 1
        if not fate.faulty:
            times.append(now_ms)
    return Schedule(tuple(times), peak)


def as_configured(world: World) -> World:
    """The world whose buckets are as deep as the configured burst: what a caller who keeps to it may have."""
    if world.configured is None:
        return world
    depth_s = world.configured.burst_seconds
    return replace(world, limits=tuple(replace(limit, span_s=depth_s) for limit in world.limits))


def _open_from(closed: list[tuple[float, float]], now_ms: float) -> float:
    """The first time, from ``now_ms`` on, that is not in an outage."""
    for begins_ms, ends_ms in closed:
        if begins_ms <= now_ms < ends_ms:
            now_ms = ends_ms
    return now_ms


def _end(admission: Admission, ends: list[tuple[float, float, int]]) -> None:
    end_ms, taken_ms, output_tokens = heapq.heappop(ends)
    _, returned = admission.charges(output_tokens)
    admission.release(returned, taken_ms, end_ms)
