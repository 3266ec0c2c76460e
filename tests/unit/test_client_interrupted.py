"""Reading goes on after a timeout, an interrupt or an error, and what nobody waits for ends quietly."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from redis import Redis
from redis.exceptions import AuthenticationError

from fairlane.client.asynchronous.elements import Elements
from fairlane.client.asynchronous.threads import Threads, checkpoint
from fairlane.client.deployment import Blocking, Resumable, Wait, each_step
from fairlane.client.following import records
from fairlane.core.errors import FairlaneError, StoreUnavailable
from fairlane.evaluators.function_scorers import scorer
from fairlane.model.run import RunRef
from fairlane.store.read import reading
from tests.support.stage import Stage
from tests.support.wait import wait_until
from tests.unit.test_async_client import async_client, on, rows


class Rewound:
    """Steps of some elements that raise and pause in between, and begin again where they stopped."""

    def __init__(self, plan: list[int | str]) -> None:
        self._plan, self._next, self._raised = plan, 0, set[int]()

    def steps(self) -> Iterator[int | Wait]:
        while self._next < len(self._plan):
            each, number = self._plan[self._next], self._next
            if each == "error" and number not in self._raised:
                self._raised.add(number)
                raise StoreUnavailable("redis://x", "away")
            self._next += 1
            if isinstance(each, int):
                yield each
            elif each == "wait":
                yield Wait(0.1)


PLANS = st.lists(st.integers(0, 99) | st.sampled_from(["error", "wait"]), max_size=12)


def numbers(plan: list[int | str]) -> list[int]:
    return [each for each in plan if isinstance(each, int)]


async def a_turn(_: float = 0) -> None:
    """Let the event loop go on."""
    loop = asyncio.get_running_loop()
    turned = loop.create_future()
    loop.call_soon(lambda: turned.done() or turned.set_result(None))  # it may be cancelled
    await turned


async def cancelled_twice(task: asyncio.Task[Any]) -> None:
    """Cancel a task once more while its first cancellation waits for a thread; it has ended then."""
    for _ in range(2):
        task.cancel()
        await a_turn()
        await a_turn()
    with pytest.raises(asyncio.CancelledError):
        await task


def played(most: int, scene: Callable[[Threads], Coroutine[Any, Any, Any]]) -> Any:
    """Play a scene; asyncio has nothing to report of it."""
    threads, reported = Threads(most, a_turn), list[Any]()

    async def main() -> Any:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
        found = await scene(threads)
        gc.collect()
        await a_turn()
        return found

    try:
        return asyncio.run(main())
    finally:
        threads.close()
        assert reported == []


class Interrupting:
    """A waiter that is interrupted every second time."""

    def __init__(self) -> None:
        self._calls = 0

    def wait(self, seconds: float) -> None:
        self._calls += 1
        if self._calls % 2:
            raise KeyboardInterrupt


def read_on(found: Iterator[Any], errors: type[BaseException] | tuple[type[BaseException], ...]) -> list[Any]:
    seen = []
    while True:
        try:
            seen.append(next(found))
        except errors:
            continue
        except StopIteration:
            return seen


@given(PLANS)
def test_a_blocking_reader_goes_on_after_errors_and_interrupts(plan: list[int | str]) -> None:
    steps = each_step(lambda number: -number, Resumable(Rewound(plan).steps))
    found = read_on(Blocking(steps, Interrupting()), (StoreUnavailable, KeyboardInterrupt))

    assert found == [-number for number in numbers(plan)]


@settings(deadline=None)
@given(PLANS, st.lists(st.integers(0, 4), max_size=30), st.integers(1, 4))
def test_an_async_reader_loses_nothing_to_timeouts_and_errors(
    plan: list[int | str], turns: list[int], at_once: int
) -> None:
    async def scene(threads: Threads) -> list[int]:
        found, seen, left = Elements(threads, Resumable(Rewound(plan).steps), at_once=at_once), [], turns[:]
        while True:
            task = asyncio.ensure_future(anext(found))
            if left:
                for _ in range(left.pop()):
                    await a_turn()
                task.cancel()
            try:
                seen.append(await task)
            except (asyncio.CancelledError, StoreUnavailable):
                continue
            except StopAsyncIteration:
                return seen

    assert played(2, scene) == numbers(plan)


def test_tasks_may_share_an_iterator() -> None:
    async def scene(threads: Threads) -> list[int]:
        found, seen = Elements(threads, iter(range(500)), at_once=7), list[int]()

        async def read() -> None:
            async for each in found:
                seen.append(each)
                await a_turn()

        await asyncio.gather(*(read() for _ in range(5)))
        return sorted(seen)

    assert played(3, scene) == list(range(500))


class Flaky:
    """Redis that refuses its n-th command from now on, once for each ``n``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, redis: Redis, at: set[int]) -> None:
        self._count, self._at, self._real = 0, at, type(redis.connection_pool).get_connection
        monkeypatch.setattr(redis.connection_pool, "get_connection", self._get.__get__(self))
        self._pool = redis.connection_pool

    def _get(self, *args: Any, **kwargs: Any) -> Any:
        self._count += 1
        if self._count in self._at:
            raise AuthenticationError("no password")
        return self._real(self._pool, *args, **kwargs)


