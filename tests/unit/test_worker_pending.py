"""Calls that providers go on with by themselves hold no slot, and outlive the attempt that began them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from redis.exceptions import ResponseError
from structlog.testing import capture_logs

from fairlane.model.ending import Completion
from fairlane.model.job import Attempt, JobState
from fairlane.model.outcome import Aborted, AccessDenied, InvalidResponse, Outcome
from fairlane.model.run import RunRef
from fairlane.store.write.workers import WorkerRequest
from fairlane_workers.execution import executor as executor_module
from fairlane_workers.execution.held import Abort
from fairlane_workers.providers.contract import OnChunk, Request
from tests.support.worker_parts import ANSWER, WORKER, ScriptedProvider, WorkerParts, lines, on_loop

HANDLE = "pred:1"


class Going(ScriptedProvider):
    """Begins a call, tells its handle, and goes on until the gate is open."""

    async def call(self, request: Request, on_chunk: OnChunk | None = None) -> Outcome:
        if request.handle is None or self.gate.is_set():
            assert request.on_pending is not None
            await request.on_pending(request.handle or HANDLE)
        return await super().call(request, on_chunk)


async def pending(
    parts: WorkerParts, attempt: Attempt, free: Callable[[], None] = lambda: None
) -> asyncio.Task[str]:
    """An attempt whose call its provider continues, until the gate is opened."""
    provider = parts.provider = Going()
    parts.providers["sim"] = provider
    provider.gate.clear()
    task = asyncio.create_task(parts.executor.execute(attempt, free))
    await provider.started.wait()
    return task


def record(parts: WorkerParts, attempt: Attempt) -> bytes | None:
    found: bytes | None = parts.scheduler.redis.hget(
        parts.keys.jobs(RunRef(attempt.team, attempt.run)), str(attempt.job)
    )
    return found


def counts(parts: WorkerParts) -> tuple[dict[str, int], int]:
    """What holds slots, and what is in flight on the lane."""
    lanes = parts.scheduler.lanes
    return lanes.on_slots(["sim:fast"]), lanes.view("sim:fast").in_flight


def test_its_slot_is_free_once_and_its_lease_stays() -> None:
    async def scene(parts: WorkerParts) -> None:
        (attempt,) = parts.grant(1)
        freed: list[str] = []
        task = await pending(parts, attempt, lambda: freed.append("slot"))

        assert freed == ["slot"]
        assert (parts.executor.busy, parts.executor.pending) == (0, 1)
        assert parts.executor.held == [attempt.id]
        assert counts(parts) == ({"sim:fast": 0}, 1)
        assert record(parts, attempt) == b"1:0:0:pred%3A1"

        parts.provider.gate.set()
        assert await task == "Success"
        assert freed == ["slot"]
        assert counts(parts) == ({"sim:fast": 0}, 0)
        assert parts.executor.pending == 0
        assert parts.task(attempt).state is JobState.SUCCEEDED

    on_loop(scene)


def test_a_worker_has_no_more_of_them_beside_its_slots_than_it_may(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(parts: WorkerParts) -> None:
        monkeypatch.setattr(executor_module, "MOST_PENDING", 1)
        first, second = parts.grant(2)
        one, two = await pending(parts, first), await pending(parts, second)

        assert (parts.executor.busy, parts.executor.pending) == (1, 1)
        assert counts(parts) == ({"sim:fast": 1}, 2)
        assert record(parts, second) == b"1:0:0:pred%3A1", "it would be gone on with all the same"

        one.cancel()
        two.cancel()
        await asyncio.gather(one, two, return_exceptions=True)

    on_loop(scene)


def test_the_next_attempt_continues_a_requeued_one() -> None:
    async def scene(parts: WorkerParts) -> None:
        (attempt,) = parts.grant(1)
        task = await pending(parts, attempt)
        (request,) = parts.provider.requests
        parts.executor.abort_all("the worker stops")
        await task
        assert not request.withdrawn()
        assert record(parts, attempt) == b"1:0:0:pred%3A1"
        assert counts(parts) == ({"sim:fast": 0}, 0)

        (again,) = parts.permits(RunRef(attempt.team, attempt.run), 1)
        other = WorkerParts(parts.server)
        await other.executor.execute(again)
        assert [request.handle for request in other.provider.requests] == [HANDLE]
        await other.redis.aclose()

    on_loop(scene)


def test_the_next_worker_continues_the_pending_call_of_a_dead_one() -> None:
    async def scene(parts: WorkerParts) -> None:
        (attempt,) = parts.grant(1)
        task = await pending(parts, attempt)
        parts.scheduler.redis.zadd(parts.scheduler.keys.leases, {attempt.id: 0})  # it lapses
        parts.scheduler.attempts.recover(
            attempt, parts.scheduler.leader.epoch, worker="", worker_timeout_ms=0, max_attempts=3,
            completion=Completion(JobState.FAILED, "{}"), now_ms=parts.scheduler.now_ms,
        ).run(parts.scheduler.redis)  # fmt: skip
        assert counts(parts) == ({"sim:fast": 0}, 0)
        (request,) = parts.provider.requests
        parts.executor.abort(attempt.id, Abort("its lease is gone"))
        await task
        assert not request.withdrawn(), "another continues it"

        (again,) = parts.permits(RunRef(attempt.team, attempt.run), 1)
        parts.provider.gate.set()
        await parts.executor.execute(again)
        assert parts.provider.requests[-1].handle == HANDLE
        assert parts.task(again).attempts == 2

    on_loop(scene)


def test_a_call_of_a_cancelled_run_is_withdrawn() -> None:
    async def scene(parts: WorkerParts) -> None:
        (attempt,) = parts.grant(1)
        task = await pending(parts, attempt)
        (request,) = parts.provider.requests
        parts.executor.abort_run(RunRef(attempt.team, attempt.run), "its run was cancelled")
        await task
        assert request.withdrawn()

    on_loop(scene)


@pytest.mark.parametrize(
    ("outcome", "kept"),
    [
        (InvalidResponse("it failed"), False),
        (AccessDenied("no credit", 200, "quota"), False),
        (AccessDenied("this token is revoked", 401), True),
        (Aborted("no such connection here"), True),
    ],
)
def test_a_retry_begins_anew_where_the_provider_has_answered(outcome: Outcome, kept: bool) -> None:
    async def scene(parts: WorkerParts) -> None:
        (attempt,) = parts.grant(1)
        task = await pending(parts, attempt)
        parts.provider.answer = outcome
        parts.provider.gate.set()
        await task
        assert (b":pred%3A1" in (record(parts, attempt) or b"")) == kept

    on_loop(scene)


def test_a_lease_that_is_gone_by_then_frees_no_slot() -> None:
    async def scene(parts: WorkerParts) -> None:
        (attempt,) = parts.grant(1)
        freed: list[str] = []
        task = await parts.calling(attempt)
        parts.scheduler.redis.hdel(parts.keys.leased, attempt.id)
        (held,) = parts.executor._held.values()
        held.free_slot = lambda: freed.append("slot")

        await parts.executor._free_slot_of_pending(held, HANDLE)

        assert (freed, parts.executor.busy) == ([], 1)
        assert record(parts, attempt) == b"1:0:0"
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    on_loop(scene)


def test_a_handle_that_redis_refuses_does_not_end_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(parts: WorkerParts) -> None:
        (attempt,) = parts.grant(1)
        task = await parts.calling(attempt)
        (held,) = parts.executor._held.values()

        async def refuse(_: Any) -> Any:
            raise ResponseError("NOPERM this user has no permissions")

        with capture_logs() as logs, monkeypatch.context() as patch:
            patch.setattr(parts.batcher, "send", refuse)
            await parts.executor._free_slot_of_pending(held, HANDLE)

        assert len(lines(logs, "handle_unsaved")) == 1
        parts.provider.gate.set()
        await task
        assert parts.task(attempt).output == ANSWER.output

    on_loop(scene)


def test_a_beat_reports_slots_in_use_and_calls_that_hold_none() -> None:
    async def scene(parts: WorkerParts) -> None:
        going, calling = parts.grant(2)
        task = await pending(parts, going)
        parts.providers["sim"] = parts.provider = ScriptedProvider()
        other = await parts.calling(calling)

        await parts.heartbeat.beat()

        (beat,) = parts.scheduler.workers.beats(parts.scheduler.redis)
        assert (beat.info.slots, beat.info.busy, beat.info.pending) == (10, 1, 1)
        for each in (task, other):
            each.cancel()
        await asyncio.gather(task, other, return_exceptions=True)

    on_loop(scene)


def test_a_worker_is_not_drained_while_a_call_is_pending() -> None:
    async def scene(parts: WorkerParts) -> None:
        (attempt,) = parts.grant(1)
        task = await pending(parts, attempt)
        await parts.heartbeat.beat()
        assert parts.scheduler.workers.ask(parts.scheduler.redis, WORKER, WorkerRequest.IDLE)
        await parts.heartbeat.beat()
        (beat,) = parts.scheduler.workers.beats(parts.scheduler.redis)
        assert (beat.info.draining, beat.info.drained) == (True, False)

        parts.provider.gate.set()
        await task
        await parts.heartbeat.beat()
        (beat,) = parts.scheduler.workers.beats(parts.scheduler.redis)
        assert beat.info.drained

    on_loop(scene)
