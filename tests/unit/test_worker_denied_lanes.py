"""A worker whose key alone is denied leaves the lane to others, tries it again, and is never missed."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.model.decision import RetryPolicy
from fairlane.model.job import Attempt
from fairlane.model.outcome import AccessDenied, RateLimited
from fairlane.store.write.workers import WorkerInfo
from fairlane.testing import ManualClock
from fairlane_workers.execution.denied_lanes import (
    DENIED_IN_A_ROW,
    FIRST_WAIT_MS,
    LONGEST_WAIT_MS,
    DeniedLanes,
)
from tests.support.worker_parts import ANSWER, LEASE_MS, WorkerParts, on_loop

LANE, MODEL = "sim:fast", "sim"
DENIED = AccessDenied("Incorrect API key provided", 401)


def attempt_of(job: int, number: int = 1) -> Attempt:
    return Attempt("r1", "search", job, number, LANE)


class Fleet:
    """Workers of one lane that see each other's heartbeats as they were when each one last beat."""

    def __init__(self, count: int) -> None:
        self.clock = ManualClock()
        self.workers = [DeniedLanes(self.clock, self._elsewhere(n)) for n in range(count)]
        self.beats: list[tuple[bool, bool]] = [(True, False)] * count  # serves the lane, is denied there

    def _elsewhere(self, worker: int) -> Any:
        async def lanes() -> set[str]:
            others = [beat for n, beat in enumerate(self.beats) if n != worker]
            return {LANE} if (True, False) in others else set()

        return lanes

    async def beat(self, worker: int) -> None:
        denied = self.workers[worker]
        await denied.look()
        self.beats[worker] = (LANE not in denied.left, LANE in denied.reasons)

    async def deny(self, worker: int, job: int, number: int = 1, status: int = 401) -> bool:
        denied = AccessDenied("denied", status)
        return await self.workers[worker].leaves(attempt_of(job, number), MODEL, denied)

    def tries(self, worker: int, job: int) -> bool:
        return self.workers[worker].turns_away(attempt_of(job)) is None


def played(scene: Coroutine[Any, Any, None]) -> None:
    asyncio.run(scene)


def test_a_key_that_was_never_accepted_leaves_the_lane_at_once() -> None:
    async def scene() -> None:
        fleet = Fleet(2)
        assert await fleet.deny(0, 1)
        assert fleet.workers[0].left == {LANE}
        assert fleet.workers[0].reasons == {LANE: "denied"}
        assert not fleet.tries(0, 2)

    played(scene())


def test_one_that_was_accepted_leaves_it_after_several_jobs_in_a_row() -> None:
    async def scene() -> None:
        fleet = Fleet(2)
        denied = fleet.workers[0]
        denied.answered.add(LANE)
        fleet.clock.advance(1)
        assert [await fleet.deny(0, 1, n, 403) for n in range(5)] == [
            False
        ] * 5  # one job alone: a firewall's
        assert not await fleet.deny(0, 2)
        denied.accepted(LANE, fleet.clock.monotonic_ms() - 1)  # it began before
        assert denied.lanes
        denied.accepted(LANE, fleet.clock.monotonic_ms())
        assert not denied.lanes
        left = [await fleet.deny(0, job) for job in range(DENIED_IN_A_ROW)]
        assert left == [False] * (DENIED_IN_A_ROW - 1) + [True]

    played(scene())


def test_a_401_shows_the_key_even_where_one_job_alone_meets_it() -> None:
    async def scene() -> None:
        fleet = Fleet(2)
        fleet.workers[0].answered.add(LANE)
        left = [await fleet.deny(0, 1, number) for number in range(DENIED_IN_A_ROW)]
        assert left == [False] * (DENIED_IN_A_ROW - 1) + [True]

    played(scene())


def test_a_lone_worker_stays() -> None:
    async def scene() -> None:
        fleet = Fleet(1)
        assert not await fleet.deny(0, 1)
        assert not fleet.workers[0].left
        assert fleet.tries(0, 2)

    played(scene())


