"""Every provider keeps the contract: what it sends, what it reads, and what a refusal becomes."""

from __future__ import annotations

import asyncio
import gzip
import json
from typing import Any

import pytest

from fairlane.config.connections.connection import Connection
from fairlane.core.redaction import MASK, RUN
from fairlane.model.outcome import (
    AccessDenied,
    Overloaded,
    PermanentFailure,
    RateLimited,
    ServerError,
    Success,
    TimedOut,
)
from fairlane.model.tokens import Usage
from tests.support.provider_calls import (
    KEY,
    ask,
    call,
    every_protocol,
    every_streaming_protocol,
    provider_of,
    streamed,
    streamed_or_not,
    whole_stream,
)
from tests.support.scripted_server import (
    Fault,
    http,
    http_head,
    scripted_server,
)
from tests.support.wires import WIRES, Asked, Wire

FILTERING = [wire for wire in WIRES if wire.filter_reason]


@every_protocol
def test_a_whole_answer_is_a_success_with_its_usage_and_finish_reason(wire: Wire) -> None:
    outcome, _ = call(wire, ask(), [http(200, wire.whole("grüß dich"))])
    assert outcome == Success("grüß dich", Usage(7, 3), wire.stop_reason, 200, model=wire.answers_as)


@every_streaming_protocol
@pytest.mark.parametrize("size", [None, 1, 7])
def test_a_streamed_answer_is_the_same_wherever_the_network_cuts_it(wire: Wire, size: int | None) -> None:
    heard: list[str] = []

    async def listen(text: str) -> None:
        heard.append(text)

    data = whole_stream(wire, "gr\u00fc\u00df ", "dich \U0001f600", " sehr")
    outcome, _ = call(wire, ask(stream=True), streamed(wire, data, size=size), on_chunk=listen)
    assert outcome == Success(
        "gr\u00fc\u00df dich \U0001f600 sehr", Usage(7, 3), wire.stop_reason, 200, model=wire.answers_as
    )
    assert "".join(heard) == "gr\u00fc\u00df dich \U0001f600 sehr"


@every_streaming_protocol
@pytest.mark.parametrize("cut", [1, 7, len(KEY) - 1])
def test_a_listener_receives_no_key_that_the_provider_echoes(wire: Wire, cut: int) -> None:
    heard: list[str] = []

    async def listen(text: str) -> None:
        heard.append(text)

    data = whole_stream(wire, f"Bearer {KEY[:cut]}", KEY[cut:], ", no?", f" {KEY[:RUN]}")
    outcome, _ = call(wire, ask(stream=True), streamed(wire, data), on_chunk=listen)
    assert isinstance(outcome, Success)
    assert "".join(heard) == outcome.output == f"Bearer {MASK}, no? {MASK}"


@every_streaming_protocol
def test_a_stream_without_a_listener_is_read_all_the_same(wire: Wire) -> None:
    outcome, _ = call(wire, ask(stream=True), streamed(wire, whole_stream(wire, "a", "b")))
    assert isinstance(outcome, Success)
    assert outcome.output == "ab"


@every_protocol
def test_one_document_in_answer_to_a_stream_request_is_read(wire: Wire) -> None:
    heard: list[str] = []

    async def listen(text: str) -> None:
        heard.append(text)

    outcome, _ = call(wire, ask(stream=True), [http(200, wire.whole("all"))], on_chunk=listen)
    assert isinstance(outcome, Success)
    assert heard == [outcome.output] == ["all"]


@every_protocol
def test_an_empty_text_is_an_answer(wire: Wire) -> None:
    outcome, _ = call(wire, ask(), [http(200, wire.whole(""))])
    assert outcome == Success("", Usage(7, 3), wire.stop_reason, 200, model=wire.answers_as)


@every_streaming_protocol
def test_halves_of_a_surrogate_pair_are_joined_and_a_lone_one_is_replaced(wire: Wire) -> None:
    data = whole_stream(wire, "a\ud83d", "\ude00b", "c\ud83d")
    outcome, _ = call(wire, ask(stream=True), streamed(wire, data))
    assert isinstance(outcome, Success)
    assert outcome.output == "a\U0001f600bc\ufffd"


