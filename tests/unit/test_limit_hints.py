"""Every outcome of a call carries what the answer's headers said of the limits."""

from __future__ import annotations

import asyncio
from typing import cast

import aiohttp
import httpx
import pytest

from fairlane.core.clock import ManualClock
from fairlane.model.hints import AxisHint, Hints
from fairlane.model.outcome import InvalidResponse, Outcome, RateLimited, Success, TimedOut
from fairlane_workers.providers.answers.classify import Reading
from fairlane_workers.providers.http.provider import HttpProvider
from fairlane_workers.providers.protocols.openai.chat import OpenAIChat
from fairlane_workers.transport import Reply, Transport
from tests.support.provider_calls import (
    ask,
    call,
    every_protocol,
    every_streaming_protocol,
    opened,
    streamed_or_not,
)
from tests.support.scripted_server import Fault, chunk, event, http, http_head, stream_head
from tests.support.wires import OpenAIChatWire, Wire

LEFT = {
    "X-RateLimit-Limit-Tokens": "6000",
    "x-ratelimit-remaining-tokens": "1500",
    "x-ratelimit-reset-tokens": "45s",
}
LEFT_HINTS = Hints({"tokens": AxisHint(6_000, 1_500, 45_000)})
SPENT = {**LEFT, "x-ratelimit-remaining-tokens": "0"}
SPENT_HINTS = Hints({"tokens": AxisHint(6_000, 0, 45_000)}, "tokens")


@every_protocol
def test_a_success_carries_hints(wire: Wire) -> None:
    outcome, _ = call(wire, ask(), [http(200, wire.whole("x"), LEFT)])
    assert isinstance(outcome, Success)
    assert outcome.hints == LEFT_HINTS
    assert outcome.retry_after_ms is None


@every_streaming_protocol
def test_a_streamed_success_carries_hints(wire: Wire) -> None:
    parts = (chunk(part) for part in (wire.begin(), wire.piece("x"), wire.finish(), wire.end()) if part)
    outcome, _ = call(wire, ask(stream=True), [opened(wire, LEFT), *parts, chunk(b"")])
    assert isinstance(outcome, Success)
    assert outcome.hints == LEFT_HINTS


@every_protocol
def test_an_answer_without_limits_has_no_hints(wire: Wire) -> None:
    outcome, _ = call(wire, ask(), [http(200, wire.whole("x"))])
    assert outcome.hints is None


@every_protocol
@streamed_or_not
def test_a_refusal_carries_hints_and_the_wait_of_its_axis(wire: Wire, stream: bool) -> None:
    outcome, _ = call(wire, ask(stream), [http(429, {"error": {"message": "said"}}, SPENT)])
    assert outcome == RateLimited("said", 429, 45_000, SPENT_HINTS)


def test_a_rate_limit_in_mid_stream_carries_hints() -> None:
    error = event({"error": {"message": "said", "type": "tokens", "code": "rate_limit_exceeded"}})
    outcome, _ = call(OpenAIChatWire(), ask(stream=True), [stream_head(LEFT), chunk(error), chunk(b"")])
    assert outcome == RateLimited("said", 429, 45_000, Hints(LEFT_HINTS.axes, "tokens"))


def test_an_answer_that_cannot_be_used_carries_hints() -> None:
    outcome, _ = call(OpenAIChatWire(), ask(), [http(200, b"{", LEFT)])
    assert isinstance(outcome, InvalidResponse)
    assert outcome.hints == LEFT_HINTS


def test_an_answer_that_does_not_end_in_time_carries_hints() -> None:
    begun = http_head(200, {"content-type": "application/json", "content-length": "100", **LEFT})
    outcome, _ = call(OpenAIChatWire(), ask(timeout_s=1.0), [begun, Fault.HANG])
    assert isinstance(outcome, TimedOut)
    assert outcome.hints == LEFT_HINTS


class Canned(Transport):
    """A transport whose every answer is the same."""

    def __init__(self, headers: list[tuple[str, str]]) -> None:
        super().__init__()
        self._told = headers

    async def send(self, *_: object, **__: object) -> Reply:  # type: ignore[override]
        response = httpx.Response(200, headers=self._told, json=OpenAIChatWire().whole("x"))
        return Reply(200, response.headers, cast("aiohttp.ClientResponse", response))


def answered(host: str, *headers: tuple[str, str], limits: str | None = None) -> Outcome:
    url = httpx.URL(f"https://{host}/v1")
    canned, reading = Canned(list(headers)), Reading(limits)
    provider = HttpProvider("c", OpenAIChat(), url, canned, ManualClock(), reading=reading)
    return asyncio.run(provider.call(ask()))


@pytest.mark.parametrize(
    ("host", "axis"), [("api.groq.com", "day"), ("api.openai.com", "requests"), ("proxy.example", "requests")]
)
def test_the_host_of_a_connection_says_what_its_requests_count(host: str, axis: str) -> None:
    outcome = answered(host, ("x-ratelimit-limit-requests", "14400"))
    assert outcome.hints is not None
    assert list(outcome.hints.axes) == [axis]


def test_a_connection_may_state_the_dialect_of_what_is_behind_it() -> None:
    outcome = answered("proxy.example", ("x-ratelimit-limit-requests", "14400"), limits="groq")
    assert outcome.hints == Hints({"day": AxisHint(14_400)})


def test_a_field_in_several_lines_is_one_list() -> None:
    policies = [("ratelimit-policy", '"a";q=10;w=1'), ("ratelimit-policy", '"b";q=1000;w=86400')]
    outcome = answered("proxy.example", *policies)
    assert outcome.hints == Hints({"requests": AxisHint(600), "day": AxisHint(1_000)})
