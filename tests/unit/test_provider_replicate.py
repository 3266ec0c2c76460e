"""What becomes of a call at Replicate: where it goes, its input, and what a failed prediction means."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from fairlane.model.outcome import (
    AccessDenied,
    InvalidResponse,
    Outcome,
    Overloaded,
    PermanentFailure,
    Success,
    TimedOut,
)
from fairlane_workers.providers.contract import Request
from fairlane_workers.providers.dialect import UnmappableError
from fairlane_workers.providers.protocols.replicate import Replicate
from tests.support.provider_calls import ask, call, provider_of
from tests.support.scripted_server import http, scripted_server
from tests.support.wires.replicate import ReplicateWire

WIRE = ReplicateWire()
DIALECT = Replicate()


def request(*messages: tuple[str, str], model: str = "meta/llama", **params: Any) -> Request:
    said = [{"role": role, "content": text} for role, text in messages or (("user", "hi"),)]
    return Request(model, said, params, False, 5.0, 1 << 20)


def given(*messages: tuple[str, str], **params: Any) -> dict[str, Any]:
    found: dict[str, Any] = DIALECT.body(request(*messages, **params))["input"]
    return found


@pytest.mark.parametrize(
    ("model", "target", "version"),
    [
        ("meta/meta-llama-3.1-8b", "/models/meta/meta-llama-3.1-8b/predictions", None),
        ("meta/llama:5c7d5dc6", "/predictions", "5c7d5dc6"),
        ("5c7d5dc6", "/predictions", "5c7d5dc6"),
        ("deployments/acme/app", "/deployments/acme/app/predictions", None),
    ],
)
def test_a_model_is_called_as_it_is_written(model: str, target: str, version: str | None) -> None:
    asked = request(model=model)
    assert DIALECT.target(asked) == target
    assert DIALECT.body(asked).get("version") == version


@pytest.mark.parametrize(
    "model", ["a/b/c", "../x", "a/..", "a/b?c", "a/b c", "a/", "/a", "deployments/a", ":", "a/b:c/d"]
)
def test_a_model_that_is_none_is_sent_nowhere(model: str) -> None:
    if model == "deployments/a":
        assert DIALECT.target(request(model=model)) == "/models/deployments/a/predictions"
        return
    with pytest.raises(UnmappableError, match="owner/name"):
        DIALECT.target(request(model=model))


def test_a_single_user_message_is_the_prompt() -> None:
    assert given(("user", "hi")) == {"prompt": "hi"}
    assert given(("system", "be brief"), ("developer", "in German"), ("user", "hi")) == {
        "system_prompt": "be brief\n\nin German",
        "prompt": "hi",
    }


def test_several_messages_are_a_transcript_that_the_assistant_goes_on_with() -> None:
    said = given(("system", "s"), ("user", "one"), ("assistant", "1"), ("user", "two"))
    assert said == {"system_prompt": "s", "prompt": "User: one\n\nAssistant: 1\n\nUser: two\n\nAssistant:"}


def test_messages_in_parts_are_their_texts() -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    said = [{"role": "system", "content": parts}, {"role": "user", "content": parts}, {"role": "assistant"}]
    assert DIALECT.body(Request("a/b", said, {}, False, 1.0, 1024))["input"] == {
        "system_prompt": "one\ntwo",
        "prompt": "User: one\ntwo\n\nAssistant: \n\nAssistant:",
    }


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "https://x/y.png"}}]},
        {"role": "user", "content": [{"type": "video_url"}]},
        {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "{}"}}]},
    ],
)
def test_what_no_prompt_can_say_is_refused(message: dict[str, Any]) -> None:
    with pytest.raises(UnmappableError, match=r"messages\[0\].*text alone"):
        DIALECT.body(Request("a/b", [message], {}, False, 1.0, 1024))


def test_parameters_are_the_input_as_they_are() -> None:
    params = {"max_tokens": 5, "top_k": 3, "tools": [1], "max_completion_tokens": 9, "seed": None}
    assert given(**params) == {
        "prompt": "hi",
        "max_tokens": 5,
        "top_k": 3,
        "tools": [1],
        "max_completion_tokens": 9,
    }


def test_stop_becomes_one_text() -> None:
    assert given(stop=["a", "b"])["stop_sequences"] == "a,b"
    assert given(stop="a") == {"prompt": "hi", "stop_sequences": "a"}
    assert given(stop=["a"], stop_sequences="own") == {"prompt": "hi", "stop": ["a"], "stop_sequences": "own"}
    for wrong in (["a,b"], [1], {"a": 1}):
        with pytest.raises(UnmappableError, match="stop"):
            given(stop=wrong)


def test_an_input_of_its_own_goes_before_all() -> None:
    assert given(temperature=1, input={"temperature": 0, "image": "u"}) == {
        "prompt": "hi",
        "temperature": 0,
        "image": "u",
    }
    assert given(input={"prompt": "own"}) == {"prompt": "own"}
    with pytest.raises(UnmappableError, match="input"):
        given(input="x")


def test_messages_as_a_parameter_take_the_prompts_place() -> None:
    own = [{"role": "user", "content": "own"}]
    assert given(messages=own) == {"messages": own}


@pytest.mark.parametrize(
    ("output", "text"), [("all", "all"), (["a", "b"], "ab"), ({"x": 1}, '{"x":1}'), ([], ""), ([1], "[1]")]
)
def test_an_output_of_any_json_becomes_text(output: Any, text: str) -> None:
    outcome, _ = call(WIRE, ask(), [http(200, WIRE.prediction("succeeded", output=output))])
    assert isinstance(outcome, Success)
    assert outcome.output == text


def failed(status: str, error: str | None) -> Outcome:
    return call(WIRE, ask(), [http(200, WIRE.prediction(status, error=error))])[0]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        ("CUDA out of memory. Tried to allocate 2 GiB", InvalidResponse),
        ("E1001 Model Out of Memory", InvalidResponse),
        ("ValueError: no such scheduler", InvalidResponse),
        (None, InvalidResponse),
        ("Prediction interrupted; please retry (code: PA)", Overloaded),
        ("Director: unexpected error handling prediction (E9243)", Overloaded),
        ("E6716 Timeout starting prediction", Overloaded),
        ("The input or output was flagged as sensitive. (E005)", PermanentFailure),
        ("NSFW content detected", PermanentFailure),
        ("Model execution timed out", TimedOut),
    ],
)
def test_a_failed_prediction_is_judged_by_its_words(error: str | None, expected: type) -> None:
    outcome = failed("failed", error)
    assert type(outcome) is expected
    if error is not None:
        assert error in outcome.message  # type: ignore[union-attr]


def test_one_that_somebody_stopped_is_tried_again() -> None:
    assert isinstance(failed("canceled", None), InvalidResponse)
    assert isinstance(failed("aborted", None), TimedOut)
    assert isinstance(failed("dreaming", None), InvalidResponse)


def test_a_connection_may_judge_otherwise() -> None:
    async def scenario() -> Outcome:
        script = [[http(200, WIRE.prediction("failed", error="Prediction interrupted; please retry"))]]
        settings = {"error_map": {"interrupted": "rate_limited"}}
        async with scripted_server(script) as server, provider_of(WIRE, server.url, **settings) as provider:
            return await provider.call(ask())

    assert type(asyncio.run(scenario())).__name__ == "RateLimited"


def test_a_refusal_is_reported_in_its_own_words() -> None:
    body = {"title": "Insufficient credit", "detail": "You have insufficient credit", "status": 402}
    outcome, _ = call(WIRE, ask(), [http(402, body)])
    assert outcome == AccessDenied("You have insufficient credit", 402, "quota")
    invalid = {"title": "Input validation failed", "detail": "- input: prompt is required\n", "status": 422}
    assert isinstance(call(WIRE, ask(), [http(422, invalid)])[0], PermanentFailure)
    outcome, _ = call(WIRE, ask(), [http(404, {"title": "Not found", "status": 404})])
    assert outcome == PermanentFailure("Not found", 404, doubtful=True)