@every_protocol
def test_a_compressed_answer_is_unpacked(wire: Wire) -> None:
    body = gzip.compress(json.dumps(wire.whole("small")).encode())
    outcome, _ = call(wire, ask(), [http(200, body, {"content-encoding": "gzip"})])
    assert isinstance(outcome, Success)
    assert outcome.output == "small"


# What is sent


@every_protocol
def test_a_request_carries_model_messages_parameters_and_the_key(wire: Wire) -> None:
    _, server = call(wire, ask(temperature=0, max_tokens=5), [http(200, wire.whole("x"))])
    (received,) = server.received
    assert received.path == wire.path()
    assert wire.asked(received) == Asked("m-1", [("user", "hi")], 0, 5)
    assert KEY in received.headers[wire.key_header]


@every_protocol
@pytest.mark.parametrize("more", [{}, {"stream_": 1}])
def test_parameters_cannot_replace_what_the_call_fixes(wire: Wire, more: dict[str, Any]) -> None:
    _, server = call(wire, ask(model="other", messages=[], **more), [http(200, wire.whole("x"))])
    if wire.protocol == "http" and more:
        assert server.received == []  # its templates do not send it
        return
    asked = wire.asked(server.received[0])
    assert (asked.model, asked.messages) == ("m-1", [("user", "hi")])


@every_streaming_protocol
def test_calls_in_a_row_share_one_connection_until_a_fault(wire: Wire) -> None:
    async def scenario() -> list[int]:
        stream = streamed(wire, whole_stream(wire, "a"))
        script = [
            stream,
            [http(200, wire.whole("b"))],
            [http(429, {})],
            stream,
            [http(500, {})],
            stream,
            stream,
        ]
        async with scripted_server(script) as server, provider_of(wire, server.url) as provider:
            for is_stream in (True, False, False, True, False, True, True):
                await provider.call(ask(stream=is_stream))
            return [received.connection for received in server.received]

    assert asyncio.run(scenario()) == [1, 1, 1, 1, 1, 2, 2]


# Refusals


@every_protocol
@streamed_or_not
@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (302, PermanentFailure),
        (400, PermanentFailure),
        (401, AccessDenied),
        (402, AccessDenied),
        (403, AccessDenied),
        (404, PermanentFailure),
        (408, TimedOut),
        (413, PermanentFailure),
        (422, PermanentFailure),
        (429, RateLimited),
        (500, ServerError),
        (502, ServerError),
        (503, Overloaded),
        (504, TimedOut),
        (529, Overloaded),
    ],
)
def test_a_status_becomes_its_outcome(wire: Wire, stream: bool, status: int, expected: type) -> None:
    response = http(status, wire.error("some_error"), {"location": "http://elsewhere.invalid/"})
    outcome, server = call(wire, ask(stream=stream), [response])
    one_lane = Connection.model_validate(wire.settings("http://127.0.0.1:1")).scope != "model"
    assert type(outcome) is (PermanentFailure if status == 403 and one_lane else expected)
    assert (outcome.status, outcome.message) == (status, "the provider's words")  # type: ignore[union-attr]
    assert len(server.received) == 1


@every_protocol
def test_retry_after_binds_on_a_429_and_not_on_a_200(wire: Wire) -> None:
    refused, _ = call(wire, ask(), [http(429, wire.error("x"), {"Retry-After": "1.5"})])
    answered, _ = call(wire, ask(), [http(200, wire.whole("x"), {"retry-after-ms": "250"})])
    assert (refused.retry_after_ms, answered.retry_after_ms) == (1500, None)


