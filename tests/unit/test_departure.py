"""A call leaves its worker while its permit is good, or not at all."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from fairlane.core.clock import ManualClock
from fairlane.model.outcome import NetworkFailure, Outcome
from fairlane_workers.providers.contract import Request
from fairlane_workers.transport import Departure, PermitExpiredError, Transport, UsualDelay
from tests.support.scripted_server import http, scripted_server
from tests.support.worker_parts import WorkerParts, on_loop

GOOD_MS = 150


def departure(clock: ManualClock, usual: UsualDelay | None = None) -> Departure:
    return Departure(
        clock.monotonic_ms, usual or UsualDelay(clock.monotonic_ms), clock.monotonic_ms(), GOOD_MS
    )


def test_a_call_leaves_until_its_permit_expires() -> None:
    clock = ManualClock()
    leaving = departure(clock)
    clock.advance(0.150)
    leaving.leave()
    clock.advance(10)
    leaving.leave()  # a poll of the same call
    assert leaving.left_ms == clock.monotonic_ms() - 10_000


def test_a_call_that_is_late_does_not_leave() -> None:
    clock = ManualClock()
    leaving = departure(clock)
    clock.advance(0.151)
    with pytest.raises(PermitExpiredError, match="151 ms after its claim"):
        leaving.leave()
    assert leaving.left_ms is None


def test_calls_reach_a_provider_that_is_always_slow_to_connect() -> None:
    clock = ManualClock()
    usual, left = UsualDelay(clock.monotonic_ms), 0
    for _ in range(20):
        leaving = departure(clock, usual)
        clock.advance(0.4)
        try:
            leaving.leave()
            left += 1
        except PermitExpiredError:
            pass
        clock.advance(1)
    assert left == 19


def test_a_lane_without_limits_holds_no_call() -> None:
    clock = ManualClock()
    usual = UsualDelay(clock.monotonic_ms)
    leaving = Departure(clock.monotonic_ms, usual, clock.monotonic_ms(), 0)
    clock.advance(60)
    leaving.leave()
    assert leaving.left_ms == clock.monotonic_ms()


def test_a_pause_sends_nothing_late_once_the_usual_delay_is_known() -> None:
    clock = ManualClock()
    usual = UsualDelay(clock.monotonic_ms)
    first = departure(clock, usual)
    clock.advance(0.01)
    first.leave()
    waiting = [departure(clock, usual) for _ in range(50)]
    clock.advance(9)
    for each in waiting:
        with pytest.raises(PermitExpiredError):
            each.leave()


def test_the_usual_delay_is_forgotten_after_a_minute() -> None:
    clock = ManualClock()
    usual = UsualDelay(clock.monotonic_ms)
    usual.note(5)
    clock.advance(45)
    assert usual.least_ms == 5
    usual.note(300)
    clock.advance(46)
    assert usual.least_ms == 300
    clock.advance(120)
    assert usual.least_ms == 0


def test_a_request_that_may_not_leave_sends_no_byte_and_keeps_its_connection() -> None:
    async def scenario() -> tuple[int, int]:
        async with scripted_server([[http(200, b"{}")]]) as server:
            transport = Transport(connect_timeout_s=5.0)
            url, headers = httpx.URL(server.url), httpx.Headers({"host": "x"})

            def late() -> None:
                raise PermitExpiredError("late")

            with pytest.raises(PermitExpiredError):
                await transport.send("POST", url, headers, b"{}", late)
            seen = len(server.received)
            reply = await transport.send("POST", url, headers, b"{}", lambda: None)
            await reply.aclose()
            await transport.aclose()
            return seen, len(server.received)

    assert asyncio.run(scenario()) == (0, 1)


def test_a_late_claim_is_requeued_without_a_call_and_without_an_attempt() -> None:
    async def scene(parts: WorkerParts) -> None:
        (attempt,) = parts.grant(1)
        spent = {
            "requests_pace": 1,
            "requests_depth": 60_000_000,
            "requests_sent": 0,
            "requests_sent_ms": 10**14,
        }
        parts.scheduler.redis.hset(parts.keys.lane("sim:fast"), mapping=spent)

        assert await parts.executor.execute(attempt) == "Late"

        assert parts.provider.requests == []
        assert len(parts.hot(attempt)) == 1
        assert parts.state(attempt).get("retries", "0") == "0"

    on_loop(scene)


def test_a_call_that_leaves_too_late_is_requeued_without_an_attempt() -> None:
    async def scene(parts: WorkerParts) -> None:
        (attempt,) = parts.grant(1)
        wide = {"requests_pace": 10**6, "requests_depth": 10**12}
        parts.scheduler.redis.hset(parts.keys.lane("sim:fast"), mapping=wide)

        def answer(request: Request) -> Outcome:
            parts.clock.advance(5)
            request.leave()
            return NetworkFailure("it did leave")

        parts.provider.answer, parts.provider.leaves = answer, False
        assert await parts.executor.execute(attempt) == "Late"
        assert len(parts.hot(attempt)) == 1
        assert parts.state(attempt).get("retries", "0") == "0"

    on_loop(scene)
