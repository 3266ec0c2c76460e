"""Calls in flight take their latency, can be cancelled, and end with the server."""

import asyncio
from typing import Any

import aiohttp
import pytest

from fairlane.core.clock import Clock
from fairlane.testing import SimulatedModel, SimulatedProvider, SimulatorConfig

CALL = {"model": "fast", "messages": [{"role": "user", "content": "Why?"}]}


def config(**fields: Any) -> SimulatorConfig:
    return SimulatorConfig(models={"fast": SimulatedModel.model_validate(fields)})


def test_a_call_beyond_the_concurrency_limit_is_rejected() -> None:
    async def scenario() -> None:
        gate = Gate()
        provider = SimulatedProvider(config(max_concurrency=2), sleep=gate.sleep)
        await provider.start()
        async with aiohttp.ClientSession(provider.url) as session:
            waiting = [asyncio.create_task(status(session)) for _ in range(2)]
            await gate.entered(2)
            assert await status(session) == 429
            gate.opened.set()
            assert await asyncio.gather(*waiting) == [200, 200]
        stats = provider.stats().models["fast"]
        await provider.stop()
        assert (stats.peak_in_flight, stats.rejected_by.concurrency) == (2, 1)

    asyncio.run(scenario())


@pytest.mark.parametrize("full", [429, 503])
def test_a_call_beyond_the_concurrency_limit_waits_and_one_beyond_the_queue_is_rejected(full: int) -> None:
    async def scenario() -> None:
        gate = Gate()
        fields = {"max_concurrency": 1, "queue": 2, "concurrency_status": full}
        provider = SimulatedProvider(config(**fields), sleep=gate.sleep)
        await provider.start()
        async with aiohttp.ClientSession(provider.url) as session:
            waiting = [asyncio.create_task(status(session)) for _ in range(3)]
            while provider.stats().models["fast"].in_flight < 3:
                await asyncio.wait(waiting, timeout=0.001)
            assert gate.inside == 1
            assert await status(session) == full
            gate.opened.set()
            assert await asyncio.gather(*waiting) == [200, 200, 200]
        stats = provider.stats().models["fast"]
        await provider.stop()
        assert (gate.most_inside, gate.passed) == (1, 3)
        assert (stats.completed, stats.in_flight, stats.rejected_by.concurrency) == (3, 0, 1)

    asyncio.run(scenario())


def test_a_client_that_leaves_the_queue_loses_its_turn() -> None:
    async def scenario() -> None:
        gate = Gate()
        provider = SimulatedProvider(config(max_concurrency=1, queue=2), sleep=gate.sleep)
        await provider.start()
        async with aiohttp.ClientSession(provider.url) as session:
            served = asyncio.create_task(status(session))
            await gate.entered(1)
            waiting = [asyncio.create_task(status(session)) for _ in range(2)]
            while provider.stats().models["fast"].in_flight < 3:
                await asyncio.wait(waiting, timeout=0.001)
            waiting[0].cancel()
            while provider.stats().models["fast"].abandoned < 1:
                await asyncio.wait(waiting[1:], timeout=0.001)
            gate.opened.set()
            assert await asyncio.gather(served, waiting[1]) == [200, 200]
        stats = provider.stats().models["fast"]
        await provider.stop()
        assert (gate.passed, stats.completed, stats.abandoned, stats.in_flight) == (2, 2, 1, 0)

    asyncio.run(scenario())


def test_a_call_that_its_client_cancels_is_abandoned() -> None:
    async def scenario() -> None:
        gate = Gate()
        provider = SimulatedProvider(config(max_concurrency=1), sleep=gate.sleep)
        await provider.start()
        async with aiohttp.ClientSession(provider.url) as session:
            call = asyncio.create_task(status(session))
            await gate.entered(1)
            call.cancel()
            await gate.left.wait()
        stats = provider.stats().models["fast"]
        await provider.stop()
        assert (stats.abandoned, stats.in_flight, stats.completed) == (1, 0, 0)

    asyncio.run(scenario())


@pytest.mark.parametrize("fault", [None, "hang"])
def test_stopping_cuts_off_calls_in_flight(fault: str | None) -> None:
    async def scenario() -> None:
        gate, clock = Gate(), Watched()
        provider = SimulatedProvider(
            config(faults={fault: 1} if fault else {}), sleep=gate.sleep, clock=clock
        )
        await provider.start()
        async with aiohttp.ClientSession(provider.url) as session:
            clock.asked.clear()
            call = asyncio.create_task(status(session))
            await clock.asked.wait()
            await provider.stop()
            with pytest.raises(aiohttp.ClientError):
                await call

    asyncio.run(scenario())


def test_the_latency_is_spread_over_the_chunks_of_a_stream() -> None:
    waits = list[float]()

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    async def scenario(**fields: Any) -> None:
        provider = SimulatedProvider(config(latency_ms=800, **fields), sleep=sleep)
        await provider.start()
        async with aiohttp.ClientSession(provider.url) as session:
            await status(session)
            await status(session, stream=True)
        await provider.stop()

    asyncio.run(scenario(chunks=4, first_chunk_share=0.4))
    assert waits == pytest.approx([0.8, 0.32, 0.16, 0.16, 0.16])
    waits.clear()
    asyncio.run(scenario(chunks=1))
    assert waits == [0.8, 0.8]


async def status(session: aiohttp.ClientSession, stream: bool = False) -> int:
    async with session.post("/v1/chat/completions", json={**CALL, "stream": stream}) as answer:
        await answer.read()
        return answer.status


class Gate:
    """A sleep that lasts until the gate opens, and counts its sleepers."""

    def __init__(self) -> None:
        self.opened, self.left = asyncio.Event(), asyncio.Event()
        self._inside = asyncio.Semaphore(0)
        self.inside = self.most_inside = self.passed = 0

    async def sleep(self, _: float) -> None:
        self._inside.release()
        self.inside += 1
        self.most_inside = max(self.most_inside, self.inside)
        try:
            await self.opened.wait()
            self.passed += 1
        finally:
            self.inside -= 1
            self.left.set()

    async def entered(self, count: int) -> None:
        for _ in range(count):
            await self._inside.acquire()


class Watched(Clock):
    """A clock that signals each reading."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    def now_ms(self) -> int:
        return 0

    def monotonic_ms(self) -> int:
        self.asked.set()
        return 0

    def cpu_ms(self) -> float:
        return 0.0
