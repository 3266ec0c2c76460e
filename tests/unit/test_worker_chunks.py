"""Streamed pieces: published to whoever listens, and next to nothing where nobody does."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from fairlane.model.job import Attempt, JobState
from fairlane.model.outcome import NetworkFailure, Outcome, PermanentFailure, Success
from fairlane.model.run import RunRef
from fairlane_workers.execution.calls import LOOK_AGAIN_MS, RUNS_KEPT
from tests.support.worker_parts import WorkerParts, on_loop

REF = RunRef("search", "r1")
ATTEMPT = Attempt("r1", "search", 4, 2, "sim:fast")


class Listener:
    """Subscribes to a run as a client does."""

    def __init__(self, parts: WorkerParts) -> None:
        self.channel: Any = parts.scheduler.redis.pubsub(ignore_subscribe_messages=True)
        self.channel.subscribe(parts.keys.chunks(REF))
        self.channel.get_message()

    def heard(self) -> list[dict[str, Any]]:
        pieces = []
        while (message := self.channel.get_message()) is not None:
            pieces.append(json.loads(message["data"]))
        return pieces

    def leave(self) -> None:
        self.channel.close()


async def all_sent(parts: WorkerParts) -> None:
    """All that was offered so far has been sent."""
    await parts.batcher.send(("PING",))
    await parts.batcher.send(("PING",))


def test_pieces_reach_the_listener_in_order_with_the_attempt_they_belong_to() -> None:
    async def scene(parts: WorkerParts) -> None:
        listener = Listener(parts)
        publish = await parts.chunks.listener(ATTEMPT)
        for text in ("Hel", "lo, ", "wörld"):
            await publish(text)
        await all_sent(parts)

        assert listener.heard() == [
            {"job": 4, "number": 2, "text": text} for text in ("Hel", "lo, ", "wörld")
        ]
        listener.leave()

    on_loop(scene)


def test_nobody_listens_and_nothing_is_published() -> None:
    async def scene(parts: WorkerParts) -> None:
        publish = await parts.chunks.listener(ATTEMPT)
        parts.batcher.batches.clear()
        for _ in range(100):
            await publish("piece")

        assert parts.batcher.batches == []

    on_loop(scene)


def test_one_question_serves_all_calls_of_a_run_for_a_while() -> None:
    async def scene(parts: WorkerParts) -> None:
        await asyncio.gather(*(parts.chunks.listener(ATTEMPT) for _ in range(30)))
        assert sum(parts.batcher.batches) == 1

        parts.clock.advance(LOOK_AGAIN_MS / 1000 - 0.001)
        await parts.chunks.listener(ATTEMPT)
        assert sum(parts.batcher.batches) == 1

        parts.clock.advance(0.001)
        await parts.chunks.listener(ATTEMPT)
        assert sum(parts.batcher.batches) == 2

    on_loop(scene)


def test_a_late_subscriber_receives_the_rest_of_a_call() -> None:
    async def scene(parts: WorkerParts) -> None:
        publish = await parts.chunks.listener(ATTEMPT)
        await publish("unheard")
        listener = Listener(parts)
        parts.clock.advance(LOOK_AGAIN_MS / 1000)

        await publish("this one asks")
        await all_sent(parts)
        await publish("heard")
        await all_sent(parts)

        assert [piece["text"] for piece in listener.heard()] == ["heard"]
        listener.leave()

    on_loop(scene)


def test_publishing_ends_once_nobody_listens_any_more() -> None:
    async def scene(parts: WorkerParts) -> None:
        listener = Listener(parts)
        publish = await parts.chunks.listener(ATTEMPT)
        listener.leave()
        parts.clock.advance(LOOK_AGAIN_MS / 1000)
        await publish("this one asks")
        await all_sent(parts)
        parts.batcher.batches.clear()

        await publish("into the void")

        assert parts.batcher.batches == []

    on_loop(scene)


def test_a_redis_that_is_away_delays_no_piece() -> None:
    async def scene(parts: WorkerParts) -> None:
        listener = Listener(parts)
        publish = await parts.chunks.listener(ATTEMPT)
        parts.batcher.ask.clear()
        for _ in range(5):
            await publish("piece")
        parts.batcher.ask.set()
        await all_sent(parts)

        assert len(listener.heard()) == 5
        listener.leave()

    on_loop(scene)


def test_a_call_streams_its_pieces_and_a_judge_does_not() -> None:
    async def scene(parts: WorkerParts) -> None:
        listener = Listener(parts)
        parts.provider.pieces = ("ye", "s")
        (task,) = parts.grant(1, judges=["sim:judge"])
        await parts.executor.execute(task)
        await all_sent(parts)
        assert [piece["text"] for piece in listener.heard()] == ["ye", "s"]

        (judge,) = parts.permits(REF, 1, "sim:judge")
        await parts.executor.execute(judge)
        await all_sent(parts)

        assert listener.heard() == []
        assert parts.provider.heard[-1] is None
        assert parts.judged(judge).state is JobState.SUCCEEDED
        listener.leave()

    on_loop(scene)


@pytest.mark.parametrize(
    ("outcome", "void"),
    [(Success("yes"), False), (NetworkFailure("reset"), True), (PermanentFailure("no"), True)],
)
def test_what_an_attempt_streamed_before_it_failed_is_void(outcome: Outcome, void: bool) -> None:
    async def scene(parts: WorkerParts) -> None:
        listener = Listener(parts)
        parts.provider.pieces, parts.provider.answer = ("ye", "s"), outcome
        (task,) = parts.grant(1)
        await parts.executor.execute(task)
        await all_sent(parts)

        *pieces, last = listener.heard()
        assert [piece["number"] for piece in (*pieces, last)] == [1] * (len(pieces) + 1)
        assert ("void" in last) is void
        listener.leave()

    on_loop(scene)


def test_the_number_of_runs_that_are_remembered_is_bounded() -> None:
    async def scene(parts: WorkerParts) -> None:
        for n in range(RUNS_KEPT + 5):
            await parts.chunks.listener(Attempt(f"r{n}", "search", 0, 1, "sim:fast"))

        assert len(parts.chunks._audiences) <= RUNS_KEPT

    on_loop(scene)
