"""Breaking off: lost leases, cancelled runs and stops end calls, and never lose a claim or a report."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from structlog.testing import capture_logs

from fairlane.model.job import JobState
from fairlane.model.outcome import Outcome, Success
from fairlane.model.run import RunRef
from fairlane_workers.execution.held import Abort
from tests.support.worker_parts import WorkerParts, lines, on_loop


def test_a_call_whose_lease_is_lost_is_broken_off_and_not_reported() -> None:
    async def scene(parts: WorkerParts) -> None:
        (attempt,) = parts.grant(1)
        task = await parts.calling(attempt)

        parts.executor.abort(attempt.id, Abort("its lease is gone"))
        await task

        assert parts.provider.broken_off == 1
        assert parts.state(attempt).get("late") is None
        assert parts.executor.busy == 0

    on_loop(scene)


def test_cancelling_a_run_breaks_off_its_calls_and_no_others() -> None:
    async def scene(parts: WorkerParts) -> None:
        (mine,) = parts.grant(1, run="r1")
        (other,) = parts.grant(1, run="r2")
        first, second = await parts.calling(mine), await parts.calling(other)

        parts.executor.abort_run(RunRef("search", "r1"), "its run was cancelled")
        await first
        assert parts.executor.held == [other.id]

        parts.provider.gate.set()
        await second
        assert parts.task(other).state is JobState.SUCCEEDED
        assert parts.provider.broken_off == 1

    on_loop(scene)


def test_a_run_of_the_same_name_in_another_team_is_not_broken_off() -> None:
    async def scene(parts: WorkerParts) -> None:
        (attempt,) = parts.grant(1)
        task = await parts.calling(attempt)

        parts.executor.abort_run(RunRef("ads", "r1"), "its run was cancelled")
        parts.provider.gate.set()
        await task

        assert parts.task(attempt).state is JobState.SUCCEEDED

    on_loop(scene)


def test_stopping_gives_calls_back_at_no_cost() -> None:
    async def scene(parts: WorkerParts) -> None:
        attempts = parts.grant(3)
        tasks = [await parts.calling(attempt) for attempt in attempts]

        with capture_logs() as logs:
            parts.executor.abort_all("the worker stops")
            await asyncio.gather(*tasks)

        assert parts.provider.broken_off == 3
        assert (len(parts.hot(attempts[0])), parts.leased()) == (3, 0)
        assert parts.state(attempts[0])["retries"] == "0"
        assert {(line["reason"], line["delay_s"]) for line in lines(logs, "retry")} == {
            ("the worker stops", 0)
        }

    on_loop(scene)


def test_what_arrives_after_the_stop_is_requeued_without_a_call() -> None:
    async def scene(parts: WorkerParts) -> None:
        (attempt,) = parts.grant(1)
        parts.executor.abort_all("the worker stops")

        await parts.executor.execute(attempt)

        assert parts.provider.requests == []
        assert (len(parts.hot(attempt)), parts.leased()) == (1, 0)

    on_loop(scene)


@pytest.mark.parametrize("held_up", ["ask", "hear"])
def test_a_stop_while_the_claim_is_on_its_way_gives_the_job_back(held_up: str) -> None:
    async def scene(parts: WorkerParts) -> None:
        (attempt,) = parts.grant(1)
        gate = getattr(parts.batcher, held_up)
        gate.clear()
        task = parts.start(attempt)
        await (parts.batcher.asking if held_up == "ask" else parts.batcher.answered).wait()

        parts.executor.abort_all("the worker stops")
        gate.set()
        await task

        assert parts.provider.requests == []
        assert (len(parts.hot(attempt)), parts.leased(), parts.executor.busy) == (1, 0, 0)
        assert parts.state(attempt)["retries"] == "0"

    on_loop(scene)


@pytest.mark.parametrize("held_up", ["ask", "hear"])
@pytest.mark.parametrize("why", ["stop", "lost", "cancel"])
def test_an_abort_while_the_report_is_on_its_way_does_not_lose_it(held_up: str, why: str) -> None:
    async def scene(parts: WorkerParts) -> None:
        (attempt,) = parts.grant(1)
        task = await parts.calling(attempt)
        gate, reached = (
            (parts.batcher.ask, parts.batcher.asking)
            if held_up == "ask"
            else (parts.batcher.hear, parts.batcher.answered)
        )
        gate.clear()
        reached.clear()
        parts.provider.gate.set()
        await reached.wait()

        match why:
            case "stop":
                parts.executor.abort_all("the worker stops")
            case "lost":
                parts.executor.abort(attempt.id, Abort("its lease is gone"))
            case _:
                parts.executor.abort_run(RunRef("search", "r1"), "its run was cancelled")
        with capture_logs() as logs:
            gate.set()
            await task

        assert parts.task(attempt).state is JobState.SUCCEEDED
        assert (parts.hot(attempt), parts.leased(), parts.executor.busy) == ([], 0, 0)
        assert len(lines(logs, "released")) == 1

    on_loop(scene)


def test_a_call_that_has_just_ended_is_reported_though_the_worker_stops() -> None:
    async def scene(parts: WorkerParts) -> None:
        (attempt,) = parts.grant(1)

        def answer_and_stop(_: Any) -> Outcome:
            asyncio.get_running_loop().call_soon(parts.executor.abort_all, "the worker stops")
            return Success("just in time")

        parts.provider.answer = answer_and_stop
        await parts.executor.execute(attempt)

        assert parts.provider.broken_off == 0
        assert parts.task(attempt).output == "just in time"

    on_loop(scene)


def test_an_abort_of_nothing_is_nothing() -> None:
    async def scene(parts: WorkerParts) -> None:
        parts.executor.abort("r1/0/1", Abort("why"))
        parts.executor.abort_run(RunRef("search", "r1"), "why")

    on_loop(scene)


def test_a_second_reason_does_not_replace_the_first() -> None:
    async def scene(parts: WorkerParts) -> None:
        (attempt,) = parts.grant(1)
        task = await parts.calling(attempt)

        parts.executor.abort(attempt.id, Abort("its lease is gone"))
        parts.executor.abort_all("the worker stops")
        await task

        assert parts.leased() == 1, "what is lost is not requeued"

    on_loop(scene)
