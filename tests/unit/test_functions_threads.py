"""Threads for functions that block."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from fairlane.core.daemon_threads import DaemonThreads as Threads
from tests.support.wait import wait_until

NAME = "fairlane-test-function"


def on_loop(most: int, scene: Callable[[Threads], Coroutine[Any, Any, None]]) -> None:
    """Play a scene; afterwards none of its threads is left."""
    threads = Threads(most, NAME)
    try:
        asyncio.run(scene(threads))
    finally:
        threads.close()
    wait_until(lambda: not living())


def living() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == NAME]


def test_what_a_function_returns_or_raises_comes_back() -> None:
    async def scene(threads: Threads) -> None:
        assert await threads.run(lambda: 5) == 5
        with pytest.raises(ZeroDivisionError):
            await threads.run(lambda: 1 // 0)

    on_loop(2, scene)


def test_a_function_that_ends_the_process_ends_nothing() -> None:
    def leave() -> None:
        raise SystemExit(3)

    async def scene(threads: Threads) -> None:
        with pytest.raises(SystemExit):
            await threads.run(leave)
        assert await threads.run(lambda: 5) == 5

    on_loop(1, scene)


def test_there_are_never_more_at_once_than_threads() -> None:
    lock, gate, now, peak = threading.Lock(), threading.Event(), [0], [0]

    def work() -> None:
        with lock:
            now[0] += 1
            peak[0] = max(peak[0], now[0])
            if now[0] == 3:
                gate.set()
        gate.wait()
        with lock:
            now[0] -= 1

    async def scene(threads: Threads) -> None:
        await asyncio.gather(*(threads.run(work) for _ in range(12)))

    on_loop(3, scene)
    assert peak[0] == 3


def test_a_thread_is_used_again() -> None:
    async def scene(threads: Threads) -> None:
        seen = set()
        for _ in range(5):
            seen.add(await threads.run(threading.get_ident))
            wait_until(lambda: threads._idle)
        assert len(seen) == 1

    on_loop(4, scene)


def test_the_callers_context_goes_along() -> None:
    name: contextvars.ContextVar[str] = contextvars.ContextVar("name", default="nobody")

    async def scene(threads: Threads) -> None:
        name.set("caller")
        assert await threads.run(name.get) == "caller"

    on_loop(1, scene)


def test_a_thread_that_nobody_waits_for_is_replaced() -> None:
    gate, begun = threading.Event(), threading.Event()

    def stuck() -> None:
        begun.set()
        gate.wait()

    async def scene(threads: Threads) -> None:
        call = asyncio.create_task(threads.run(stuck))
        next_call = asyncio.create_task(threads.run(lambda: 5))
        await asyncio.to_thread(begun.wait)
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)

        assert await next_call == 5
        gate.set()

    on_loop(1, scene)


def test_a_call_that_is_cancelled_before_its_turn_is_never_made() -> None:
    gate, made = threading.Event(), list[int]()

    async def scene(threads: Threads) -> None:
        first = asyncio.create_task(threads.run(gate.wait))
        second = asyncio.create_task(threads.run(lambda: made.append(1)))
        await asyncio.wait([first], timeout=0)
        second.cancel()
        await asyncio.gather(second, return_exceptions=True)
        gate.set()
        await first
        assert await threads.run(lambda: 5) == 5

    on_loop(1, scene)
    assert made == []


def test_a_function_that_never_returns_does_not_hold_up_the_end_of_the_process() -> None:
    async def scene(threads: Threads) -> None:
        assert await threads.run(lambda: threading.current_thread().daemon)

    on_loop(1, scene)


def test_a_thread_that_cannot_start_takes_no_place_and_leaves_no_call_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = list[int]()

    def fail(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def scene(threads: Threads) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", fail)
            with pytest.raises(OSError, match="start new thread"):
                await threads.run(lambda: made.append(1))
        async with asyncio.timeout(1):
            assert await threads.run(lambda: 5) == 5

    on_loop(1, scene)
    assert made == []


def test_a_call_waits_for_a_thread_that_runs_if_no_other_can_start(monkeypatch: pytest.MonkeyPatch) -> None:
    gate = threading.Event()

    def fail(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def scene(threads: Threads) -> None:
        first = asyncio.create_task(threads.run(gate.wait))
        await asyncio.wait([first], timeout=0.01)
        monkeypatch.setattr(threading.Thread, "start", fail)
        second = asyncio.create_task(threads.run(lambda: 5))
        await asyncio.wait([second], timeout=0.01)
        gate.set()
        async with asyncio.timeout(1):
            assert await second == 5

    on_loop(2, scene)
