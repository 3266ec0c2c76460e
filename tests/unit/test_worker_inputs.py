"""Inputs of an attempt: one read serves many attempts, a failure is not kept, hostile rows fail the job."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from fairlane.core.errors import RunGone
from fairlane.core.lru import SharedReads
from fairlane.model.job import Attempt, JobState
from fairlane.model.results import TaskResult
from fairlane.model.run import RunRef
from fairlane_workers.execution.inputs import PAGES_KEPT, RUNS_KEPT
from tests.support.worker_parts import WorkerParts, on_loop


class Reader:
    """Counts reads; each lasts until its gate opens."""

    def __init__(self) -> None:
        self.reads: list[Any] = []
        self.gate = asyncio.Event()
        self.started = asyncio.Event()
        self.error: Exception | None = None

    def of(self, key: Any) -> Callable[[], Coroutine[Any, Any, str]]:
        async def read() -> str:
            self.reads.append(key)
            self.started.set()
            await self.gate.wait()
            if self.error is not None:
                raise self.error
            return f"value of {key}"

        return read


def test_concurrent_readers_share_one_read() -> None:
    async def scene() -> None:
        kept, reader = SharedReads[str, str](4), Reader()
        tasks = [asyncio.create_task(kept.get("a", reader.of("a"))) for _ in range(20)]
        await reader.started.wait()
        reader.gate.set()

        assert set(await asyncio.gather(*tasks)) == {"value of a"}
        assert await kept.get("a", reader.of("a")) == "value of a"
        assert reader.reads == ["a"]

    asyncio.run(scene())


def test_a_failure_reaches_every_reader_and_is_not_kept() -> None:
    async def scene() -> None:
        kept, reader = SharedReads[str, str](4), Reader()
        reader.error = RunGone("gone")
        tasks = [asyncio.create_task(kept.get("a", reader.of("a"))) for _ in range(3)]
        await reader.started.wait()
        reader.gate.set()
        failed = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(error) for error in failed] == [RunGone] * 3

        reader.error = None
        assert await kept.get("a", reader.of("a")) == "value of a"
        assert reader.reads == ["a", "a"]

    asyncio.run(scene())


def test_a_cancelled_reader_does_not_end_the_read_for_the_others() -> None:
    async def scene() -> None:
        kept, reader = SharedReads[str, str](4), Reader()
        patient, hasty = (asyncio.create_task(kept.get("a", reader.of("a"))) for _ in range(2))
        await reader.started.wait()
        hasty.cancel()
        await asyncio.gather(hasty, return_exceptions=True)
        reader.gate.set()

        assert await patient == "value of a"
        assert reader.reads == ["a"]

    asyncio.run(scene())


def test_a_failure_without_a_reader_is_not_kept() -> None:
    async def scene() -> None:
        kept, reader = SharedReads[str, str](4), Reader()
        reader.error = RunGone("gone")
        task = asyncio.create_task(kept.get("a", reader.of("a")))
        await reader.started.wait()
        reading = kept._reads.get("a")
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        reader.gate.set()
        await asyncio.wait([reading])

        reader.error = None
        assert await kept.get("a", reader.of("a")) == "value of a"

    asyncio.run(scene())


def test_a_key_dropped_during_its_read_is_read_again() -> None:
    async def scene() -> None:
        kept, reader = SharedReads[str, str](4), Reader()
        first = asyncio.create_task(kept.get("a", reader.of("a")))
        await reader.started.wait()
        kept.drop_where(lambda key: key == "a")
        reader.gate.set()

        assert await first == "value of a"
        await kept.get("a", reader.of("a"))
        assert reader.reads == ["a", "a"]

    asyncio.run(scene())


def test_the_most_recently_used_values_are_kept() -> None:
    async def scene() -> None:
        kept, reader = SharedReads[str, str](2), Reader()
        reader.gate.set()
        for key in ("a", "b", "a", "c", "a", "b"):
            await kept.get(key, reader.of(key))

        assert reader.reads == ["a", "b", "c", "b"]

    asyncio.run(scene())


def test_neighbouring_attempts_read_their_run_and_their_page_once() -> None:
    async def scene(parts: WorkerParts) -> None:
        attempts = parts.grant([{"q": n} for n in range(150)], page_rows=100)
        parts.batcher.batches.clear()

        found = await asyncio.gather(*(parts.inputs.of(attempt) for attempt in attempts))

        assert [inputs.item.row for inputs in found] == [{"q": n} for n in range(150)]
        assert sum(parts.batcher.batches) == 5, "the run, and two pages, whose lengths are asked first"

    on_loop(scene)


def test_an_item_finds_its_row_prompt_and_model() -> None:
    async def scene(parts: WorkerParts) -> None:
        attempts = parts.grant(
            [{"q": "a"}, {"q": "b"}], model=["sim:fast", "sim:{{ 'fast' }}"], repetitions=3
        )

        inputs = await parts.inputs.of(attempts[-1])

        assert (inputs.item.row, inputs.item.cell.model, inputs.item.cell.repetition) == ({"q": "b"}, 1, 2)

    on_loop(scene)


def test_a_judge_finds_the_output_it_is_to_judge() -> None:
    async def scene(parts: WorkerParts) -> None:
        (task,) = parts.grant(1, judges=["sim:judge", "sim:judge2"])
        await parts.executor.execute(task)

        inputs = await parts.inputs.of(Attempt("r1", "search", 2, 1, "sim:judge2"))

        assert inputs.evaluation is not None
        assert (inputs.evaluation.name, inputs.output, inputs.problem) == ("judge1", "yes", None)

    on_loop(scene)


@pytest.mark.parametrize("stored", [None, TaskResult(JobState.FAILED).to_json()])
def test_a_judge_whose_output_is_gone_has_a_problem(stored: str | None) -> None:
    async def scene(parts: WorkerParts) -> None:
        parts.grant(1, judges=["sim:judge"])
        if stored is not None:
            parts.scheduler.redis.hset(parts.keys.results(RunRef("search", "r1")), "0", stored)

        inputs = await parts.inputs.of(Attempt("r1", "search", 1, 1, "sim:judge"))

        assert "output of job 0 is gone" in str(inputs.problem)

    on_loop(scene)


def test_a_page_that_is_too_short_is_a_problem_of_the_rows_it_lacks() -> None:
    async def scene(parts: WorkerParts) -> None:
        first, second = parts.grant(2)
        parts.scheduler.outbox.upload(RunRef("search", "r1"), [[{"q": "only one"}]])

        assert (await parts.inputs.of(first)).problem is None
        assert "row 2 is missing" in str((await parts.inputs.of(second)).problem)

    on_loop(scene)


def test_a_run_that_is_gone_is_reported_as_such() -> None:
    async def scene(parts: WorkerParts) -> None:
        with pytest.raises(RunGone, match="run nowhere is gone"):
            await parts.inputs.of(Attempt("nowhere", "search", 0, 1, "sim:fast"))

    on_loop(scene)


def test_forgetting_a_run_keeps_the_others() -> None:
    async def scene(parts: WorkerParts) -> None:
        (mine,) = parts.grant(1, run="r1")
        (other,) = parts.grant(1, run="r2")
        await asyncio.gather(parts.inputs.of(mine), parts.inputs.of(other))

        parts.inputs.forget(RunRef("search", "r1"))

        assert list(parts.inputs._runs._reads._values) == [RunRef("search", "r2")]
        assert list(parts.inputs._pages._reads._values) == [(RunRef("search", "r2"), 0)]

    on_loop(scene)


def test_what_is_kept_is_bounded() -> None:
    async def scene(parts: WorkerParts) -> None:
        for attempt in parts.grant(PAGES_KEPT + 10, page_rows=1):
            await parts.inputs.of(attempt)

        assert len(parts.inputs._pages) == PAGES_KEPT
        assert parts.inputs._runs._reads._most == RUNS_KEPT

    on_loop(scene)
