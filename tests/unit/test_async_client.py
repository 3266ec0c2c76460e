"""The async client: the blocking client's methods in threads, its pauses in the event loop."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from fairlane import AsyncCallHandle, AsyncCallMap, AsyncClient, AsyncRun, CallHandle, CallMap, Client, Run
from fairlane.client.asynchronous.elements import AT_ONCE
from fairlane.client.asynchronous.rows import AsyncRowWriter
from fairlane.client.submitting.row_writer import RowWriter
from fairlane.config.sections import RedisSettings
from fairlane.config.settings import Settings
from fairlane.core.errors import CallFailed, ConfigurationError, FairlaneError, RunTimeout, SubmissionError
from fairlane.model.job import JobState
from fairlane.model.run import RunRef, RunState
from fairlane.store.write.runs.inbox import Inbox
from tests.support.stage import Stage
from tests.support.wait import wait_until

TWINS = [
    (Client, AsyncClient),
    (Run, AsyncRun),
    (RowWriter, AsyncRowWriter),
    (CallHandle, AsyncCallHandle),
    (CallMap, AsyncCallMap),
]
ONLY_BLOCKING = {
    "over",
    "extending",
    "closing",
    "numbered",
    "result_of",
}  # how other code of the project makes or steps them


def async_client(stage: Stage, **options: Any) -> AsyncClient:
    async def pause(seconds: float) -> None:
        stage.wait(seconds)

    settings = Settings(redis=RedisSettings(deployment="test"), team="search")
    given = {"settings": settings, "redis": stage.redis, "clock": stage.clock, "pause": pause} | options
    return AsyncClient(**given)


def on(stage: Stage, body: Callable[[AsyncClient], Coroutine[Any, Any, Any]], **options: Any) -> Any:
    async def main() -> Any:
        async with async_client(stage, **options) as client:
            return await body(client)

    return asyncio.run(main())


def rows(count: int) -> list[dict[str, Any]]:
    return [{"question": number} for number in range(count)]


def public(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


@pytest.mark.parametrize(("blocking", "twin"), TWINS, ids=lambda kind: kind.__name__)
def test_every_public_method_is_on_the_async_side_with_the_same_arguments(blocking: type, twin: type) -> None:
    assert public(blocking) - ONLY_BLOCKING - public(twin) == set()
    for name in public(blocking) - ONLY_BLOCKING:
        ours, theirs = getattr(blocking, name), getattr(twin, name)
        if callable(ours):
            assert list(inspect.signature(ours).parameters) == list(inspect.signature(theirs).parameters), (
                name
            )
            assert inspect.getdoc(theirs), f"{twin.__name__}.{name} has no docstring"


def test_outside_a_loop_of_asyncio_the_client_says_what_to_use(stage: Stage) -> None:
    """As trio drives its coroutines."""
    with pytest.raises(FairlaneError, match="to_thread"):
        async_client(stage).runs().send(None)


def test_a_run_from_submission_to_summary(stage: Stage, tmp_path: Path) -> None:
    async def body(client: AsyncClient) -> None:
        run = await client.submit(rows(4), "{{ question }}", model="sim:fast", name="gsm8k")
        stage.admit()
        stage.then(lambda: stage.answer(run.id, 3), lambda: stage.answer(run.id, 1))
        status = await run.wait()
        assert (status.state, status.jobs_done, run.name, run.serial) == (
            RunState.COMPLETED,
            4,
            "gsm8k",
            False,
        )
        assert [record.output async for record in run.results()] == [f"answer {n}" for n in range(4)]
        assert (await run.summary()).items == 4
        assert await run.export(tmp_path / "all.jsonl") == 4
        assert [each.run for each in await client.runs(limit=1)] == [run.id]
        assert (await (await client.run(run.id)).status()).state is RunState.COMPLETED
        with pytest.raises(SubmissionError, match="model"):
            await client.submit(rows(1), "{{ question }}")

    on(stage, body)


def test_records_come_as_they_end_and_none_waits_for_a_whole_portion(stage: Stage) -> None:
    async def body(client: AsyncClient) -> list[int]:
        run = await client.submit(rows(AT_ONCE + 2), "{{ question }}", model="sim:fast")
        stage.admit()
        stage.then(lambda: stage.answer(run.id, 1), lambda: stage.answer(run.id, AT_ONCE + 1))
        stream, seen = run.stream(), []
        async for record in stream:
            if not seen:
                assert (await run.status()).jobs_done == 1
            seen.append(record.item)
        return seen

    assert on(stage, body) == list(range(AT_ONCE + 2))


def test_a_wait_holds_no_thread_and_ends_at_its_timeout(stage: Stage) -> None:
    async def body(client: AsyncClient) -> None:
        run = await client.submit(rows(1), "{{ question }}", model="sim:fast")
        stage.admit()
        waits = [asyncio.create_task(run.wait()) for _ in range(5)]
        while not stage.waits:
            await asyncio.wait([asyncio.create_task(run.status())])
        stage.answer(run.id, 1)
        assert {status.state for status in await asyncio.gather(*waits)} == {RunState.COMPLETED}
        other = await client.submit(rows(1), "{{ question }}", model="sim:fast")
        with pytest.raises(RunTimeout):
            await other.wait(timeout=3.0)

    on(stage, body, threads=1)


class Stopping:
    """Rows that stop in the middle, until the test goes on."""

    def __init__(self, before: int) -> None:
        self.before, self.reached, self.go_on = before, threading.Event(), threading.Event()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        yield from rows(self.before)
        self.reached.set()
        assert self.go_on.wait(30)
        yield from rows(10_000)


def test_a_cancelled_submission_leaves_no_run_and_no_row(stage: Stage) -> None:
    dataset = Stopping(700)
    before = set(stage.redis.keys())

    async def body(client: AsyncClient) -> list[Any]:
        task = asyncio.create_task(client.submit(dataset, "{{ question }}", model="sim:fast"))
        assert await asyncio.to_thread(dataset.reached.wait, 30)
        task.cancel()
        asyncio.get_running_loop().call_soon(dataset.go_on.set)
        with pytest.raises(asyncio.CancelledError):
            await task
        return await client.runs()

    assert on(stage, body) == []
    assert set(stage.redis.keys()) == before


def test_a_submission_that_was_over_when_its_task_was_cancelled_is_cancelled_too(stage: Stage) -> None:
    async def body(client: AsyncClient) -> None:
        dataset = Stopping(0)
        dataset.go_on.set()

        def few() -> Iterator[dict[str, Any]]:
            yield from rows(1)
            task.get_loop().call_soon_threadsafe(task.cancel)
            wait_until(lambda: task.cancelling() > 0, 30)

        task = asyncio.create_task(client.submit(few(), "{{ question }}", model="sim:fast"))
        with pytest.raises(asyncio.CancelledError):
            await task
        stage.admit()
        assert {each.state for each in await client.runs()} <= {RunState.CANCELLED}

    on(stage, body)


def test_a_cancelled_wait_leaves_the_run_as_it_is(stage: Stage) -> None:
    async def body(client: AsyncClient) -> None:
        run = await client.submit(rows(1), "{{ question }}", model="sim:fast")
        stage.admit()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0):
                await run.wait()
        assert (await run.status()).state is RunState.RUNNING
        await run.pause()
        await run.resume()
        await run.cancel()
        stage.admit()
        assert (await run.wait()).state is RunState.CANCELLED

    on(stage, body)


def test_rows_that_follow_may_come_from_an_async_iterator(stage: Stage) -> None:
    async def questions() -> AsyncIterator[dict[str, Any]]:
        for row in rows(3):
            yield row

    async def body(client: AsyncClient) -> None:
        async with client.open("{{ question }}", model="sim:fast") as writer:
            await writer.write({"question": "first"})
            await writer.extend(questions())
            await writer.extend(rows(2))

    on(stage, body)
    *_, last = Inbox(stage.redis, stage.keys).peek("search")
    assert last is not None
    assert (last.op, last.rows, last.last) == ("extend", 6, True)


def test_a_block_of_rows_that_raises_cancels_its_run(stage: Stage) -> None:
    async def body(client: AsyncClient) -> RunState:
        writer = client.open("{{ question }}", model="sim:fast")
        with pytest.raises(SubmissionError, match="object"):
            async with writer:
                await writer.write({"question": 1}, {"question": object()})
        stage.admit()
        return (await writer.run.status()).state

    assert on(stage, body) is RunState.CANCELLED


def test_a_call_returns_its_result_and_a_map_its_results(stage: Stage) -> None:
    stage.deployment.lane("function:ledger")

    def end(run: str, **result: Any) -> None:
        stage.admit()
        stage.answer(run, 1, **result)

    async def body(client: AsyncClient) -> None:
        call = await client.call("app.tasks.fetch", [1], lane="ledger")
        stage.then(lambda: end(call.id, output='{"id": 1}'))
        assert await call.result() == {"id": 1}
        assert await call.done()
        calls = await client.map("app.tasks.fetch", [((1,), {}), ((2,), {})], lane="ledger")
        stage.then(
            lambda: end(calls.id, output="3"), lambda: end(calls.id, state=JobState.FAILED, error="gone")
        )
        found = [each async for each in calls.stream()]
        assert found[0] == (0, 3)
        assert isinstance(found[1][1], CallFailed)
        assert (await calls.results(return_exceptions=True))[0] == 3
        with pytest.raises(CallFailed, match="gone"):
            await calls.results()

    on(stage, body)


def test_why_says_what_the_run_waits_for(stage: Stage) -> None:
    async def body(client: AsyncClient) -> tuple[str, str]:
        run = await client.submit(rows(1), "{{ question }}", model="sim:fast")
        stage.admit()
        return (await run.why()).sentence, (await client.why(run.id)).sentence

    first, second = on(stage, body)
    assert first == second


def test_a_number_of_threads_below_one_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="threads"):
        AsyncClient(threads=0)


def test_chunks_arrive_until_the_loop_over_them_ends(stage: Stage) -> None:
    async def body(client: AsyncClient) -> list[tuple[int, str]]:
        run = await client.submit(rows(1), "{{ question }}", model="sim:fast")
        stage.admit()
        channel = stage.keys.chunks(RunRef("search", run.id))

        def publish() -> None:
            wait_until(lambda: dict(stage.redis.pubsub_numsub(channel)).get(channel.encode()), 30)
            for text in ("four", " and"):
                stage.redis.publish(channel, json.dumps({"job": 0, "number": 1, "text": text}))

        talking, heard = asyncio.create_task(asyncio.to_thread(publish)), list[tuple[int, str]]()
        async with contextlib.aclosing(run.chunks()) as chunks:
            async for chunk in chunks:
                heard.append((chunk.item, chunk.text))
                if len(heard) == 2:
                    break
        await talking
        assert dict(stage.redis.pubsub_numsub(channel)) == {channel.encode(): 0}
        return heard

    assert on(stage, body) == [(0, "four"), (0, " and")]


FORKS = """
import asyncio, os, warnings
from fairlane.client.asynchronous.threads import Threads

warnings.simplefilter("ignore")  # Python warns of forks beside threads
threads = Threads(2, asyncio.sleep)


async def answer():
    return await asyncio.wait_for(threads.call(lambda: 42), 10)


assert asyncio.run(answer()) == 42
child = os.fork()
if child == 0:
    try:
        os._exit(asyncio.run(answer()))
    finally:
        os._exit(1)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), asyncio.run(answer()))
"""


def test_threads_of_a_client_are_there_again_in_a_forked_child() -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORKS], capture_output=True, text=True, timeout=60, check=False
    )

    assert (done.stdout.split(), done.stderr) == (["42", "42"], "")
