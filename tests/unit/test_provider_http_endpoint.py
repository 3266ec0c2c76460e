"""An endpoint of one's own: what is sent follows its description, and things are found where that says."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest
from pydantic import SecretStr

from fairlane.config.connections.connection import Connection
from fairlane.core.clock import ManualClock
from fairlane.model.outcome import (
    AccessDenied,
    InvalidResponse,
    Outcome,
    PermanentFailure,
    RateLimited,
    ServerError,
    Success,
)
from fairlane.model.tokens import Usage
from fairlane_workers.providers.contract import Request
from fairlane_workers.providers.registry import build_provider
from tests.support.scripted_server import Exchange, Received, chunk, event, http, scripted_server, stream_head

LEAST: dict[str, Any] = {"body": {"prompt": "{{ prompt }}"}, "output": "text"}


def ask(*messages: tuple[str, str], model: str = "m-1", stream: bool = False, **params: Any) -> Request:
    said = [{"role": role, "content": text} for role, text in messages or (("user", "hi"),)]
    return Request(model, said, params, stream, 5.0, 1 << 20)


def call(
    endpoint: dict[str, Any], request: Request, *script: Exchange, **settings: Any
) -> tuple[Outcome, list[Received], list[str]]:
    """The outcome of one call, what was received, and what the listener heard."""
    heard: list[str] = []

    async def listen(text: str) -> None:
        heard.append(text)

    async def scenario() -> tuple[Outcome, list[Received], list[str]]:
        async with scripted_server(script) as server:
            shown = {"protocol": "http", "base_url": f"{server.url}/api", "endpoint": endpoint, **settings}
            connection = Connection.model_validate(shown)
            provider = build_provider(
                "mine", connection, SecretStr("sk-live-0123456789"), clock=ManualClock()
            )
            try:
                outcome = await provider.call(request, listen if request.stream else None)
            finally:
                await provider.aclose()
            return outcome, server.received, heard

    return asyncio.run(scenario())


def sent(endpoint: dict[str, Any], request: Request) -> Received:
    _, (received,), _ = call(endpoint, request, [http(200, {"text": "x"})])
    return received


def test_what_is_sent_is_the_template_filled() -> None:
    body = {
        "model": "{{ model }}",
        "inputs": "{{ system }}\n\n{{ prompt }}",
        "options": {
            "n": "{{ params.max_tokens }}",
            "t": "{{ params.temperature }}",
            "fixed": [1, True, None],
        },
        "chat": "{{ messages }}",
        "streamed": "{{ stream }}",
    }
    asked = ask(("system", "be brief"), ("user", "one"), ("assistant", "1"), ("user", "two"), max_tokens=7)
    received = sent({**LEAST, "path": "/v2/generate", "body": body}, asked)
    assert received.path == "/api/v2/generate"
    assert received.json == {
        "model": "m-1",
        "inputs": "be brief\n\ntwo",
        "options": {"n": 7, "fixed": [1, True, None]},
        "chat": asked.messages,
        "streamed": False,
    }
    assert received.headers["authorization"] == "Bearer sk-live-0123456789"


def test_a_body_may_be_json_as_a_text_and_any_json() -> None:
    body = '["{{ prompt }}", {"n": "{{ params.n }}"}]'
    assert json.loads(sent({**LEAST, "body": body}, ask(n=2)).body) == ["hi", {"n": 2}]


def test_a_get_has_no_body_and_may_have_a_query() -> None:
    endpoint = {"method": "GET", "path": "/ask/{{ model }}?q={{ prompt }}", "output": "text"}
    received = sent(endpoint, ask(("user", "a b&c")))
    assert (received.path, received.body) == ("/api/ask/m-1?q=a%20b%26c", b"")


HOSTILE = [
    "../../admin",
    "x\r\nHost: evil",
    "m?key=1#",
    "//evil.example/",
    "{{ 7 * 7 }}",
    "http://evil/",
    "\\..\\",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_what_a_run_gives_changes_neither_server_nor_header_nor_path(text: str) -> None:
    endpoint = {**LEAST, "path": "/m/{{ model }}/run", "body": {"p": "{{ prompt }}", "v": "{{ params.v }}"}}
    for unsent in ({"path": text}, {"headers": {"x": text}}):
        assert call(endpoint, ask(("user", text), model=text, v=text, **unsent))[1] == []
    received = sent(endpoint, ask(("user", text), model=text, v=text))
    prefix, _, rest = received.path.removeprefix("/api/m/").partition("/run")
    assert received.path.startswith("/api/m/")
    assert (rest, "/" in prefix, "?" in prefix) == ("", False, False)
    assert received.json == {"p": text, "v": text}
    assert received.headers["host"].startswith("127.0.0.1")
    assert "x" not in received.headers


@pytest.mark.parametrize(
    ("body", "are_sent"),
    [
        ({"params": "{{ prompt }}"}, False),
        ({"t": "{{ params.temperature }}"}, False),
        ({"t": "{{ params.max_tokens | default(9) }}"}, True),
        ({"t": "{{ params['max_tokens'] }}"}, True),
        ({"t": "{{ params.get('max_tokens') }}"}, True),
        ({"all": ["{{ params }}"]}, True),
    ],
)
def test_a_parameter_that_no_template_sends_is_named(body: dict[str, Any], are_sent: bool) -> None:
    outcome, received, _ = call({**LEAST, "body": body}, ask(max_tokens=7), [http(200, {"text": "x"})])
    assert bool(received) is are_sent
    if not are_sent:
        assert isinstance(outcome, PermanentFailure)
        assert (
            'params.max_tokens: this endpoint is not sent it; leave it out, or write "{{' in outcome.message
        )
    assert sent({**LEAST, "body": body}, ask(max_tokens=None))


@pytest.mark.parametrize("model", [".", "..", ""])
def test_a_model_that_would_change_the_path_is_sent_nowhere(model: str) -> None:
    outcome, received, _ = call({**LEAST, "path": "/m/{{ model }}/x"}, ask(model=model))
    assert isinstance(outcome, PermanentFailure)
    assert "endpoint.path" in outcome.message
    assert received == []


def test_a_text_that_cannot_be_made_is_reported_with_its_place() -> None:
    outcome, received, _ = call({**LEAST, "body": {"a": {"b": "n={{ params.n }}"}}}, ask())
    assert isinstance(outcome, PermanentFailure)
    assert "endpoint.body.a.b" in outcome.message
    assert received == []


# What comes back

FOUND: dict[str, Any] = {
    **LEAST,
    "output": "results[0].generated",
    "input_tokens": "meta.tokens.in",
    "output_tokens": "meta.tokens.out",
    "finish_reason": "results[0].why",
    "error_kind": "problem.kind",
    "error_message": "problem.words",
}


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("all", "all"),
        ("", ""),
        (["a", "b"], "ab"),
        ({"a": 1}, '{"a":1}'),
        (7, "7"),
        ([1, "a"], '[1,"a"]'),
        ([], ""),
    ],
)
def test_an_output_of_any_json_becomes_text(value: Any, text: str) -> None:
    answer = {
        "results": [{"generated": value, "why": "eos"}],
        "meta": {"tokens": {"in": 4, "out": 2}},
        "problem": None,
    }
    outcome, _, _ = call(FOUND, ask(), [http(200, answer)])
    assert outcome == Success(text, Usage(4, 2), "eos", 200)


def test_a_reply_may_be_a_list() -> None:
    outcome, _, _ = call(
        {**LEAST, "output": "[0].generated_text"}, ask(), [http(200, b'[{"generated_text": "x"}]')]
    )
    assert isinstance(outcome, Success)
    assert outcome.output == "x"


@pytest.mark.parametrize(
    "answer", [b"{}", b'{"results": 7}', b"[]", b"null", b'{"results": [{"generated": null}]}']
)
def test_an_output_that_is_not_there_is_no_answer(answer: bytes) -> None:
    assert isinstance(call(FOUND, ask(), [http(200, answer)])[0], InvalidResponse)


@pytest.mark.parametrize(
    ("status", "kind", "settings", "expected"),
    [
        (429, "busy", {}, RateLimited),
        (500, "busy", {}, ServerError),
        (400, "insufficient_quota", {}, AccessDenied),
        (400, "NO_MORE", {"error_map": {"no_more": "quota"}}, AccessDenied),
        (503, "warming", {"error_map": {"warming": "rate_limited"}}, RateLimited),
        (200, "rate_limit_exceeded", {}, RateLimited),
        (200, "bad", {"error_map": {"bad": "permanent"}}, PermanentFailure),
        (200, "anything", {}, ServerError),
    ],
)
def test_an_error_is_found_by_its_kind_and_reported_in_its_words(
    status: int, kind: str, settings: dict[str, Any], expected: type
) -> None:
    body = {"problem": {"kind": kind, "words": "the endpoint's words"}}
    outcome, _, _ = call(FOUND, ask(), [http(status, body)], **settings)
    assert type(outcome) is expected
    assert outcome.message == "the endpoint's words"  # type: ignore[union-attr]


def test_usual_errors_need_no_description() -> None:
    outcome, _, _ = call(LEAST, ask(), [http(401, {"error": {"message": "who are you?"}})])
    assert isinstance(outcome, AccessDenied)
    assert outcome.message == "who are you?"


# Streams


def test_lines_of_json_stream() -> None:
    stream = {"format": "ndjson", "delta": "token", "done": "last"}
    endpoint = {**FOUND, "body": {"p": "{{ prompt }}", "s": "{{ stream }}"}, "stream": stream}
    lines = b"".join(
        json.dumps(line).encode() + end
        for line, end in (
            ({"token": "a"}, b"\n\n"),
            ({"token": "b", "meta": {"tokens": {"in": 4}}}, b"\n"),
            ({"last": True, "meta": {"tokens": {"out": 2}}}, b"\n"),
        )
    )
    script = [
        stream_head({"content-type": "application/x-ndjson"}),
        chunk(lines[:20]),
        chunk(lines[20:]),
        chunk(b""),
    ]
    outcome, (received,), heard = call(endpoint, ask(stream=True), script)
    assert outcome == Success("ab", Usage(4, 2), None, 200)
    assert "".join(heard) == "ab"
    assert received.json["s"] is True


def test_an_error_event_ends_a_stream() -> None:
    endpoint = {**LEAST, "stream": {"delta": "t", "end": "[DONE]"}}
    failed = event({"message": "no more", "type": "rate_limit_error"}, "error")
    outcome, _, _ = call(
        endpoint, ask(stream=True), [stream_head(), chunk(event({"t": "a"})), chunk(failed), chunk(b"")]
    )
    assert outcome == RateLimited("no more", 429)


def test_an_endpoint_that_does_not_stream_is_not_asked_to() -> None:
    endpoint = {**LEAST, "body": {"p": "{{ prompt }}", "s": "{{ stream }}"}}
    reply = http(200, {"text": "whole"}, content_type="text/plain")
    outcome, (received,), heard = call(endpoint, ask(stream=True), [reply])
    assert isinstance(outcome, Success)
    assert (outcome.output, heard, received.json["s"]) == ("whole", ["whole"], False)


# Calls that are begun and asked for

POLLED: dict[str, Any] = {
    **FOUND,
    "path": "/jobs",
    "polling": {
        "handle": "job.id",
        "status": "job.state",
        "done": ["ok", "true"],
        "failed": ["broken"],
        "look": "/jobs/{{ handle }}?full=1",
        "cancel": "/jobs/{{ handle }}/stop",
        "every_seconds": 0.05,
    },
}


def job(state: Any, **more: Any) -> Exchange:
    return [http(200, {"job": {"id": "j/1 ", "state": state}, **more})]


@pytest.mark.parametrize("done", ["ok", True])
def test_a_call_that_is_begun_is_asked_for_until_it_is_done(done: Any) -> None:
    handles: list[str] = []

    async def pending(handle: str) -> None:
        handles.append(handle)

    over = job(done, results=[{"generated": "x", "why": "eos"}])
    outcome, received, _ = call(POLLED, replace(ask(), on_pending=pending), job("new"), job(None), over)
    assert isinstance(outcome, Success)
    look = "/api/jobs/j%2F1%20?full=1"
    assert [each.path for each in received] == ["/api/jobs", look, look]
    assert handles == ["j/1 "]


def test_a_call_that_came_to_nothing_is_tried_again() -> None:
    outcome, _, _ = call(POLLED, ask(), job("new"), job("broken"))
    assert outcome == InvalidResponse("the call ended as broken", 200)


def test_one_that_says_why_is_judged_by_that() -> None:
    broken = job("broken", problem={"kind": "overloaded", "words": "too much"})
    outcome, _, _ = call(POLLED, ask(), job("new"), broken, error_map={"overloaded": "rate_limited"})
    assert isinstance(outcome, RateLimited)
    assert outcome.message == "too much"


@pytest.mark.parametrize("handle", [None, "", "..", "a" * 501, {"a": 1}, "x\ny"])
def test_a_call_that_cannot_be_named_is_no_answer(handle: Any) -> None:
    begun: Exchange = [http(200, {"job": {"id": handle, "state": "new"}})]
    outcome, received, _ = call(POLLED, ask(), begun)
    assert isinstance(outcome, InvalidResponse)
    assert len(received) == 1


def test_a_number_names_a_call_too() -> None:
    begun: Exchange = [http(200, {"job": {"id": 7, "state": "new"}})]
    _, received, _ = call(POLLED, ask(), begun, job("ok", results=[{"generated": "x"}]))
    assert received[1].path == "/api/jobs/7?full=1"
