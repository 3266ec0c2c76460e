"""What an attempt works on: read once for many, failures not kept, hostile rows told as a problem."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from fairlane.job import Attempt, JobState
from fairlane.results import TaskResult
from fairlane.store.keys import RunRef
from fairlane_workers.material import PAGES_KEPT, RUNS_KEPT, MaterialGone, _Kept
from tests.support.worker_parts import WorkerParts, on_loop


class Reader:
    """Counts reads; each lasts until it is let go."""

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


def test_everyone_who_wants_a_value_shares_one_reading() -> None:
    async def scene() -> None:
        kept, reader = _Kept[str, str](4), Reader()
        tasks = [asyncio.create_task(kept.get("a", reader.of("a"))) for _ in range(20)]
        await reader.started.wait()
        reader.gate.set()

        assert set(await asyncio.gather(*tasks)) == {"value of a"}
        assert await kept.get("a", reader.of("a")) == "value of a"
        assert reader.reads == ["a"]

    asyncio.run(scene())


def test_a_failure_reaches_all_who_wait_and_is_not_kept() -> None:
    async def scene() -> None:
        kept, reader = _Kept[str, str](4), Reader()
        reader.error = MaterialGone("gone")
        tasks = [asyncio.create_task(kept.get("a", reader.of("a"))) for _ in range(3)]
        await reader.started.wait()
        reader.gate.set()
        failed = await asyncio.gather(*tasks, return_exceptions=True)
        assert [type(error) for error in failed] == [MaterialGone] * 3

        reader.error = None
        assert await kept.get("a", reader.of("a")) == "value of a"
        assert reader.reads == ["a", "a"]

    asyncio.run(scene())


def test_who_stops_waiting_does_not_end_the_reading_for_the_others() -> None:
    async def scene() -> None:
        kept, reader = _Kept[str, str](4), Reader()
        patient, hasty = (asyncio.create_task(kept.get("a", reader.of("a"))) for _ in range(2))
        await reader.started.wait()
        hasty.cancel()
        await asyncio.gather(hasty, return_exceptions=True)
        reader.gate.set()

        assert await patient == "value of a"
        assert reader.reads == ["a"]

    asyncio.run(scene())


def test_a_failure_that_nobody_waits_for_is_neither_kept_nor_left_unheard() -> None:
    async def scene() -> None:
        kept, reader = _Kept[str, str](4), Reader()
        reader.error = MaterialGone("gone")
        task = asyncio.create_task(kept.get("a", reader.of("a")))
        await reader.started.wait()
        reading = kept._values["a"]
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        reader.gate.set()
        await asyncio.wait([reading])

        reader.error = None
        assert await kept.get("a", reader.of("a")) == "value of a"

    asyncio.run(scene())


def test_what_was_forgotten_while_it_was_read_is_read_anew() -> None:
    async def scene() -> None:
        kept, reader = _Kept[str, str](4), Reader()
        first = asyncio.create_task(kept.get("a", reader.of("a")))
        await reader.started.wait()
        kept.drop(lambda key: key == "a")
        reader.gate.set()

        assert await first == "value of a"
        await kept.get("a", reader.of("a"))
        assert reader.reads == ["a", "a"]

    asyncio.run(scene())


def test_the_most_recently_used_values_are_kept() -> None:
    async def scene() -> None:
        kept, reader = _Kept[str, str](2), Reader()
        reader.gate.set()
        for key in ("a", "b", "a", "c", "a", "b"):
            await kept.get(key, reader.of(key))

        assert reader.reads == ["a", "b", "c", "b"]

    asyncio.run(scene())


def test_neighbouring_attempts_read_their_run_and_their_page_once() -> None:
    async def scene(parts: WorkerParts) -> None:
        attempts = parts.grant([{"q": n} for n in range(150)], page_rows=100)
        parts.batcher.batches.clear()

        found = await asyncio.gather(*(parts.materials.of(attempt) for attempt in attempts))

        assert [work.place.row for work in found] == [{"q": n} for n in range(150)]
        assert sum(parts.batcher.batches) == 3

    on_loop(scene)


def test_an_item_finds_its_row_prompt_and_model() -> None:
    async def scene(parts: WorkerParts) -> None:
        attempts = parts.grant(
            [{"q": "a"}, {"q": "b"}], model=["sim:fast", "sim:{{ 'fast' }}"], repetitions=3
        )

        work = await parts.materials.of(attempts[-1])

        assert (work.place.row, work.place.cell.model, work.place.cell.repetition) == ({"q": "b"}, 1, 2)

    on_loop(scene)


def test_a_judge_finds_the_output_it_is_to_judge() -> None:
    async def scene(parts: WorkerParts) -> None:
        (task,) = parts.grant(1, judges=["sim:judge", "sim:judge2"])
        await parts.executor.execute(task)

        work = await parts.materials.of(Attempt("r1", "search", 2, 1, "sim:judge2"))

        assert work.evaluation is not None
        assert (work.evaluation.name, work.judged, work.problem) == ("judge1", "yes", None)

    on_loop(scene)


@pytest.mark.parametrize("stored", [None, TaskResult(JobState.FAILED).to_json()])
def test_a_judge_whose_output_is_gone_has_a_problem(stored: str | None) -> None:
    async def scene(parts: WorkerParts) -> None:
        parts.grant(1, judges=["sim:judge"])
        if stored is not None:
            parts.scheduler.redis.hset(parts.keys.results(RunRef("search", "r1")), "0", stored)

        work = await parts.materials.of(Attempt("r1", "search", 1, 1, "sim:judge"))

        assert "output of job 0 is gone" in str(work.problem)

    on_loop(scene)


def test_a_page_that_is_too_short_is_a_problem_of_the_rows_it_lacks() -> None:
    async def scene(parts: WorkerParts) -> None:
        first, second = parts.grant(2)
        parts.scheduler.outbox.upload(RunRef("search", "r1"), [[{"q": "only one"}]])

        assert (await parts.materials.of(first)).problem is None
        assert "row 2 is missing" in str((await parts.materials.of(second)).problem)

    on_loop(scene)


def test_a_run_that_is_gone_is_told_as_such() -> None:
    async def scene(parts: WorkerParts) -> None:
        with pytest.raises(MaterialGone, match="run nowhere is gone"):
            await parts.materials.of(Attempt("nowhere", "search", 0, 1, "sim:fast"))

    on_loop(scene)


def test_forgetting_a_run_keeps_the_others() -> None:
    async def scene(parts: WorkerParts) -> None:
        (mine,) = parts.grant(1, run="r1")
        (other,) = parts.grant(1, run="r2")
        await asyncio.gather(parts.materials.of(mine), parts.materials.of(other))

        parts.materials.forget(RunRef("search", "r1"))

        assert list(parts.materials._runs._values) == [RunRef("search", "r2")]
        assert list(parts.materials._pages._values) == [(RunRef("search", "r2"), 0)]

    on_loop(scene)


def test_what_is_kept_is_bounded() -> None:
    async def scene(parts: WorkerParts) -> None:
        for attempt in parts.grant(PAGES_KEPT + 10, page_rows=1):
            await parts.materials.of(attempt)

        assert len(parts.materials._pages._values) == PAGES_KEPT
        assert parts.materials._runs._most == RUNS_KEPT

    on_loop(scene)
