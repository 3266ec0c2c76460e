"""A call that its provider continues by itself: begun once, polled until it is over, and cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import httpx
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fairlane.core.clock import ManualClock
from fairlane.model.outcome import (
    AccessDenied,
    InvalidResponse,
    NetworkFailure,
    Outcome,
    PermanentFailure,
    RateLimited,
    Success,
    TimedOut,
)
from fairlane_workers.providers.contract import Request
from fairlane_workers.providers.http.polling import LAST_LOOK_S, MOST_CUT, MOST_PAUSE_S
from fairlane_workers.providers.http.provider import HttpProvider
from fairlane_workers.providers.protocols.replicate import LOOK_AFTER_S, Replicate
from fairlane_workers.transport import Transport
from fairlane_workers.transport.pause import Pause, sleep
from tests.support.provider_calls import ask
from tests.support.scripted_server import Exchange, Fault, ScriptedServer, http, scripted_server
from tests.support.unhurried import UnhurriedLoop
from tests.support.wires.replicate import ReplicateWire

WIRE = ReplicateWire()
ID = WIRE.prediction("starting")["id"]
BEGUN: Exchange = [http(201, WIRE.prediction("starting"))]
GOING: Exchange = [http(200, WIRE.prediction("processing"))]
DONE: Exchange = [http(200, WIRE.whole("all"))]
SETTLED_S = 0.05
"""Of the loop's time, which leaps over waits, that exchanges with a server in it may take."""

BEGIN, LOOK, CANCEL = "/v1/predictions", f"/v1/predictions/{ID}", f"/v1/predictions/{ID}/cancel"


