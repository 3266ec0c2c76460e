"""Which calls stream their answers: where somebody listens, where the call may take long, as configured."""

from __future__ import annotations

from typing import Literal

import pytest

from fairlane.config.connections.connection import Connection
from fairlane.model.job import Attempt
from fairlane.model.outcome import (
    InvalidResponse,
    NetworkFailure,
    Outcome,
    Overloaded,
    PermanentFailure,
    RateLimited,
    ServerError,
    Success,
    TimedOut,
)
from fairlane.model.run import RunRef
from fairlane_workers.execution.calls import (
    CALLS_KEPT,
    CUT_MS,
    LOOK_AGAIN_MS,
    QUARTER,
    SILENCE_MS,
    Streaming,
)
from tests.support.worker_parts import WorkerParts, on_loop

MODEL, OTHER = "sim:fast", "sim:slow"
REF = RunRef("search", "r1")
ATTEMPT = Attempt("r1", "search", 0, 1, MODEL)
LONG_MS = round(CUT_MS * QUARTER)
FINE = Success("fine")
CUT = NetworkFailure("ServerDisconnectedError")


def connection(stream: bool | Literal["auto"] = "auto") -> Connection:
    return Connection(protocol="openai", base_url="http://127.0.0.1:9", stream=stream)


async def streams(
    streaming: Streaming,
    model: str = MODEL,
    stream: bool | Literal["auto"] = "auto",
    attempt: Attempt | None = ATTEMPT,
) -> bool:
    streamed, listener = await streaming.of(attempt, model, connection(stream))
    assert (listener is not None) == (streamed and attempt is not None)
    return streamed


def test_a_model_whose_calls_are_short_streams_only_while_somebody_listens() -> None:
    async def scene(parts: WorkerParts) -> None:
        streaming = Streaming(parts.chunks)
        assert await streams(streaming), "no call has ended yet"
        streaming.note(MODEL, FINE, 300, streamed=True)
        assert not await streams(streaming)
        assert await streams(streaming, OTHER)

        async with parts.redis.pubsub() as listener:
            await listener.subscribe(parts.keys.chunks(REF))
            parts.clock.advance(LOOK_AGAIN_MS / 1000)
            assert await streams(streaming)
            await listener.unsubscribe()
        parts.clock.advance(LOOK_AGAIN_MS / 1000)
        assert not await streams(streaming)

    on_loop(scene)


def test_one_long_call_makes_the_next_ones_stream_until_they_are_short_again() -> None:
    async def scene(parts: WorkerParts) -> None:
        streaming = Streaming(parts.chunks)
        streaming.note(MODEL, FINE, LONG_MS, streamed=True)
        for _ in range(CALLS_KEPT):
            assert await streams(streaming)
            streaming.note(MODEL, FINE, LONG_MS - 1, streamed=True)
        assert not await streams(streaming)

    on_loop(scene)


@pytest.mark.parametrize("took_ms", [1, 10 * LONG_MS])
def test_a_connection_may_say_that_every_call_streams_or_none(took_ms: int) -> None:
    async def scene(parts: WorkerParts) -> None:
        streaming = Streaming(parts.chunks)
        streaming.note(MODEL, FINE, took_ms, streamed=True)
        assert await streams(streaming, stream=True)
        assert not await streams(streaming, stream=False)

    on_loop(scene)


def test_an_evaluation_streams_by_the_same_rule_and_nobody_gets_its_pieces() -> None:
    async def scene(parts: WorkerParts) -> None:
        streaming = Streaming(parts.chunks)
        assert await streams(streaming, attempt=None)
        streaming.note(MODEL, FINE, 300, streamed=True)
        assert not await streams(streaming, attempt=None)
        assert await streams(streaming, stream=True, attempt=None)
        async with parts.redis.pubsub() as listener:
            await listener.subscribe(parts.keys.chunks(REF))
            parts.clock.advance(LOOK_AGAIN_MS / 1000)
            assert await streams(streaming)
            assert not await streams(streaming, attempt=None)

    on_loop(scene)


@pytest.mark.parametrize("cut", [CUT, TimedOut("the gateway waited too long", 504)])
def test_after_a_whole_call_was_cut_in_silence_calls_half_as_long_stream(cut: Outcome) -> None:
    async def scene(parts: WorkerParts) -> None:
        streaming = Streaming(parts.chunks)
        streaming.note(MODEL, FINE, 300, streamed=True)
        streaming.note(MODEL, cut, 5000, streamed=False)
        for _ in range(2 * CALLS_KEPT):
            assert await streams(streaming)
            streaming.note(MODEL, FINE, 2500, streamed=True)
        for _ in range(CALLS_KEPT):
            assert await streams(streaming)
            streaming.note(MODEL, FINE, 300, streamed=True)
        assert not await streams(streaming)

    on_loop(scene)


@pytest.mark.parametrize(
    ("outcome", "took_ms", "streamed"),
    [
        (CUT, SILENCE_MS - 1, False),
        (CUT, 5000, True),
        (TimedOut("not within 5 s", deadline_ms=5000), 5000, False),
        (ServerError("out of memory", 500), 5000, False),
    ],
)
def test_other_failures_do_not_switch_streaming_on(outcome: Outcome, took_ms: int, streamed: bool) -> None:
    async def scene(parts: WorkerParts) -> None:
        streaming = Streaming(parts.chunks)
        streaming.note(MODEL, FINE, 4000, streamed=True)
        streaming.note(MODEL, outcome, took_ms, streamed=streamed)
        assert not await streams(streaming)

    on_loop(scene)


@pytest.mark.parametrize("outcome", [CUT, ServerError("stream?", 500), InvalidResponse("no events", 200)])
def test_a_first_stream_that_fails_is_not_asked_for_again(outcome: Outcome) -> None:
    async def scene(parts: WorkerParts) -> None:
        streaming = Streaming(parts.chunks)
        streaming.note(MODEL, outcome, 2000, streamed=True)
        assert not await streams(streaming)
        assert await streams(streaming, stream=True)

    on_loop(scene)


@pytest.mark.parametrize(
    "outcome", [RateLimited("slow down"), Overloaded("busy", 503), PermanentFailure("no", 400)]
)
def test_what_says_nothing_about_streams_teaches_nothing(outcome: Outcome) -> None:
    async def scene(parts: WorkerParts) -> None:
        streaming = Streaming(parts.chunks)
        streaming.note(MODEL, outcome, 20, streamed=True)
        assert await streams(streaming)

    on_loop(scene)


def test_failures_do_not_outweigh_long_answers() -> None:
    async def scene(parts: WorkerParts) -> None:
        streaming = Streaming(parts.chunks)
        streaming.note(MODEL, FINE, LONG_MS, streamed=True)
        for _ in range(2 * CALLS_KEPT):
            streaming.note(MODEL, ServerError("away", 500), 5, streamed=True)
        assert await streams(streaming)

    on_loop(scene)
