"""A run has each row once that its writer accepted, whoever writes and whatever fails meanwhile."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from redis import Redis
from redis.exceptions import ConnectionError as RedisConnectionError

from fairlane import RunEnded, StoreUnavailable, SubmissionError
from fairlane.client.asynchronous.threads import Threads
from fairlane.client.deployment import Wait, finish
from fairlane.client.submitting import row_writer
from fairlane.client.submitting.row_writer import OPEN_PAGE_ROWS, RowWriter
from fairlane.datasets.rows import decode_page
from fairlane.model.run import RunRef, RunState
from fairlane.store.write.runs.inbox import Inbox, Outbox
from tests.support.stage import Stage
from tests.unit.test_async_client import on

LOOSE = settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
PAGE = 4


def opened(stage: Stage, **options: Any) -> RowWriter:
    return stage.client.open("{{ q }}", model="sim:fast", **{"check": False, **options})


def stored(stage: Stage, run: Any) -> list[dict[str, Any]]:
    """The rows of a run as its pages in Redis have them, in order."""
    pages = stage.redis.hgetall(stage.keys.rows(RunRef(run.team, run.id)))
    return [row for number in range(len(pages)) for row in decode_page(pages[str(number).encode()])]


def announced(stage: Stage) -> tuple[int, bool]:
    """How many rows the last request says that the run has, and whether it gets no more."""
    *_, last = [each for each in Inbox(stage.redis, stage.keys).peek("search") if each is not None]
    return last.rows, last.last


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_writer, "OPEN_PAGE_ROWS", PAGE)
    monkeypatch.setattr(row_writer, "PAGES_AHEAD", 1000)


class Flaky:
    """Makes the sends of a writer fail by a plan: before or after they have had their effect."""

    def __init__(
        self, patch: pytest.MonkeyPatch, plan: Iterator[tuple[str, type[BaseException]] | None]
    ) -> None:
        self._plan = plan
        for name in ("append", "extend"):
            patch.setattr(Outbox, name, self._failing(getattr(Outbox, name)))

    def _failing(self, send: Callable[..., None]) -> Callable[..., None]:
        def sent(*args: Any, **options: Any) -> None:
            when, error = next(self._plan, None) or ("", RuntimeError)
            if when == "before":
                raise error
            send(*args, **options)
            if when == "after":
                raise error

        return sent


FAILURES = st.none() | st.tuples(
    st.sampled_from(["before", "after"]), st.sampled_from([RedisConnectionError, KeyboardInterrupt])
)


@given(data=st.data(), plan=st.lists(FAILURES, max_size=30))
@settings(LOOSE, max_examples=150)
def test_each_accepted_row_is_in_the_run_once_whatever_fails(
    fake_redis: Redis, small_pages: None, data: st.DataObject, plan: list[Any]
) -> None:
    """Producers take turns by the step; some are abandoned, sends fail, and the close is repeated."""
    fake_redis.flushdb()
    stage, accepted = Stage(fake_redis), list[str]()

    def source(producer: int) -> Iterator[dict[str, str]]:
        for number in range(data.draw(st.integers(0, 3 * PAGE))):
            accepted.append(f"{producer}-{number}")
            yield {"q": accepted[-1]}

    with pytest.MonkeyPatch.context() as patch:
        Flaky(patch, iter(plan))
        writer = opened(stage)
        sources = [source(producer) for producer in range(3)]
        steps: dict[int, Any] = {}
        for _ in range(data.draw(st.integers(0, 25))):
            producer = data.draw(st.integers(0, 2))
            if data.draw(st.integers(0, 5)) == 0:
                if producer in steps:
                    steps.pop(producer).close()  # abandoned
                continue
            running = steps.setdefault(producer, writer.extending(sources[producer]))
            try:
                next(running)
            except (StopIteration, StoreUnavailable, KeyboardInterrupt):
                del steps[producer]  # this producer goes on with its next row
        for running in steps.values():
            running.close()
        while True:
            with suppress(StoreUnavailable, KeyboardInterrupt):
                run = writer.close()
                break
    assert [row["q"] for row in stored(stage, run)] == accepted
    assert writer.accepted == len(accepted)
    assert announced(stage) == (len(accepted), True)


def test_threads_may_share_a_writer(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_writer, "PAGES_AHEAD", 1000)
    writer = opened(stage)

    def produce(name: int) -> None:
        for number in range(300):
            writer.write({"q": f"{name}-{number}"})

    producers = [threading.Thread(target=produce, args=(name,)) for name in range(8)]
    for each in producers:
        each.start()
    for each in producers:
        each.join()
    found = [row["q"] for row in stored(stage, writer.close())]
    assert Counter(found) == Counter(f"{name}-{number}" for name in range(8) for number in range(300))
    for name in range(8):
        mine = [each for each in found if each.startswith(f"{name}-")]
        assert mine == [f"{name}-{number}" for number in range(300)]


def test_tasks_may_share_a_writer(stage: Stage) -> None:
    async def body(client: Any) -> Any:
        async with client.open("{{ q }}", model="sim:fast") as writer:

            async def produce(name: int) -> None:
                for number in range(300):
                    await writer.write({"q": f"{name}-{number}"})

            await asyncio.gather(*(produce(name) for name in range(8)))
        assert writer.accepted == 2400
        return writer.run

    run = on(stage, body)
    found = Counter(row["q"] for row in stored(stage, run))
    assert found == Counter(f"{name}-{number}" for name in range(8) for number in range(300))


def test_a_write_that_times_out_has_written_its_row(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_writer, "PAGES_AHEAD", 0)

    async def body(client: Any) -> Any:
        async with client.open("{{ q }}", model="sim:fast") as writer:
            await writer.write(*({"q": n} for n in range(OPEN_PAGE_ROWS - 1)))
            for n in (OPEN_PAGE_ROWS - 1, OPEN_PAGE_ROWS):
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(writer.write({"q": n}), 0.1)
            writer._opened().sender._most_ahead = 10 * OPEN_PAGE_ROWS
        return writer.run

    run = on(stage, body)
    assert [row["q"] for row in stored(stage, run)] == list(range(OPEN_PAGE_ROWS + 1))


def test_no_row_is_added_after_the_end(stage: Stage) -> None:
    writer = opened(stage)
    writer.write({"q": 1})
    run = writer.close()
    for late in (lambda: writer.write({"q": 2}), lambda: writer.extend([{"q": 2}])):
        with pytest.raises(RunEnded, match="closed"):
            late()
    assert writer.close() is run
    assert stored(stage, run) == [{"q": 1}]
    requests = [each for each in Inbox(stage.redis, stage.keys).peek("search") if each and each.last]
    assert len(requests) == 1


def test_no_row_is_added_after_an_async_block(stage: Stage) -> None:
    async def body(client: Any) -> None:
        async with client.open("{{ q }}", model="sim:fast") as writer:
            await writer.write({"q": 1})
        with pytest.raises(RunEnded, match="closed"):
            await writer.write({"q": 2})

    on(stage, body)


def test_a_run_whose_rows_cannot_be_ended_is_cancelled(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StoreUnavailable), opened(stage) as writer:  # noqa: PT012
        writer.write({"q": 1})
        Flaky(monkeypatch, iter([("before", RedisConnectionError)]))
    stage.admit()
    assert writer.run.status().state is RunState.CANCELLED


def test_an_async_run_whose_rows_cannot_be_ended_is_cancelled(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body(client: Any) -> RunState:
        with pytest.raises(StoreUnavailable):  # noqa: PT012
            async with client.open("{{ q }}", model="sim:fast") as writer:
                await writer.write({"q": 1})
                Flaky(monkeypatch, iter([("before", RedisConnectionError)]))
        stage.admit()
        state: RunState = (await writer.run.status()).state
        return state

    assert on(stage, body) is RunState.CANCELLED


def test_the_error_of_a_block_stays_where_its_run_cannot_be_cancelled(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: Any) -> None:
        raise RedisConnectionError("away")

    with pytest.raises(KeyError) as caught, opened(stage) as writer:  # noqa: PT012
        writer.write({"q": 1})
        monkeypatch.setattr(Outbox, "cancel", away)
        raise KeyError("mine")
    assert any("could not be cancelled" in note for note in caught.value.__notes__)
    with pytest.raises(RunEnded):
        writer.write({"q": 2})


def test_a_row_that_is_refused_leaves_the_others(stage: Stage) -> None:
    writer = opened(stage)
    for row in ({"q": 1}, {"q": object()}, {"q": "x" * 2_000_000}, {"q": 2}):
        with suppress(SubmissionError):
            writer.write(row)
    assert stored(stage, writer.close()) == [{"q": 1}, {"q": 2}]


def test_a_page_that_grows_too_large_is_refused_with_the_row_that_does_it(stage: Stage) -> None:
    writer = opened(stage)
    with pytest.raises(SubmissionError, match=r"Client\.submit"):
        writer.extend({"q": "x" * 1_000_000} for _ in range(100))
    assert writer.accepted == 67
    writer.extend({"q": n} for n in range(OPEN_PAGE_ROWS))
    assert len(stored(stage, writer.close())) == 67 + OPEN_PAGE_ROWS


def mutated(count: int) -> Iterator[dict[str, Any]]:
    """One dict again and again, as programs reuse it, with a list that grows."""
    row: dict[str, Any] = {"q": 0, "h": [], "deep": {"n": []}}
    for number in range(count):
        row["q"] = number
        row["h"].append(number)
        row["deep"]["n"].append(number)
        yield row


def intact(rows: list[dict[str, Any]]) -> bool:
    return all(
        row["q"] == n and len(row["h"]) == n + 1 == len(row["deep"]["n"]) for n, row in enumerate(rows)
    )


@pytest.mark.parametrize("count", [1, 2, 99, 100, 101, OPEN_PAGE_ROWS])
@pytest.mark.parametrize("way", ["submit", "unchecked", "extend", "write", "async"])
def test_what_a_program_does_to_a_row_later_does_not_reach_the_run(
    stage: Stage, count: int, way: str
) -> None:
    if way in ("submit", "unchecked"):
        run: Any = stage.client.submit(mutated(count), "{{ q }}", model="sim:fast", check=way == "submit")
    elif way == "async":

        async def body(client: Any) -> Any:
            async with client.open("{{ q }}", model="sim:fast") as writer:
                for row in mutated(count):
                    await writer.write(row)
            return writer.run

        run = on(stage, body)
    else:
        writer = opened(stage, check=True)
        if way == "extend":
            writer.extend(mutated(count))
        else:
            for row in mutated(count):
                writer.write(row)
        run = writer.close()
    rows = stored(stage, run)
    assert len(rows) == count
    assert intact(rows)


def test_rows_that_do_not_suit_end_the_writer(stage: Stage) -> None:
    writer = opened(stage, check=True)
    with pytest.raises(SubmissionError, match="q"):
        writer.extend({"p": n} for n in range(200))
    for late in (lambda: writer.write({"q": 1}), writer.close):
        with pytest.raises(RunEnded, match="cancelled"):
            late()
    assert stored(stage, writer.run) == []


def test_an_interrupt_ends_the_steps_at_once() -> None:
    ended = []

    def steps() -> Any:
        try:
            yield Wait(1)
        finally:
            ended.append(True)

    class Interrupted:
        def wait(self, seconds: float) -> None:
            raise KeyboardInterrupt

    given = steps()
    with pytest.raises(KeyboardInterrupt):
        finish(given, Interrupted())
    assert ended == [True]


def test_rows_of_an_async_iterator_take_a_thread_by_the_page(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    visits, call = [], Threads.call

    async def counted(threads: Threads, *given: Any) -> Any:
        visits.append(given)
        return await call(threads, *given)

    async def rows() -> Any:
        for n in range(3 * OPEN_PAGE_ROWS):
            yield {"q": n}

    async def body(client: Any) -> Any:
        async with client.open("{{ q }}", model="sim:fast") as writer:
            monkeypatch.setattr(Threads, "call", counted)
            await writer.extend(rows())
        return writer.run

    run = on(stage, body)
    assert [row["q"] for row in stored(stage, run)] == list(range(3 * OPEN_PAGE_ROWS))
    assert len(visits) <= 10