@every_protocol
@pytest.mark.parametrize("status", [200, 404])
@pytest.mark.parametrize(
    ("remaining", "wait", "bound_ms"), [("599", "58", None), ("0", "58", 58_000), ("599", "5", 5000)]
)
def test_a_retry_after_that_only_repeats_when_a_limit_renews_does_not_bind_while_some_is_left(
    wire: Wire, status: int, remaining: str, wait: str, bound_ms: int | None
) -> None:
    """SlowAPI and Flask-Limiter send one with every answer."""
    headers = {"X-RateLimit-Limit": "600", "X-RateLimit-Remaining": remaining, "X-RateLimit-Reset": "58.4"}
    body = wire.whole("x") if status == 200 else wire.error("not_found")
    outcome, _ = call(wire, ask(), [http(status, body, headers | {"Retry-After": wait})])
    if status == 200 and remaining != "0":
        bound_ms = None  # no success delays the lane while some is left
    assert outcome.retry_after_ms == bound_ms


@every_protocol
def test_an_error_page_is_a_short_message(wire: Wire) -> None:
    outcome, _ = call(wire, ask(), [http(502, b"<html>" + b"x" * 200_000, content_type="text/html")])
    assert outcome == ServerError("HTTP 502 without a message", 502)


@every_protocol
def test_an_error_whose_body_breaks_off_is_reported_by_its_status(wire: Wire) -> None:
    broken = http_head(429, {"content-length": "900", "retry-after": "2"}) + b'{"error"'
    outcome, _ = call(wire, ask(), [broken, Fault.CLOSE])
    assert isinstance(outcome, RateLimited)
    assert outcome.retry_after_ms == 2000


@every_streaming_protocol
def test_an_overload_within_a_stream_is_an_overload(wire: Wire) -> None:
    data = wire.begin() + wire.piece("half") + wire.late_error(wire.overloaded)
    outcome, _ = call(wire, ask(stream=True), streamed(wire, data))
    assert outcome == wire.late_overload("the provider's words", wire.overloaded_status)


@every_protocol
def test_an_error_as_the_body_of_a_200_is_that_error(wire: Wire) -> None:
    outcome, _ = call(wire, ask(), [http(200, wire.error(wire.overloaded))])
    assert outcome == wire.late_overload("the provider's words", wire.overloaded_status)


@pytest.mark.parametrize("wire", FILTERING, ids=lambda wire: wire.protocol)
def test_a_content_filter_is_final(wire: Wire) -> None:
    outcome, _ = call(wire, ask(), [http(200, wire.whole("I", wire.filter_reason))])
    assert isinstance(outcome, PermanentFailure)


@pytest.mark.parametrize("wire", [w for w in FILTERING if w.streams], ids=lambda wire: wire.protocol)
def test_a_content_filter_that_ends_a_stream_is_final(wire: Wire) -> None:
    data = wire.begin() + wire.piece("I") + wire.finish(wire.filter_reason) + wire.end()
    outcome, _ = call(wire, ask(stream=True), streamed(wire, data))
    assert isinstance(outcome, PermanentFailure)


# Credentials


@every_protocol
@pytest.mark.parametrize(
    "body",
    [
        b'{"error": {"type": "authentication_error", "message": "bad key %s, sorry"}}' % KEY.encode(),
        b"bad key %s, sorry" % KEY.encode(),
        b'{"error": {"message": "%s %s"}}' % (b"x" * 490, KEY.encode()),
        b'{"error": {"message": "Incorrect API key provided: sk-live-****cdef."}}',
    ],
)
def test_a_key_that_the_provider_repeats_is_not_passed_on(wire: Wire, body: bytes) -> None:
    outcome, _ = call(wire, ask(), [http(401, body)])
    assert isinstance(outcome, AccessDenied)
    assert "sk-live" not in repr(outcome)
    assert "cdef" not in repr(outcome)


@every_protocol
def test_a_key_is_in_no_text_form_of_the_provider(wire: Wire) -> None:
    async def scenario() -> str:
        async with provider_of(wire, "http://127.0.0.1:9") as provider:
            return f"{provider} {provider!r} {await provider.call(ask())}"

    assert KEY not in asyncio.run(scenario())
