"""Ollama's SDK against the simulated provider: it parses what is answered, and raises what is refused."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import ollama
import pytest

from fairlane.testing import Faults, ServedProvider, SimulatedModel, SimulatorConfig, serve_in_thread

ECHO = SimulatedModel(latency_ms=1.0, output="echo", chunks=3)
ASKED = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "How many are there?"}]
CITY: dict[str, Any] = {"type": "object", "properties": {"city": {"enum": ["Bonn"]}}, "required": ["city"]}
WEATHER = {"type": "function", "function": {"name": "weather", "description": "…", "parameters": CITY}}


@contextmanager
def served(model: SimulatedModel = ECHO, key: str | None = None) -> Iterator[ServedProvider]:
    config = SimulatorConfig.model_validate({"models": {"llama3.2:3b": model}, "api_key": key})
    with serve_in_thread(config) as provider:
        yield provider


@contextmanager
def client(model: SimulatedModel = ECHO, key: str | None = None, sent: str = "") -> Iterator[ollama.Client]:
    headers = {"Authorization": f"Bearer {sent}"} if sent else {}
    with served(model, key) as provider, ollama.Client(host=provider.url, headers=headers) as sdk:
        yield sdk


def test_a_whole_answer_is_parsed_with_its_counts() -> None:
    options = {"num_predict": 50, "temperature": 0.5, "top_p": 0.9, "top_k": 5, "seed": 1, "stop": ["END"]}
    with client() as sdk:
        answer = sdk.chat("llama3.2:3b", ASKED, options=options, keep_alive="5m", think=False)
    assert (answer.message.role, answer.message.content) == ("assistant", "How many are there?")
    assert (answer.model, answer.done, answer.done_reason) == ("llama3.2:3b", True, "stop")
    assert (answer.prompt_eval_count, answer.eval_count) == (8, 5)


def test_a_stream_is_parsed_line_by_line() -> None:
    with client() as sdk:
        parts = list(sdk.chat("llama3.2:3b", ASKED, stream=True))
    assert "".join(part.message.content or "" for part in parts) == "How many are there?"
    assert [part.done for part in parts] == [False, False, False, True]
    assert (parts[-1].done_reason, parts[-1].eval_count) == ("stop", 5)


def test_an_answer_that_is_cut_says_so() -> None:
    with client() as sdk:
        answer = sdk.chat("llama3.2:3b", ASKED, options={"num_predict": 1})
    assert (answer.message.content, answer.done_reason) == ("How ", "length")


@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_tool_is_called(stream: bool) -> None:
    with client(ECHO.model_copy(update={"output": "tool"})) as sdk:
        shown: Any = sdk.chat("llama3.2:3b", ASKED, tools=[WEATHER], stream=stream)
        parts = list(shown) if stream else [shown]
    (call,) = [call for part in parts for call in part.message.tool_calls or []]
    assert (call.function.name, call.function.arguments) == ("weather", {"city": "Bonn"})


def test_an_answer_can_be_held_to_a_schema() -> None:
    with client(ECHO.model_copy(update={"output": "schema"})) as sdk:
        answer = sdk.chat("llama3.2:3b", ASKED, format=CITY)
    assert json.loads(answer.message.content or "") == {"city": "Bonn"}


@pytest.mark.parametrize("status", [400, 404, 429, 500, 503])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_a_refusal_is_a_response_error_with_its_status(status: int, stream: bool) -> None:
    with (
        client(ECHO.model_copy(update={"status_always": status})) as sdk,
        pytest.raises(ollama.ResponseError) as refused,
    ):
        list(sdk.chat("llama3.2:3b", ASKED, stream=stream))
    assert refused.value.status_code == status
    assert refused.value.error == f"llama3.2:3b is configured to answer {status}."


def test_an_unknown_model_is_not_found() -> None:
    with client() as sdk, pytest.raises(ollama.ResponseError) as refused:
        sdk.chat("mistral", ASKED)
    assert (refused.value.status_code, refused.value.error) == (404, "model 'mistral' not found")


def test_a_failure_in_mid_stream_is_raised_after_the_text_before_it() -> None:
    with client(ECHO.model_copy(update={"faults": Faults(error_in_stream=1.0)})) as sdk:
        parts = iter(sdk.chat("llama3.2:3b", ASKED, stream=True))
        assert next(parts).message.content == "How ma"
        with pytest.raises(ollama.ResponseError, match="Overloaded"):
            next(parts)


def test_an_option_of_the_wrong_type_is_refused() -> None:
    with client() as sdk, pytest.raises(ollama.ResponseError, match="num_predict") as refused:
        sdk.chat("llama3.2:3b", ASKED, options={"num_predict": "50"})
    assert refused.value.status_code == 400


def test_a_server_may_ask_for_a_key() -> None:
    with client(key="k-1", sent="k-1") as sdk:
        assert sdk.chat("llama3.2:3b", ASKED).done
    with client(key="k-1", sent="k-2") as sdk, pytest.raises(ollama.ResponseError) as refused:
        sdk.chat("llama3.2:3b", ASKED)
    assert refused.value.status_code == 401
