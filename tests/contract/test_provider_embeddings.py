"""Embeddings of an OpenAI-compatible server, real and scripted."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from ollama._types import EmbedRequest

from fairlane.evaluators.embeddings import base64_of, cosine, pack, read_embeddings
from fairlane.model.outcome import (
    AccessDenied,
    InvalidResponse,
    Outcome,
    PermanentFailure,
    RateLimited,
    Success,
)
from fairlane.model.tokens import Usage
from fairlane.testing import SimulatorConfig, serve_in_thread
from fairlane_workers.providers.answers.answer import Answer
from fairlane_workers.providers.contract import Request
from fairlane_workers.providers.protocols.openai.embeddings import OpenAIEmbeddings
from tests.support.provider_calls import KEY, call, provider_of
from tests.support.scripted_server import http
from tests.support.wires import AnthropicMessagesWire, OpenAIChatWire, Wire
from tests.support.wires.azure_openai import AzureOpenAIWire
from tests.support.wires.gemini import GeminiWire
from tests.support.wires.ollama import OllamaWire


def embed(*inputs: str, model: str = "m-1", **params: object) -> Request:
    return Request(model, [], params, False, 5.0, 1 << 20, inputs=inputs)


def answered(*vectors: object, order: list[int] | None = None) -> dict[str, object]:
    data = [{"object": "embedding", "index": index, "embedding": each} for index, each in enumerate(vectors)]
    listed = data if order is None else [data[index] for index in order]
    return {
        "object": "list",
        "data": listed,
        "model": "m-1",
        "usage": {"prompt_tokens": 7, "total_tokens": 7},
    }


def simulated(request: Request, wire: Wire | None = None, **model: object) -> Outcome:
    settings = {"latency_ms": 1.0, **model}
    config = SimulatorConfig.model_validate({"models": {"m-1": settings}, "api_key": KEY})
    with serve_in_thread(config) as served:

        async def scenario() -> Outcome:
            async with provider_of(wire or OpenAIChatWire(), served.url) as provider:
                return await provider.call(request)

        return asyncio.run(scenario())


def test_texts_that_share_words_are_alike() -> None:
    outcome = simulated(embed("the cat sat", "the cat lay", "income tax returns"))
    assert isinstance(outcome, Success)
    cat, other_cat, tax = read_embeddings(outcome.output)
    assert cosine(cat, other_cat) > cosine(cat, tax)
    assert outcome.usage.output_tokens == 0 < (outcome.usage.input_tokens or 0)


@pytest.mark.parametrize("form", ["float", "base64"])
def test_numbers_and_base64_are_read_alike(form: str) -> None:
    plain, asked = simulated(embed("a b")), simulated(embed("a b", encoding_format=form))
    assert isinstance(plain, Success)
    assert isinstance(asked, Success)
    assert plain.output == asked.output


def test_an_empty_text_is_the_items_own_failure() -> None:
    assert isinstance(simulated(embed("")), PermanentFailure)


def test_a_limit_refuses_embeddings_too() -> None:
    outcome = simulated(embed("a"), status_always=429)
    assert isinstance(outcome, RateLimited)


def test_a_request_names_model_and_texts() -> None:
    outcome, server = call(
        OpenAIChatWire(), embed("a", "b", dimensions=2), [http(200, answered([1, 2], [3, 4]))]
    )
    assert outcome == Success(pack([[1, 2], [3, 4]]), Usage(7, 0), model="m-1")
    (received,) = server.received
    assert received.path == "/v1/embeddings"
    assert received.json == {"model": "m-1", "input": ["a", "b"], "dimensions": 2}


def test_azures_are_a_deployments() -> None:
    wire = AzureOpenAIWire()
    outcome, server = call(wire, embed("a", model="small"), [http(200, answered([1, 2]))])
    assert isinstance(outcome, Success)
    assert server.received[0].path == "/openai/deployments/small/embeddings?api-version=2024-10-21"


def test_vectors_are_put_in_the_order_of_their_texts() -> None:
    outcome, _ = call(OpenAIChatWire(), embed("a", "b"), [http(200, answered([1, 2], [3, 4], order=[1, 0]))])
    assert isinstance(outcome, Success)
    assert [list(each) for each in read_embeddings(outcome.output)] == [[1, 2], [3, 4]]


@pytest.mark.parametrize("vector", ["?", "AAA", None, {}, ["a"], [None]])
def test_what_is_no_vector_is_unreadable(vector: object) -> None:
    outcome, _ = call(OpenAIChatWire(), embed("a"), [http(200, answered(vector))])
    assert isinstance(outcome, InvalidResponse)


def test_a_key_that_is_refused_parks_the_lane() -> None:
    outcome, _ = call(OpenAIChatWire(), embed("a"), [http(401, OpenAIChatWire().error("invalid_api_key"))])
    assert isinstance(outcome, AccessDenied)


def test_a_protocol_without_embeddings_says_so() -> None:
    outcome, server = call(AnthropicMessagesWire(), embed("a"), [http(200, {})])
    assert isinstance(outcome, PermanentFailure)
    assert "no embeddings" in outcome.message
    assert not server.received


def test_gemini_makes_the_embeddings_of_one_text_or_of_several() -> None:
    openai = simulated(embed("the cat sat", "income tax"))
    assert isinstance(openai, Success)
    several = simulated(embed("the cat sat", "income tax"), GeminiWire())
    one = simulated(embed("income tax", model="models/m-1"), GeminiWire())
    assert isinstance(several, Success)
    assert isinstance(one, Success)
    vectors = read_embeddings(openai.output)
    assert read_embeddings(several.output) == vectors
    assert read_embeddings(one.output) == vectors[1:]
    assert several.usage == Usage()
    assert isinstance(simulated(embed(""), GeminiWire()), PermanentFailure)
    assert isinstance(simulated(embed("a"), GeminiWire(), status_always=429), RateLimited)


def test_openais_parameters_are_translated_for_gemini() -> None:
    reply = http(200, {"embedding": {"values": [1, 0]}, "usageMetadata": {"promptTokenCount": 3}})
    asked = embed("a", dimensions=2, encoding_format="base64", task_type="SEMANTIC_SIMILARITY")
    outcome, server = call(GeminiWire(), asked, [reply])
    assert isinstance(outcome, Success)
    assert outcome.usage == Usage(3, 0)
    (received,) = server.received
    assert received.path.endswith("/models/m-1:embedContent")
    assert received.json == {
        "model": "models/m-1",
        "content": {"parts": [{"text": "a"}]},
        "outputDimensionality": 2,
        "taskType": "SEMANTIC_SIMILARITY",
    }


@pytest.mark.parametrize("document", [{}, {"embeddings": [{}]}, {"embedding": {"values": ["x"]}}])
def test_an_answer_of_gemini_without_vectors_is_no_answer(document: dict[str, object]) -> None:
    outcome, _ = call(GeminiWire(), embed("a"), [http(200, document)])
    assert isinstance(outcome, InvalidResponse)


@given(st.lists(st.lists(st.floats(-1, 1, width=32), min_size=1, max_size=5), min_size=1, max_size=4))
def test_a_vector_alone_in_a_list_is_that_vector(vectors: list[list[float]]) -> None:
    read = [Answer(), Answer(), Answer()]
    OpenAIEmbeddings().read(answered(*vectors), read[0])
    OpenAIEmbeddings().read(answered(*([each] for each in vectors)), read[1])
    OpenAIEmbeddings().read(answered(*([base64_of(each)] for each in vectors)), read[2])
    assert {each.text for each in read} == {pack(vectors)}


@pytest.mark.parametrize("vectors", [([[1, 2], [3, 4]],), ([[1, 2]], [[1, 2], [3, 4]]), ([[[1], [2]]],)])
def test_vectors_of_tokens_are_no_outage(vectors: tuple[object, ...]) -> None:
    outcome, _ = call(OpenAIChatWire(), embed("a"), [http(200, answered(*vectors))])
    assert isinstance(outcome, PermanentFailure), outcome
    assert "--pooling mean" in outcome.message


def test_ollama_embeds_by_its_own_api() -> None:
    reply = {"model": "m-1", "embeddings": [[1, 2], [3, 4]], "prompt_eval_count": 7}
    asked = embed("a", "b", num_ctx=8192, truncate=False, dimensions=2, options={"num_gpu": 1}, user=None)
    outcome, server = call(OllamaWire(), asked, [http(200, reply)])
    assert outcome == Success(pack([[1, 2], [3, 4]]), Usage(7, 0), model="m-1")
    (received,) = server.received
    assert received.path == "/api/embed"
    assert received.json == {
        **{"model": "m-1", "input": ["a", "b"], "truncate": False, "dimensions": 2},
        "options": {"num_ctx": 8192, "num_gpu": 1},
    }
    assert received.json.keys() <= EmbedRequest.model_fields.keys()


@pytest.mark.parametrize("document", [{}, {"embeddings": 1}, {"embeddings": [["x"]]}, {"embeddings": [1]}])
def test_an_answer_of_ollama_without_vectors_is_no_answer(document: dict[str, object]) -> None:
    outcome, _ = call(OllamaWire(), embed("a"), [http(200, document)])
    assert isinstance(outcome, InvalidResponse)


def test_ollama_says_how_to_fetch_a_model_that_embeds() -> None:
    outcome, _ = call(OllamaWire(), embed("a"), [http(404, {"error": 'model "m-1" not found, try pulling'})])
    assert isinstance(outcome, PermanentFailure)
    assert "ollama pull m-1" in outcome.message
