"""Token counts, embeddings, several answers and rejected parameters, in the forms of their protocols."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from fairlane.testing import ServedProvider, SimulatorConfig, serve_in_thread

MESSAGES = [{"role": "user", "content": "Why is it so?"}]
CONTENTS = [{"role": "user", "parts": [{"text": "Why is it so?"}]}]
CONVERSE = {"messages": [{"role": "user", "content": [{"text": "Why is it so?"}]}]}
VERTEX = "/v1/projects/p/locations/global/publishers/google/models"
TOKENS = 4
MODELS = {
    "m": {"latency_ms": 0, "requests_per_minute": 1, "burst_seconds": 60},
    "free": {"latency_ms": 0},
    "reasons": {"latency_ms": 0, "reasoning": True},
}


@pytest.fixture(scope="module")
def served() -> Iterator[ServedProvider]:
    with serve_in_thread(SimulatorConfig.model_validate({"models": MODELS})) as provider:
        yield provider


def post(served: ServedProvider, path: str, body: dict[str, Any]) -> httpx.Response:
    return httpx.post(served.url + path, json=body, timeout=10)


@pytest.mark.parametrize(
    ("path", "body", "counted"),
    [
        ("/v1/messages/count_tokens", {"model": "m", "messages": MESSAGES}, {"input_tokens": TOKENS}),
        (
            "/v1/responses/input_tokens",
            {"model": "m", "input": "Why is it so?"},
            {"object": "response.input_tokens", "input_tokens": TOKENS},
        ),
        ("/model/m/count-tokens", {"input": {"converse": CONVERSE}}, {"inputTokens": TOKENS}),
        ("/v1beta/models/m:countTokens", {"contents": CONTENTS}, {"totalTokens": TOKENS}),
        (
            "/v1beta/models/m:countTokens",
            {"generateContentRequest": {"model": "models/m", "contents": CONTENTS}},
            {"totalTokens": TOKENS},
        ),
        (
            f"{VERTEX}/m:countTokens",
            {"contents": CONTENTS},
            {"totalTokens": TOKENS, "totalBillableCharacters": 10},
        ),
    ],
)
def test_counting_a_prompts_tokens_uses_up_no_limit(
    served: ServedProvider, path: str, body: dict[str, Any], counted: dict[str, Any]
) -> None:
    for _ in range(3):
        answer = post(served, path, body)
        assert answer.status_code == 200, answer.text
        assert counted.items() <= answer.json().items()
    assert served.stats().models["m"].requests == 0


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/v1/messages/count_tokens", {"model": "m", "messages": MESSAGES, "max_tokens": 9}, 400),
        ("/v1/messages/count_tokens", {"model": "none", "messages": MESSAGES}, 404),
        ("/v1/responses/input_tokens", {"model": "m"}, 400),
        ("/model/m/count-tokens", {"input": {}}, 400),
        ("/v1beta/models/m:countTokens", {}, 400),
        ("/v1beta/models/free:embedContent", {"content": {"parts": [{"text": ""}]}}, 400),
        ("/v1beta/models/free:batchEmbedContents", {"requests": []}, 400),
        ("/mistral/v1/embeddings", {"model": "free", "input": ["a"], "dimensions": 3}, 422),
        ("/openai/deployments/free/embeddings", {"input": "a"}, 404),
        ("/v1/chat/completions", {"model": "free", "messages": MESSAGES, "n": 129}, 400),
    ],
)
def test_an_invalid_request_is_rejected(
    served: ServedProvider, path: str, body: dict[str, Any], status: int
) -> None:
    assert post(served, path, body).status_code == status


def test_every_protocol_embeds_a_text_alike(served: ServedProvider) -> None:
    texts = ["a cat", "a dog"]
    said = {"model": "free", "input": texts}
    openai, azure, mistral = (
        [each["embedding"] for each in post(served, path, said).json()["data"]]
        for path in (
            "/v1/embeddings",
            "/openai/deployments/free/embeddings?api-version=2024-10-21",
            "/mistral/v1/embeddings",
        )
    )
    contents = [{"parts": [{"text": text}]} for text in texts]
    requests = [{"model": "models/free", "content": each} for each in contents]
    batch = post(served, "/v1beta/models/free:batchEmbedContents", {"requests": requests}).json()
    single = post(served, "/v1beta/models/free:embedContent", {"content": contents[0]}).json()
    gemini = [each["values"] for each in batch["embeddings"]]
    assert openai == azure == mistral == gemini
    assert single["embedding"]["values"] == openai[0] != openai[1]
    usage = post(served, "/mistral/v1/embeddings", said).json()["usage"]
    assert (usage["prompt_tokens"], usage["completion_tokens"]) == (3, 0)


def test_several_answers_are_choices_of_one(served: ServedProvider) -> None:
    asked = {"model": "free", "messages": MESSAGES, "n": 3}
    answer = post(served, "/v1/chat/completions", asked).json()
    assert [choice["index"] for choice in answer["choices"]] == [0, 1, 2]
    assert len({choice["message"]["content"] for choice in answer["choices"]}) == 3
    assert answer["usage"]["completion_tokens"] == 3 * 32


@pytest.mark.parametrize(
    ("path", "body", "param", "code"),
    [
        (
            "/v1/chat/completions",
            {"messages": MESSAGES, "temperature": 0},
            "temperature",
            "unsupported_value",
        ),
        (
            "/v1/chat/completions",
            {"messages": MESSAGES, "max_tokens": 9},
            "max_tokens",
            "unsupported_parameter",
        ),
        ("/v1/responses", {"input": "Why?", "top_p": 0.5}, "top_p", "unsupported_value"),
    ],
)
def test_openai_names_the_parameter_that_a_reasoning_model_rejects(
    served: ServedProvider, path: str, body: dict[str, Any], param: str, code: str
) -> None:
    answer = post(served, path, {"model": "reasons", **body})
    error = answer.json()["error"]
    assert (answer.status_code, error["param"], error["code"]) == (400, param, code)


@pytest.mark.parametrize(
    "options",
    [
        {"temperature": 1, "top_p": 1},
        {"max_completion_tokens": 9},
        {"presence_penalty": 0, "logprobs": False},
    ],
)
def test_a_reasoning_model_takes_its_defaults(served: ServedProvider, options: dict[str, Any]) -> None:
    asked = {"model": "reasons", "messages": MESSAGES, **options}
    assert post(served, "/v1/chat/completions", asked).status_code == 200


def test_a_body_too_deep_to_read_is_refused(served: ServedProvider) -> None:
    deep = b"[" * 200_000
    refused = httpx.post(f"{served.url}/v1/chat/completions", content=deep, timeout=10)
    assert (refused.status_code, "not valid JSON" in refused.text) == (400, True)
