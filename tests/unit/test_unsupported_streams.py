"""What Fairlane adds so that an answer streams fails no call: where it is rejected, it is left out."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fairlane.model.outcome import (
    AccessDenied,
    Outcome,
    PermanentFailure,
    ServerError,
    Success,
    UnsupportedParameter,
)
from fairlane.testing import ManualClock
from fairlane_workers.providers.contract import OnChunk, Request
from fairlane_workers.providers.protocols.openai.chat import OpenAIChat
from fairlane_workers.providers.unsupported.adapting import KEPT_MS, AdaptingProvider

OPTIONS = "Unrecognized request argument supplied: stream_options"
VERIFIED = "Your organization must be verified to stream this model."
CLOCK = ManualClock()


class Whole:
    """A server that rejects bodies with certain fields, each in words of its own."""

    def __init__(self, **rejected: Outcome) -> None:
        self.rejected = rejected
        self.bodies: list[dict[str, Any]] = []

    async def call(self, request: Request, on_chunk: OnChunk | None = None) -> Outcome:
        body = OpenAIChat().body(request)
        self.bodies.append(body)
        return next((said for name, said in self.rejected.items() if body.get(name)), Success("fine"))

    async def prepare(self) -> None:
        """Nothing to load."""

    async def aclose(self) -> None:
        """Nothing to close."""


def ask(*, optional: bool = True, stream: bool = True, **params: Any) -> Request:
    return Request("m", [], params, stream, 9.0, 999, optional=frozenset({"stream"} if optional else ()))


def outcomes(server: Whole, *requests: Request, between_s: float = 0.0) -> list[type[Outcome]]:
    async def scene() -> list[type[Outcome]]:
        found = []
        for request in requests:
            outcome = await provider.call(request)
            assert not (isinstance(outcome, Success) and outcome.left_out), "nobody asked for it"
            found.append(type(outcome))
            CLOCK.advance(between_s)
        return found

    provider = AdaptingProvider("c", server, CLOCK)
    return asyncio.run(scene())


@pytest.mark.parametrize(
    "message",
    [
        OPTIONS,
        "stream_options: Extra inputs are not permitted",
        "Additional properties are not allowed ('stream_options' was unexpected)",
        "openai does not support parameters: ['stream_options'], for model=x",
        "include_usage is unknown",
    ],
)
def test_a_stream_goes_on_without_the_options_that_a_server_rejects(message: str) -> None:
    server = Whole(stream_options=PermanentFailure(message, 400))
    assert outcomes(server, ask(), ask(seed=1)) == [UnsupportedParameter, Success]
    assert server.bodies[-1] == {"model": "m", "messages": [], "stream": True, "seed": 1}


@pytest.mark.parametrize(
    "refusal",
    [
        PermanentFailure(VERIFIED, 400),
        PermanentFailure("Streaming is not supported for this model", 422),
        PermanentFailure("Unsupported value: 'stream' does not support true with this model.", 400),
        PermanentFailure("m is not found, or is not supported for streamGenerateContent", 404),
        PermanentFailure("not authorized to perform: bedrock:InvokeModelWithResponseStream", 403),
        AccessDenied("not authorized to perform: bedrock:InvokeModelWithResponseStream", 403),
        ServerError("stream is not implemented", 501),
    ],
)
def test_an_answer_that_cannot_be_streamed_comes_whole(refusal: Outcome) -> None:
    server = Whole(stream=refusal)
    assert outcomes(server, ask(), ask(), ask(stream=False)) == [UnsupportedParameter, Success, Success]
    assert [body["stream"] for body in server.bodies] == [True, False, False]


def test_first_the_options_go_and_then_the_stream() -> None:
    server = Whole(stream_options=PermanentFailure(OPTIONS, 400), stream=PermanentFailure(VERIFIED, 400))
    assert outcomes(server, *[ask()] * 4) == [*[UnsupportedParameter] * 2, Success, Success]
    assert "stream_options" not in server.bodies[1]


def test_options_of_the_run_itself_are_kept_while_it_streams() -> None:
    server = Whole(stream_options=PermanentFailure(OPTIONS, 400))
    own = ask(stream_options={"include_usage": True})
    assert outcomes(server, own, own) == [UnsupportedParameter, Success]
    assert server.bodies[-1] == {"model": "m", "messages": [], "stream": False}


def test_a_stream_that_somebody_asked_for_stays_one() -> None:
    server = Whole(stream=PermanentFailure(VERIFIED, 400))
    assert outcomes(server, *[ask(optional=False)] * 2) == [PermanentFailure] * 2


@pytest.mark.parametrize(
    "refusal",
    [
        PermanentFailure("the upstream rejected the request", 400),
        PermanentFailure("messages: too long", 400),
        PermanentFailure("stream", 413),
        AccessDenied("stream", 401),
        ServerError("the stream broke", 500),
    ],
)
def test_any_other_failure_stays_one(refusal: Outcome) -> None:
    assert outcomes(Whole(stream=refusal), ask()) == [type(refusal)]


def test_a_rejection_that_speaks_of_streams_to_a_whole_call_ends_it() -> None:
    server = Whole(model=PermanentFailure(VERIFIED, 400))
    assert outcomes(server, *[ask()] * 2) == [UnsupportedParameter, PermanentFailure]
    assert outcomes(server, ask(stream=False)) == [PermanentFailure]


def test_after_an_hour_one_call_finds_out_again() -> None:
    server = Whole(stream=PermanentFailure(VERIFIED, 400))
    found = outcomes(server, *[ask()] * 4, between_s=KEPT_MS / 2000)
    assert found == [UnsupportedParameter, Success, UnsupportedParameter, Success]