def test_it_tries_again_with_one_call_at_a_time_ever_more_rarely() -> None:
    async def scene() -> None:
        fleet, wait_ms = Fleet(2), FIRST_WAIT_MS
        await fleet.deny(0, 1)
        for job in range(10, 20):
            fleet.clock.advance((wait_ms - 1) / 1000)
            assert not fleet.tries(0, job)
            fleet.clock.advance(0.001)
            assert fleet.tries(0, job)
            assert not fleet.tries(0, 99)
            assert await fleet.deny(0, job)
            wait_ms = min(2 * wait_ms, LONGEST_WAIT_MS)
        fleet.clock.advance(wait_ms / 1000)
        assert fleet.tries(0, 20)
        fleet.workers[0].ended(attempt_of(20))  # by something else
        assert fleet.tries(0, 21)
        fleet.workers[0].accepted(LANE, fleet.clock.monotonic_ms())
        assert fleet.tries(0, 22)
        assert fleet.tries(0, 23)

    played(scene())


def test_another_key_returns_at_once() -> None:
    async def scene() -> None:
        fleet = Fleet(2)
        await fleet.deny(0, 1)
        fleet.workers[0].renewed({"other"})
        assert fleet.workers[0].left
        fleet.workers[0].renewed({MODEL})
        assert not fleet.workers[0].left
        assert not fleet.workers[0].answered

    played(scene())


@given(st.integers(1, 4), st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=40))
def test_where_all_are_denied_somebody_serves_the_lane_and_reports_it(
    count: int, steps: Sequence[tuple[int, bool]]
) -> None:
    """In whatever order they are denied and beat, once each has beaten twice, all serve it and report."""

    async def scene() -> None:
        fleet = Fleet(count)
        for job, (worker, beats) in enumerate(steps):
            if beats:
                await fleet.beat(worker % count)
            elif fleet.tries(worker % count, job):
                await fleet.deny(worker % count, job)
        for worker in range(count):
            if not fleet.workers[worker].reasons:
                await fleet.deny(worker, 100 + worker)
        for worker in [*range(count)] * 2:
            await fleet.beat(worker)
        assert not any(each.left for each in fleet.workers)
        for worker in range(count):
            assert fleet.tries(worker, 200)
            assert not await fleet.deny(worker, 200)

    played(scene())


def beside_another(parts: WorkerParts, **told: Any) -> None:
    info = WorkerInfo("other", 10, (LANE,), "0", 1, "host", 0, **told)
    parts.scheduler.workers.beat("w2", info, [], LEASE_MS, changed=True).run(parts.scheduler.redis)


@pytest.mark.parametrize(
    ("told", "leaves"), [({}, True), ({"denied": {LANE: "denied"}}, False), ({"stopping": True}, False)]
)
def test_a_denied_job_costs_nothing_where_another_worker_is_accepted(
    told: dict[str, Any], leaves: bool
) -> None:
    async def scene(parts: WorkerParts) -> None:
        beside_another(parts, **told)
        first, second = parts.grant(2, retry=RetryPolicy(max_attempts=1))
        parts.provider.answer = DENIED
        await parts.executor.execute(first)
        await parts.executor.execute(second)
        await parts.heartbeat.beat()

        assert (parts.scheduler.lanes.view(LANE).parked is None) == leaves
        assert len(parts.provider.requests) == (1 if leaves else 2)
        assert parts.wanted[-1] == ([] if leaves else [LANE])
        [own] = [beat for beat in parts.scheduler.workers.beats(parts.scheduler.redis) if beat.worker != "w2"]
        assert own.info.denied == {LANE: DENIED.message}
        assert parts.scheduler.redis.zcard(parts.keys.delayed) == 2
        assert (parts.leased(), parts.state(first).get("retries", "0")) == (0, "0" if leaves else "2")

    on_loop(scene)


def test_another_end_of_the_try_lets_the_next_call_try() -> None:
    async def scene(parts: WorkerParts) -> None:
        beside_another(parts)
        attempts = parts.grant(4)
        parts.provider.answer = DENIED
        await parts.executor.execute(attempts[0])
        parts.clock.advance(FIRST_WAIT_MS / 1000)
        for attempt, answer in zip(attempts[1:], (RateLimited("slow down"), ANSWER, ANSWER), strict=True):
            parts.provider.answer = answer
            await parts.executor.execute(attempt)
        assert len(parts.provider.requests) == 4
        assert not parts.denied.lanes

    on_loop(scene)


def test_a_lane_that_is_accepted_while_the_others_are_read_is_no_longer_left() -> None:
    async def scene() -> None:
        clock, accepted = ManualClock(), list[str]()

        async def elsewhere() -> set[str]:
            if accepted:
                denied.renewed([MODEL])
                return set()
            return {LANE}

        denied = DeniedLanes(clock, elsewhere)
        assert await denied.leaves(attempt_of(1), MODEL, DENIED)
        accepted.append(LANE)
        await denied.look()
        assert not denied.lanes

    played(scene())
