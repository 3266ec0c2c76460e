"""Attempts that one thread starts on another's loop: each runs, and a burst wakes that loop once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future

import pytest
from celery.exceptions import Reject

from fairlane_workers.intake.loop_pool import Starter

COUNT = 500


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    made = asyncio.new_event_loop()
    yield made
    made.close()


def count_wakes(loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    wakes, wake = [0], loop.call_soon_threadsafe

    def counted(callback: Callable[..., object], *args: object) -> asyncio.Handle:
        wakes[0] += 1
        return wake(callback, *args)

    monkeypatch.setattr(loop, "call_soon_threadsafe", counted)
    return wakes


def ended(loop: asyncio.AbstractEventLoop, futures: list[Future[str]]) -> None:
    """Run the loop until all futures have ended."""
    wrapped = [asyncio.wrap_future(future, loop=loop) for future in futures]
    loop.run_until_complete(asyncio.gather(*wrapped, return_exceptions=True))


async def number(n: int) -> str:
    if n % 7 == 0:
        raise ValueError(n)
    return str(n)


def test_a_burst_wakes_the_loop_once_and_each_future_gets_its_own_end(
    loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    wakes, starter = count_wakes(loop, monkeypatch), Starter(loop)
    futures = [starter.start(lambda n=n: number(n)) for n in range(COUNT)]  # type: ignore[misc]
    assert wakes == [1]
    ended(loop, futures)
    for n, future in enumerate(futures):
        assert repr(future.exception()) == (f"ValueError({n})" if n % 7 == 0 else "None")
        assert n % 7 == 0 or future.result() == str(n)
    before = wakes[0]
    last = starter.start(lambda: number(1))
    assert wakes[0] == before + 1
    ended(loop, [last])


def test_nothing_is_left_behind_when_threads_start_while_the_loop_begins(
    loop: asyncio.AbstractEventLoop,
) -> None:
    starter, futures = Starter(loop), list[object]()
    serving = threading.Thread(target=loop.run_forever)
    serving.start()

    def start_many() -> None:
        made = [starter.start(lambda: number(1)) for _ in range(COUNT)]
        futures.extend(future.result(timeout=10) for future in made)

    threads = [threading.Thread(target=start_many) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    loop.call_soon_threadsafe(loop.stop)
    serving.join()
    assert futures == ["1"] * (4 * COUNT)


def test_a_task_that_is_cancelled_cancels_its_future(loop: asyncio.AbstractEventLoop) -> None:
    async def forever() -> str:
        await asyncio.Event().wait()
        return ""

    future = Starter(loop).start(forever)

    async def cancel_it() -> None:
        while not (tasks := asyncio.all_tasks() - {asyncio.current_task()}):
            await asyncio.wait([asyncio.ensure_future(number(1))])
        for task in tasks:
            task.cancel()  # type: ignore[union-attr]
        await asyncio.wait(tasks)  # type: ignore[type-var]

    loop.run_until_complete(cancel_it())
    assert future.cancelled()


def test_a_loop_that_is_closed_takes_nothing(loop: asyncio.AbstractEventLoop) -> None:
    loop.close()
    with pytest.raises(RuntimeError):
        Starter(loop).start(lambda: number(1))


def test_what_the_loop_has_not_begun_goes_back_to_its_queue(loop: asyncio.AbstractEventLoop) -> None:
    starter = Starter(loop)
    futures = [starter.start(lambda n=n: number(n)) for n in range(1, 4)]  # type: ignore[misc]

    starter.put_back()

    for future in futures:
        error = future.exception(0)
        assert isinstance(error, Reject)
        assert error.requeue
    later = starter.start(lambda: number(5))
    ended(loop, [later])
    assert later.result() == "5"
