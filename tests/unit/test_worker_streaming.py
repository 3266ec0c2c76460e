"""Which calls stream their answers: where somebody listens, where the call may take long, as configured."""

from __future__ import annotations

from typing import Literal

import pytest

from fairlane.config.connections.connection import Connection
from fairlane.model.job import Attempt
from fairlane.model.run import RunRef
from fairlane_workers.execution.calls import CALLS_KEPT, LONG_MS, LOOK_AGAIN_MS, Streaming
from tests.support.worker_parts import WorkerParts, on_loop

MODEL, OTHER = "sim:fast", "sim:slow"
REF = RunRef("search", "r1")
ATTEMPT = Attempt("r1", "search", 0, 1, MODEL)


def connection(stream: bool | Literal["auto"] = "auto") -> Connection:
    return Connection(protocol="openai", base_url="http://127.0.0.1:9", stream=stream)


def test_a_model_whose_calls_are_short_streams_only_while_somebody_listens() -> None:
    async def scene(parts: WorkerParts) -> None:
        streaming = Streaming(parts.chunks)
        assert await streaming.of(ATTEMPT, MODEL, connection()) is not None, "no call has ended yet"
        streaming.note(MODEL, 300)
        assert await streaming.of(ATTEMPT, MODEL, connection()) is None
        assert await streaming.of(ATTEMPT, OTHER, connection()) is not None

        async with parts.redis.pubsub() as listener:
            await listener.subscribe(parts.keys.chunks(REF))
            parts.clock.advance(LOOK_AGAIN_MS / 1000)
            assert await streaming.of(ATTEMPT, MODEL, connection()) is not None
            await listener.unsubscribe()
        parts.clock.advance(LOOK_AGAIN_MS / 1000)
        assert await streaming.of(ATTEMPT, MODEL, connection()) is None

    on_loop(scene)


def test_one_long_call_makes_the_next_ones_stream_until_they_are_short_again() -> None:
    async def scene(parts: WorkerParts) -> None:
        streaming = Streaming(parts.chunks)
        streaming.note(MODEL, LONG_MS)
        for _ in range(CALLS_KEPT):
            assert await streaming.of(ATTEMPT, MODEL, connection()) is not None
            streaming.note(MODEL, LONG_MS - 1)
        assert await streaming.of(ATTEMPT, MODEL, connection()) is None

    on_loop(scene)


@pytest.mark.parametrize("took_ms", [1, 10 * LONG_MS])
def test_a_connection_may_say_that_every_call_streams_or_none(took_ms: int) -> None:
    async def scene(parts: WorkerParts) -> None:
        streaming = Streaming(parts.chunks)
        streaming.note(MODEL, took_ms)
        assert await streaming.of(ATTEMPT, MODEL, connection(True)) is not None
        assert await streaming.of(ATTEMPT, MODEL, connection(False)) is None

    on_loop(scene)