@pytest.mark.parametrize("read", ["stream", "results"])
@pytest.mark.parametrize("at", [{1}, {2}, {3}, {4}, {2, 4}, {3, 4, 5}, {1, 2, 3, 6}, set(range(1, 40, 2))])
def test_records_come_once_each_though_redis_refuses_requests_between_them(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, read: str, at: set[int]
) -> None:
    monkeypatch.setattr(reading, "RESULTS_AT_ONCE", 8)
    monkeypatch.setattr(records, "ITEMS_LISTED_AT_ONCE", 10)
    client_side = scorer(lambda output: len(output), name="length", where="client")
    run = stage.client.submit(rows(25), "{{ question }}", model="sim:fast", evaluators=[client_side])
    stage.admit()
    stage.answer(run.id, 25)
    found = getattr(run, read)()
    Flaky(monkeypatch, stage.redis, at)

    seen = read_on(found, StoreUnavailable)
    assert [record.item for record in seen] == list(range(25))
    assert next(found, None) is None
    assert run.status().client_scores["length"].count == 25


def test_a_scorer_that_is_interrupted_scores_its_record_again(stage: Stage) -> None:
    calls = []

    def length(output: str) -> int:
        calls.append(output)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return len(output)

    client_side = scorer(length, where="client")
    run = stage.client.submit(rows(3), "{{ question }}", model="sim:fast", evaluators=[client_side])
    stage.admit()
    stage.answer(run.id, 3)

    seen = read_on(run.results(), KeyboardInterrupt)
    assert [(each.item, each.scores["length"]) for each in seen] == [(0, 8.0), (1, 8.0), (2, 8.0)]


def test_a_listener_receives_what_is_published_between_two_timeouts(stage: Stage) -> None:
    async def body(client: Any) -> list[str]:
        run = await client.submit(rows(1), "{{ question }}", model="sim:fast")
        stage.admit()
        channel, chunks, heard = stage.keys.chunks(RunRef("search", run.id)), run.chunks(), list[str]()
        for number in range(4):
            task = asyncio.ensure_future(anext(chunks))
            await asyncio.to_thread(
                wait_until, lambda: dict(stage.redis.pubsub_numsub(channel)).get(channel.encode()), 30
            )
            task.cancel()
            stage.redis.publish(channel, json.dumps({"job": 0, "number": 1, "text": str(number)}))
            with contextlib.suppress(asyncio.CancelledError):
                heard.append((await task).text)
        while len(heard) < 4:
            heard.append((await anext(chunks)).text)
        await chunks.aclose()
        assert dict(stage.redis.pubsub_numsub(channel)) == {channel.encode(): 0}
        return heard

    assert on(stage, body) == ["0", "1", "2", "3"]


def test_asyncio_has_nothing_to_report_of_work_that_was_cancelled() -> None:
    begun, go_on = threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        go_on.wait(30)
        checkpoint()

    async def scene(threads: Threads) -> None:
        task = asyncio.create_task(threads.call(work))
        await asyncio.to_thread(begun.wait, 30)
        task.cancel()
        await a_turn()
        assert not task.done()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task

    played(1, scene)


def test_a_caller_that_is_cancelled_again_waits_no_longer_and_its_work_is_undone_later() -> None:
    begun, go_on, undone = threading.Event(), threading.Event(), list[int]()

    def work() -> int:
        begun.set()
        go_on.wait(30)
        return 7

    async def scene(threads: Threads) -> None:
        task = asyncio.create_task(threads.call(work, undone.append))
        await asyncio.to_thread(begun.wait, 30)
        await cancelled_twice(task)
        assert await threads.call(lambda: 5) == 5  # another thread has taken its place
        assert undone == []
        go_on.set()
        await asyncio.to_thread(wait_until, lambda: undone)

    played(1, scene)
    assert undone == [7]


def test_steps_that_a_thread_is_still_at_do_not_hold_up_their_caller() -> None:
    begun, go_on = threading.Event(), threading.Event()

    def steps() -> Any:
        begun.set()
        go_on.wait(30)
        yield Wait(0.1)

    async def scene(threads: Threads) -> None:
        task = asyncio.create_task(threads.finish(steps()))
        await asyncio.to_thread(begun.wait, 30)
        await cancelled_twice(task)
        go_on.set()

    played(1, scene)


def test_a_closed_client_says_that_it_is_closed(stage: Stage) -> None:
    async def main() -> None:
        client = async_client(stage)
        async with client:
            run = await client.submit(rows(1), "{{ question }}", model="sim:fast")
        await client.close()
        for again in (client.runs, run.status, run.wait, client.__aenter__):
            with pytest.raises(FairlaneError, match="this AsyncClient is closed"):
                await again()

    asyncio.run(main())


def test_threads_of_a_client_that_nobody_closed_end_with_it() -> None:
    async def scene(_: Threads) -> set[threading.Thread]:
        forgotten = Threads(1, a_turn)
        return {await forgotten.call(threading.current_thread)}

    (thread,) = played(1, scene)
    gc.collect()
    thread.join(30)
    assert not thread.is_alive()
