"""A worker claims no more calls of a lane than it sends while their permits are good."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from fairlane.core.clock import ManualClock
from fairlane_workers.transport import Departures, PermitExpiredError

GOOD_MS = 150


async def one_turn() -> None:
    """Let every task that can run do so once."""
    turned = asyncio.Event()
    asyncio.get_running_loop().call_soon(turned.set)
    await turned.wait()


async def send_all(calls: int, cost_ms: float, good_ms: int = GOOD_MS, connecting_ms: float = 0.0) -> int:
    """Have a worker send calls that arrive at once, each of which takes CPU; how many permits expired.

    ``connecting_ms`` pass once for all calls that are on their way at the same time.
    """
    clock = ManualClock()
    departures, processor = Departures(clock.monotonic_ms), asyncio.Lock()
    expired = connected = 0

    async def call() -> None:
        nonlocal expired, connected
        departure = await departures.begin()
        departure.good_ms = good_ms
        async with processor:
            if connecting_ms and departure.claimed_ms >= connected:
                clock.advance(connecting_ms / 1000)
                connected = clock.monotonic_ms()
            clock.advance(cost_ms / 1000)
            try:
                departure.leave()
            except PermitExpiredError:
                expired += 1
        departure.end()

    await asyncio.gather(*(call() for _ in range(calls)))
    assert departures.under_way == 0
    return expired


@given(calls=st.integers(1, 2000), cost_ms=st.floats(0.1, 30.0))
def test_a_worker_short_of_cpu_wastes_few_permits(calls: int, cost_ms: float) -> None:
    """Only permits of the first rounds expire, until the bound is found."""
    expired = asyncio.run(send_all(calls, cost_ms))
    assert expired <= 64 + 32 + 16 + 8 + calls // 20


def test_a_worker_with_time_claims_everything_soon() -> None:
    assert asyncio.run(send_all(2000, 0.1)) == 0


def test_a_provider_that_is_slow_to_connect_loses_no_permit() -> None:
    assert asyncio.run(send_all(2000, 0.01, connecting_ms=100)) == 0


def test_a_lane_without_limits_has_no_bound() -> None:
    async def scenario() -> int:
        departures = Departures(ManualClock().monotonic_ms)
        first = await departures.begin()
        first.good_ms = 0
        first.leave()
        for _ in range(500):
            await asyncio.wait_for(departures.begin(), 1)
        return departures.under_way

    assert asyncio.run(scenario()) == 500


def test_calls_that_are_not_made_make_room() -> None:
    async def scenario() -> None:
        departures = Departures(ManualClock().monotonic_ms)
        begun = [await departures.begin() for _ in range(64)]
        waiting = [asyncio.create_task(departures.begin()) for _ in range(3)]
        await one_turn()
        assert not any(task.done() for task in waiting)
        waiting[0].cancel()
        with suppress(asyncio.CancelledError):
            await waiting[0]
        for each in begun[:2]:
            each.end()
            each.end()  # a second time changes nothing
        await asyncio.gather(*waiting[1:])
        assert departures.under_way == 64

    asyncio.run(scenario())


def test_a_turn_that_comes_with_its_cancellation_goes_to_the_next() -> None:
    async def scenario() -> None:
        departures = Departures(ManualClock().monotonic_ms)
        begun = [await departures.begin() for _ in range(64)]
        first, second = (asyncio.create_task(departures.begin()) for _ in range(2))
        await one_turn()
        begun[0].end()
        first.cancel()
        await asyncio.wait_for(second, 1)
        assert departures.under_way == 64

    asyncio.run(scenario())


def test_lanes_grow_again_after_a_pause() -> None:
    """A pause expires what was on its way; later rounds have room for more again, one call a round."""

    async def scenario() -> list[int]:
        clock = ManualClock()
        departures, sizes = Departures(clock.monotonic_ms), []
        for turn in range(30):
            tasks = [asyncio.create_task(departures.begin()) for _ in range(100)]
            await one_turn()
            sizes.append(departures.under_way)
            clock.advance(5.0 if turn == 0 else 0.01)
            for task in tasks:
                departure = await task
                departure.good_ms = GOOD_MS
                with suppress(PermitExpiredError):
                    departure.leave()
            await one_turn()
        return sizes

    sizes = asyncio.run(scenario())
    assert sizes[0] == 64
    assert sizes[1] < 40
    assert sizes[-1] > sizes[1]