class Pauses:
    """Time that passes at once, and how much of it did."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


class Handles:
    """What was reported of calls that take time."""

    def __init__(self) -> None:
        self.announced: list[str] = []

    async def __call__(self, handle: str) -> None:
        self.announced.append(handle)


def paths(server: ScriptedServer) -> list[str]:
    return [received.path for received in server.received]


def provider(url: str, pause: Pause) -> HttpProvider:
    return HttpProvider("c", Replicate(), httpx.URL(f"{url}/v1"), Transport(), ManualClock(), pause=pause)


def play(
    *script: Exchange,
    request: Request | None = None,
    pause: Pause | None = None,
    on_chunk: Callable[[str], Awaitable[None]] | None = None,
) -> tuple[Outcome, list[str]]:
    """The outcome of one call, and what the server was asked; it was all that the script has."""

    async def scenario() -> tuple[Outcome, list[str]]:
        async with scripted_server(script) as server:
            made = provider(server.url, pause or Pauses())
            try:
                outcome = await made.call(request or ask(), on_chunk)
            finally:
                await made.aclose()
            assert len(server.received) == len(script)
            return outcome, paths(server)

    return asyncio.run(scenario())


def test_a_call_is_begun_once_and_looked_at_until_it_is_over() -> None:
    outcome, asked = play(BEGUN, GOING, GOING, DONE)
    assert isinstance(outcome, Success)
    assert (outcome.output, outcome.usage.input_tokens, outcome.usage.output_tokens) == ("all", 7, 3)
    assert asked == [BEGIN, LOOK, LOOK, LOOK]


def test_an_answer_that_is_too_large_is_final_and_read_once() -> None:
    large: Exchange = [http(200, WIRE.whole("x" * 4000))]
    outcome, asked = play(BEGUN, GOING, large, request=ask(max_bytes=2048))
    assert isinstance(outcome, PermanentFailure)
    assert "larger than 2048 bytes. Raise worker.max_response_bytes" in outcome.message
    assert asked == [BEGIN, LOOK, LOOK]


def test_its_handle_is_reported_once_and_before_the_first_look() -> None:
    handles, seen = Handles(), list[int]()

    async def scenario() -> None:
        async with scripted_server([BEGUN, GOING, DONE]) as server:

            async def announced(handle: str) -> None:
                seen.append(len(server.received))
                await handles(handle)

            made = provider(server.url, Pauses())
            await made.call(replace(ask(), on_pending=announced))
            await made.aclose()

    asyncio.run(scenario())
    assert (handles.announced, seen) == ([ID], [1])


def test_an_answer_that_is_there_at_once_has_no_handle() -> None:
    handles = Handles()
    outcome, _ = play(DONE, request=replace(ask(), on_pending=handles))
    assert isinstance(outcome, Success)
    assert handles.announced == []


def test_polls_become_less_frequent() -> None:
    pauses = Pauses()
    play(BEGUN, *[GOING] * 8, DONE, pause=pauses)
    assert pauses.seconds[0] == LOOK_AFTER_S
    assert pauses.seconds == sorted(pauses.seconds)
    assert pauses.seconds[-1] == MOST_PAUSE_S


@pytest.mark.parametrize(
    "trouble",
    [
        [http(429, {"detail": "Request was throttled."})],
        [http(500, b"")],
        [http(503, {"detail": "away"})],
        [Fault.CLOSE],
        [Fault.RESET],
        [http(200, WIRE.whole("all"))[:-9], Fault.CLOSE],
    ],
    ids=["429", "500", "503", "closed", "reset", "cut"],
)
def test_transient_errors_while_polling_are_tolerated(trouble: Exchange) -> None:
    outcome, _ = play(BEGUN, trouble, trouble, GOING, trouble, DONE)
    assert isinstance(outcome, Success)
    assert outcome.output == "all"


def test_a_look_that_is_reported_to_wait_waits_as_long() -> None:
    pauses = Pauses()
    play(BEGUN, [http(429, {}, {"retry-after": "17"})], GOING, DONE, pause=pauses)
    assert pauses.seconds[1] == 17
    assert max(pauses.seconds[2:]) <= MOST_PAUSE_S


def test_an_answer_that_breaks_off_every_time_is_unusable() -> None:
    cut: Exchange = [http(200, WIRE.whole("all"))[:-9], Fault.CLOSE]
    outcome, _ = play(BEGUN, *[cut] * MOST_CUT)
    assert isinstance(outcome, InvalidResponse)


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (http(401, {"detail": "no"}), AccessDenied),
        (http(402, {"detail": "no"}), AccessDenied),
        (http(422, {"detail": "no"}), PermanentFailure),
        (http(404, {"detail": "no"}), InvalidResponse),
        (http(200, {"id": ID}), InvalidResponse),
        (http(200, b"oops"), InvalidResponse),
    ],
)
def test_what_does_not_pass_ends_the_call(answer: bytes, expected: type) -> None:
    outcome, _ = play(BEGUN, GOING, [answer])
    assert type(outcome) is expected


@pytest.mark.parametrize("trouble", [http(429, {}), http(503, {})])
def test_a_call_that_is_not_even_begun_is_refused_as_ever(trouble: bytes) -> None:
    outcome, _ = play([trouble])
    assert not isinstance(outcome, Success)
    lost, _ = play([Fault.CLOSE])
    assert isinstance(lost, NetworkFailure)


# Going on with a call that another has begun


def test_a_call_that_was_begun_before_is_continued() -> None:
    handles = Handles()
    outcome, asked = play(GOING, DONE, request=replace(ask(), handle=ID, on_pending=handles))
    assert isinstance(outcome, Success)
    assert asked == [LOOK, LOOK]
    assert handles.announced == [ID]


def test_one_that_is_over_by_now_has_its_answer_at_once() -> None:
    pauses, handles = Pauses(), Handles()
    outcome, asked = play(DONE, request=replace(ask(), handle=ID, on_pending=handles), pause=pauses)
    assert isinstance(outcome, Success)
    assert (asked, pauses.seconds, handles.announced) == ([LOOK], [], [])


@pytest.mark.parametrize("status", [404, 410])
def test_one_that_the_provider_no_longer_knows_is_begun_anew(status: int) -> None:
    handles = Handles()
    request = replace(ask(), handle=ID, on_pending=handles)
    outcome, asked = play([http(status, {})], BEGUN, GOING, DONE, request=request)
    assert isinstance(outcome, Success)
    assert asked == [LOOK, BEGIN, LOOK, LOOK]
    assert handles.announced == [ID]


def test_a_handle_of_another_protocol_is_passed_over() -> None:
    outcome, asked = play(BEGUN, DONE, request=replace(ask(), handle="arn:aws:x/y"))
    assert isinstance(outcome, Success)
    assert asked == [BEGIN, LOOK]


def test_one_that_has_failed_is_not_begun_again_by_the_same_attempt() -> None:
    outcome, asked = play(
        [http(200, WIRE.prediction("failed", error="boom"))], request=replace(ask(), handle=ID)
    )
    assert isinstance(outcome, InvalidResponse)
    assert asked == [LOOK]


# What is heard of it


def test_partial_output_is_streamed_as_it_appears() -> None:
    heard: list[str] = []

    async def listen(text: str) -> None:
        heard.append(text)

    steps: list[Exchange] = [
        [http(200, WIRE.prediction("processing", output=output))]
        for output in (None, ["one "], ["one "], ["one ", "two "])
    ]
    done: Exchange = [http(200, WIRE.whole("one two three"))]
    outcome, _ = play(BEGUN, *steps, done, request=ask(stream=True), on_chunk=listen)
    assert isinstance(outcome, Success)
    assert heard == ["one ", "two ", "three"]


def test_text_that_was_there_at_the_start_is_published_once() -> None:
    heard: list[str] = []

    async def listen(text: str) -> None:
        heard.append(text)

    begun: Exchange = [http(201, WIRE.prediction("processing", output=["o"]))]
    play(begun, [http(200, WIRE.whole("one"))], request=ask(stream=True), on_chunk=listen)
    assert "".join(heard) == "one"


# The end of patience


def before_any_look(*script: Exchange, timeout_s: float) -> tuple[Outcome, list[str]]:
    """The deadline in real time, in which no look is due."""

    async def pause(_: float) -> None:
        await asyncio.Event().wait()

    return play(*script, request=ask(timeout_s=timeout_s), pause=pause)


def test_the_deadline_covers_all_looks_and_cancels_the_call() -> None:
    cancelled: Exchange = [http(200, WIRE.prediction("canceled"))]
    outcome, asked = before_any_look(BEGUN, cancelled, timeout_s=1.5)
    assert isinstance(outcome, TimedOut)
    assert "1.5 s" in outcome.message
    assert asked == [BEGIN, CANCEL]


@given(timeout_s=st.floats(0.6, 120.0))
@example(timeout_s=1.0)
@example(timeout_s=60.0)
def test_the_last_look_is_shortly_before_the_deadline(timeout_s: float) -> None:
    looks = list[float]()

    async def pause(seconds: float) -> None:
        await sleep(seconds)
        looks.append(asyncio.get_running_loop().time())

    async def scenario() -> Outcome:
        async with scripted_server([BEGUN, *[GOING] * 60]) as server:
            made = provider(server.url, pause)
            outcome = await made.call(ask(timeout_s=timeout_s))
            await made.aclose()
            return outcome

    with asyncio.Runner(loop_factory=UnhurriedLoop) as runner:
        assert isinstance(runner.run(scenario()), TimedOut)
        assert timeout_s - looks[-1] <= min(LAST_LOOK_S, timeout_s / 4) + SETTLED_S


def test_a_cancellation_that_is_not_answered_keeps_nobody() -> None:
    outcome, asked = before_any_look(BEGUN, [Fault.CLOSE], timeout_s=1.5)
    assert isinstance(outcome, TimedOut)
    assert asked[-1] == CANCEL


@pytest.mark.parametrize("withdrawn", [True, False])
def test_a_call_that_is_broken_off_is_cancelled_only_if_its_run_is(withdrawn: bool) -> None:
    async def scenario() -> list[str]:
        waits = asyncio.Event()

        async def pause(_: float) -> None:
            waits.set()
            await asyncio.Event().wait()

        script = [BEGUN, [http(200, WIRE.prediction("canceled"))]]
        async with scripted_server(script) as server:
            made = provider(server.url, pause)
            call = asyncio.create_task(made.call(replace(ask(), withdrawn=lambda: withdrawn)))
            await waits.wait()
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            await made.aclose()
            return paths(server)

    assert asyncio.run(scenario()) == ([BEGIN, CANCEL] if withdrawn else [BEGIN])


@pytest.mark.parametrize("handle", ["../../secrets", "a/b", "", "x?y", "ü", "a" * 101])
def test_a_handle_that_is_none_asks_nobody(handle: str) -> None:
    dialect: Any = Replicate()
    assert dialect.cancel(handle) is None
    outcome, asked = play([http(201, WIRE.prediction("starting", id=handle))])
    assert isinstance(outcome, InvalidResponse)
    assert asked == [BEGIN]


def test_a_rate_limit_is_that_of_begins_and_not_of_looks() -> None:
    outcome, _ = play([http(429, {"detail": "Request was throttled."}, {"retry-after": "2"})])
    assert isinstance(outcome, RateLimited)
    assert outcome.retry_after_ms == 2000
