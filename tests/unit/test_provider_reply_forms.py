"""A reply is read by how its body begins, whatever was asked and whatever its headers call it."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fairlane.model.outcome import (
    AccessDenied,
    InvalidResponse,
    Outcome,
    Overloaded,
    PermanentFailure,
    RateLimited,
    ServerError,
    Success,
)
from fairlane_workers.providers.answers.answer import Answer
from fairlane_workers.providers.http.reply_reader import ReplyReader
from fairlane_workers.providers.protocols.ollama import Ollama
from tests.support.provider_calls import KEY, ask, call, every_streaming_protocol, whole_stream
from tests.support.scripted_server import Exchange, chunk, http, stream_head
from tests.support.wires import WIRES, OpenAIChatWire, Wire

CHAT = OpenAIChatWire()
SSE = [wire for wire in WIRES if wire.streams and wire.stream_type == "text/event-stream"]
SPOKEN = [wire for wire in SSE if wire.protocol != "http"]
every_sse_protocol = pytest.mark.parametrize("wire", SSE, ids=lambda wire: wire.protocol)
LIMIT = {"code": 400, "message": "the request exceeds the context size", "type": "invalid_request_error"}


def sent(body: bytes, content_type: str | None, *, size: int | None = None) -> Exchange:
    """A chunked 200 with this body, in HTTP chunks of ``size`` bytes; ``None`` sends no content type."""
    head = stream_head({"content-type": content_type or ""})
    if content_type is None:
        head = head.replace(b"content-type: \r\n", b"")
    step = size or max(len(body), 1)
    return [head, *(chunk(body[at : at + step]) for at in range(0, len(body), step)), chunk(b"")]


def answered(
    wire: Wire, body: bytes, content_type: str | None, *, stream: bool, size: int | None = None
) -> Outcome:
    return call(wire, ask(stream=stream), sent(body, content_type, size=size))[0]


def document(wire: Wire, text: str) -> bytes:
    return json.dumps(wire.whole(text)).encode()


def message(outcome: Outcome) -> str:
    assert not isinstance(outcome, Success)
    return outcome.message


# Events


@every_sse_protocol
@pytest.mark.parametrize(
    "beat",
    [
        *(b"data:\n\n", b"data: \n\n", b"data:  \t \n\n", b"data\n\n", b"event: ping\ndata:\n\n"),
        *(b"data: : OPENROUTER PROCESSING\n\n", b"data: : OPENROUTER PROCESSING\ndata: \n\n"),
    ],
)
def test_events_that_say_nothing_are_skipped(wire: Wire, beat: bytes) -> None:
    parts = [wire.begin(), wire.piece("la"), wire.piece("te"), wire.finish(), wire.end()]
    outcome = answered(wire, b"".join(beat + part for part in parts), wire.stream_type, stream=True)
    assert isinstance(outcome, Success), outcome
    assert outcome.output == "late"


@pytest.mark.parametrize("mark", [b"data: [DONE] \n\n", b"data:[DONE]\t\n\n", b"data:   [DONE]\r\n\r\n"])
def test_blanks_around_an_end_mark_do_not_hide_it(mark: bytes) -> None:
    outcome = answered(CHAT, CHAT.begin() + CHAT.piece("a") + mark, CHAT.stream_type, stream=True)
    assert isinstance(outcome, Success)
    responses = next(wire for wire in WIRES if wire.protocol == "openai_responses")
    whole = whole_stream(responses, "a") + mark
    assert isinstance(answered(responses, whole, responses.stream_type, stream=True), Success)


@pytest.mark.parametrize("wire", SPOKEN, ids=lambda wire: wire.protocol)
@pytest.mark.parametrize(
    "told",
    [
        b"error: " + json.dumps(LIMIT).encode() + b"\n\n",
        b"error: " + json.dumps(LIMIT).encode() + b"\n",
        b"error: " + json.dumps({"error": LIMIT}).encode() + b"\n\n",
        b"event: error\ndata: " + json.dumps(LIMIT).encode() + b"\n\n",
        b"event: error\ndata: " + json.dumps({"error": LIMIT}).encode() + b"\n\n",
        json.dumps({"error": LIMIT}).encode() + b"\n\n",
        json.dumps({"error": LIMIT}, indent=2).encode() + b"\n",
        b"event: error\n" + json.dumps({"error": LIMIT}).encode() + b"\n\n",
    ],
)
def test_an_error_in_mid_stream_is_read_however_it_is_framed(wire: Wire, told: bytes) -> None:
    data = wire.begin() + wire.piece("half") + told + b"data: [DONE]\n\n"
    outcome = answered(wire, data, wire.stream_type, stream=True)
    assert not isinstance(outcome, Success | InvalidResponse), outcome
    assert message(outcome) == LIMIT["message"]
    if wire.protocol in ("openai", "azure_openai", "openai_responses", "anthropic"):
        assert isinstance(outcome, PermanentFailure)


@pytest.mark.parametrize("wire", SPOKEN, ids=lambda wire: wire.protocol)
@pytest.mark.parametrize(
    ("told", "expected", "words"),
    [
        (b"event: error\ndata: upstream failed\n\n", ServerError, "upstream failed"),
        (b"event: error\ndata: Too many requests\n\n", RateLimited, "Too many requests"),
        (b"event: error\ndata:\n\n", ServerError, "an error event without words"),
        (b"event: error\ndata: {}\n\n", ServerError, "an error event without words"),
        (b"error: cut off {\n\n", ServerError, "cut off {"),
    ],
)
def test_an_error_event_is_an_error_whatever_its_data(
    wire: Wire, told: bytes, expected: type, words: str
) -> None:
    data = wire.begin() + wire.piece("half") + told + wire.finish() + wire.end()
    outcome = answered(wire, data, wire.stream_type, stream=True)
    assert isinstance(outcome, expected), outcome
    assert message(outcome) == words


# Forms

TYPES = [None, "text/html", "text/plain", "application/json", "text/event-stream", "application/octet-stream"]


@every_streaming_protocol
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("content_type", TYPES)
@pytest.mark.parametrize("size", [None, 3])
def test_one_document_is_read_whatever_it_is_called(
    wire: Wire, stream: bool, content_type: str | None, size: int | None
) -> None:
    outcome = answered(wire, b"\n  " + document(wire, "all"), content_type, stream=stream, size=size)
    assert isinstance(outcome, Success), outcome
    assert outcome.output == "all"


@every_streaming_protocol
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("content_type", TYPES)
@pytest.mark.parametrize("size", [None, 3])
def test_a_stream_is_read_whatever_was_asked(
    wire: Wire, stream: bool, content_type: str | None, size: int | None
) -> None:
    outcome = answered(wire, whole_stream(wire, "a", "b"), content_type, stream=stream, size=size)
    assert isinstance(outcome, Success), outcome
    assert outcome.output == "ab"


@pytest.mark.parametrize(
    "begin", [b"", b"\xef\xbb\xbf", b"\r\n\n", b": hello\n\n", b"id: 7\n", b"retry: 9\n", b":\n"]
)
@pytest.mark.parametrize("size", [None, 1])
def test_a_stream_is_known_by_any_field(begin: bytes, size: int | None) -> None:
    outcome = answered(CHAT, begin + whole_stream(CHAT, "a"), "application/json", stream=False, size=size)
    assert isinstance(outcome, Success), outcome
    assert outcome.output == "a"


def test_a_document_in_an_event_is_the_answer() -> None:
    data = b"data: " + document(CHAT, "all") + b"\n\ndata: [DONE]\n\n"
    outcome = answered(CHAT, data, "text/event-stream", stream=False)
    assert isinstance(outcome, Success)
    assert outcome.output == "all"


def test_events_of_ollama_may_come_as_server_sent_events() -> None:
    ollama = next(wire for wire in WIRES if wire.protocol == "ollama")
    lines = whole_stream(ollama, "a", "b").splitlines()
    data = b"".join(b"data: " + line + b"\n\n" for line in lines)
    outcome = answered(ollama, data, "text/event-stream", stream=True)
    assert isinstance(outcome, Success)
    assert outcome.output == "ab"


def test_a_document_of_many_lines_in_place_of_lines_is_read() -> None:
    ollama = next(wire for wire in WIRES if wire.protocol == "ollama")
    body = json.dumps(ollama.whole("all"), indent=2).encode()
    assert isinstance(answered(ollama, body, "application/x-ndjson", stream=True), Success)


def test_listeners_hear_a_stream_that_was_mislabelled_as_it_arrives() -> None:
    heard: list[str] = []

    async def listen(text: str) -> None:
        heard.append(text)

    pieces = [CHAT.begin(), CHAT.piece("a" * 600), CHAT.piece("b" * 600), CHAT.finish(), CHAT.end()]
    script = [stream_head({"content-type": "application/json"}), *map(chunk, pieces), chunk(b"")]
    outcome, _ = call(CHAT, ask(stream=True), script, on_chunk=listen)
    assert isinstance(outcome, Success)
    assert "".join(heard) == outcome.output == "a" * 600 + "b" * 600


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("body", [b"[" * 400, b"data: {", b" " * 400, b"<title>" * 100, b"{" + b" " * 400])
def test_a_body_of_any_form_is_bounded(stream: bool, body: bytes) -> None:
    request = ask(stream=stream, max_bytes=1000)
    outcome, _ = call(CHAT, request, sent(body * 10, "text/event-stream", size=100))
    if len(body) * 10 > 1000:
        assert isinstance(outcome, PermanentFailure)
        assert "larger than 1000 bytes. Raise worker.max_response_bytes" in outcome.message
        assert outcome.textless
    else:
        assert isinstance(outcome, InvalidResponse)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    head=st.one_of(
        st.binary(max_size=12),
        st.sampled_from([b"data:", b"{", b"[", b"<", b"\xef\xbb", b"\x00\x00", b"retry", b"er", b"{\n"]),
    ),
    tail=st.binary(max_size=40),
    stream=st.booleans(),
    content_type=st.sampled_from(TYPES),
    size=st.integers(1, 8),
    wire=st.sampled_from([wire for wire in WIRES if wire.streams]),
)
def test_no_body_is_taken_for_an_answer_that_it_is_not(
    head: bytes, tail: bytes, stream: bool, content_type: str | None, size: int, wire: Wire
) -> None:
    outcome = answered(wire, head + tail, content_type, stream=stream, size=size)
    assert not isinstance(outcome, Success)
    assert len(message(outcome)) <= 500


# Words

_TITLE = b"<TITLE lang=en>\n Just a  moment&hellip; </TITLE>"
PAGE = b"<!DOCTYPE html>\n<html><head>\n" + _TITLE + b"</head><body>x</body></html>"


@every_streaming_protocol
@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("content_type", [*TYPES, "text/html; charset=UTF-8"])
def test_a_page_in_place_of_an_answer_is_named_by_its_title(
    wire: Wire, stream: bool, content_type: str | None
) -> None:
    outcome = answered(wire, PAGE, content_type, stream=stream)
    assert isinstance(outcome, InvalidResponse)
    kind = (content_type or "no content type").partition(";")[0]
    assert outcome.message == f"not JSON: a page ({kind}) with the title 'Just a moment…'"


@pytest.mark.parametrize("stream", [True, False])
def test_a_page_without_a_title_is_named_by_its_first_line(stream: bool) -> None:
    outcome = answered(CHAT, b"\n<html>\n<h1>Welcome to nginx!</h1>", "text/html", stream=stream)
    assert message(outcome) == "not JSON: a page (text/html) that begins with '<html>'"


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("content_type", ["text/plain", "text/event-stream", None])
def test_a_text_in_place_of_an_answer_is_quoted(stream: bool, content_type: str | None) -> None:
    outcome = answered(CHAT, b"upstream connect error", content_type, stream=stream)
    assert isinstance(outcome, InvalidResponse)
    assert "'upstream connect error'" in outcome.message


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"id": "a", "status": "IN_QUEUE"}, InvalidResponse),
        ({}, InvalidResponse),
        ({"errorMessage": "Task timed out", "errorType": "X"}, ServerError),
    ],
)
def test_a_document_without_an_answer_is_quoted_or_read_as_an_error(
    stream: bool, body: dict[str, Any], expected: type[Outcome]
) -> None:
    outcome = answered(CHAT, json.dumps(body).encode(), "application/json", stream=stream)
    assert isinstance(outcome, InvalidResponse | ServerError)
    assert type(outcome) is expected
    quoted = f"choices: missing in {json.dumps(body)!r}"
    assert outcome.message == body.get("errorMessage", quoted)


@pytest.mark.parametrize("wire", SPOKEN, ids=lambda wire: wire.protocol)
@pytest.mark.parametrize("content_type", TYPES)
def test_a_bare_error_in_place_of_a_stream_is_that_error(wire: Wire, content_type: str | None) -> None:
    body = json.dumps(wire.error(wire.overloaded), indent=1).encode()
    outcome = answered(wire, body, content_type, stream=True)
    assert outcome == wire.late_overload("the provider's words", wire.overloaded_status)


@pytest.mark.parametrize(
    ("status", "kind"), [(403, AccessDenied), (429, RateLimited), (503, Overloaded), (502, ServerError)]
)
@pytest.mark.parametrize("stream", [True, False])
def test_the_title_of_an_error_page_is_its_message(status: int, kind: type, stream: bool) -> None:
    with_title, _ = call(CHAT, ask(stream=stream), [http(status, PAGE, content_type="text/html")])
    without, _ = call(CHAT, ask(stream=stream), [http(status, b"<html>", content_type="text/html")])
    assert isinstance(with_title, kind)
    assert type(with_title) is type(without)
    assert message(with_title) == f"HTTP {status}: Just a moment…"
    assert message(without) == f"HTTP {status} without a message"


@pytest.mark.parametrize(
    ("status", "title"), [(403, b"Rate limit exceeded"), (400, b"temporarily unavailable")]
)
def test_a_title_changes_no_class(status: int, title: bytes) -> None:
    page = b"<html><title>%s</title>" % title
    with_title, _ = call(CHAT, ask(), [http(status, page, content_type="text/html")])
    without, _ = call(CHAT, ask(), [http(status, b"<html>", content_type="text/html")])
    assert type(with_title) is type(without)
    assert getattr(with_title, "doubtful", None) == getattr(without, "doubtful", None)


@pytest.mark.parametrize("status", [200, 403])
@pytest.mark.parametrize("stream", [True, False])
def test_a_title_and_a_quote_are_masked_and_bounded(status: int, stream: bool) -> None:
    page = b"<html><title>key %s %s</title>" % (KEY.encode(), b"x" * 5000)
    for body in (page, b"bad key %s" % KEY.encode(), b'{"detail2": "%s"}' % KEY.encode()):
        outcome, _ = call(CHAT, ask(stream=stream), [http(status, body, content_type="text/html")])
        assert KEY not in repr(outcome)
        assert len(message(outcome)) <= 500


def test_a_redirect_keeps_its_own_words() -> None:
    outcome, _ = call(
        CHAT, ask(), [http(302, PAGE, {"location": "http://x.invalid/"}, content_type="text/html")]
    )
    assert "is not followed" in message(outcome)


@pytest.mark.parametrize("stream", [True, False])
def test_a_stream_that_ends_too_early_says_so(stream: bool) -> None:
    outcome = answered(CHAT, CHAT.begin() + CHAT.piece("half"), CHAT.stream_type, stream=stream)
    assert message(outcome) == "the stream ended before the answer did"


def test_reading_by_bytes_takes_no_time_that_grows_with_their_square() -> None:
    body = b"\n" * 20_000 + b"{" + b" " * 20_000 + b"}"

    async def scenario() -> float:
        loop = asyncio.get_running_loop()
        reader = ReplyReader(Ollama(), Answer(), None)
        began = loop.time()
        await reader.read(_Bytes(body), 1 << 20, asyncio.timeout(None), stream=True)  # type: ignore[arg-type]
        return loop.time() - began

    assert asyncio.run(scenario()) < 5


class _Bytes:
    """A reply whose body arrives byte by byte."""

    headers: dict[str, str] = {}  # noqa: RUF012

    def __init__(self, body: bytes) -> None:
        self._body = body

    async def chunks(self, max_bytes: int) -> Any:
        for each in self._body:
            yield bytes([each])
