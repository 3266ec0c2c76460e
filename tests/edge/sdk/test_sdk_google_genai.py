"""Google's own client understands the simulated provider, at AI Studio and on Vertex AI."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from google import genai
from google.auth.credentials import Credentials
from google.genai import errors, types

from fairlane.testing import Faults
from tests.support.sdk_calls import FUNCTION, KEY, MODEL, SCHEMA, Forecast, simulated

TOOLS = types.Tool(
    function_declarations=[
        types.FunctionDeclaration(
            name=FUNCTION["name"], description=FUNCTION["description"], parameters_json_schema=SCHEMA
        )
    ]
)


class Token(Credentials):
    """Credentials whose token is `KEY`."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.token = KEY

    def refresh(self, request: object) -> None:
        raise AssertionError("the token does not end")


@contextmanager
def at_studio(key: str = KEY, **model: Any) -> Iterator[genai.Client]:
    with simulated(**model) as served:
        client = genai.Client(api_key=key, http_options=types.HttpOptions(base_url=served.url))
        with client:
            yield client


@contextmanager
def on_vertex(**model: Any) -> Iterator[genai.Client]:
    with simulated(**model) as served:
        options = types.HttpOptions(base_url=served.url)
        client = genai.Client(
            vertexai=True, project="p-1", location="global", credentials=Token(), http_options=options
        )
        with client:
            yield client


both = pytest.mark.parametrize("client_of", [at_studio, on_vertex])


@both
def test_a_whole_answer_is_parsed_with_its_usage(client_of: Any) -> None:
    config = types.GenerateContentConfig(
        system_instruction="Be brief.", temperature=0.5, top_k=3, seed=7, max_output_tokens=50
    )
    with client_of() as client:
        answer = client.models.generate_content(model=MODEL, contents="four words of text", config=config)
    assert answer.text == "four words of text"
    assert answer.candidates[0].finish_reason is types.FinishReason.STOP
    usage = answer.usage_metadata
    assert usage.total_token_count == usage.prompt_token_count + usage.candidates_token_count > 0
    assert answer.model_version == MODEL


@both
def test_a_stream_adds_up_to_the_answer(client_of: Any) -> None:
    with client_of() as client:
        chunks = list(client.models.generate_content_stream(model=MODEL, contents="four words of text"))
    assert len(chunks) == 4
    assert "".join(chunk.text for chunk in chunks) == "four words of text"
    assert chunks[-1].candidates[0].finish_reason is types.FinishReason.STOP
    assert chunks[-1].usage_metadata.candidates_token_count > 0


def test_an_answer_that_is_too_long_says_so() -> None:
    config = types.GenerateContentConfig(max_output_tokens=2)
    with at_studio() as client:
        answer = client.models.generate_content(model=MODEL, contents="four words of text", config=config)
    assert answer.candidates is not None
    assert answer.candidates[0].finish_reason is types.FinishReason.MAX_TOKENS


@both
def test_a_function_is_called(client_of: Any) -> None:
    config = types.GenerateContentConfig(
        tools=[TOOLS], automatic_function_calling=types.AutomaticFunctionCallingConfig(disable=True)
    )
    with client_of(output="tool") as client:
        (call,) = client.models.generate_content(model=MODEL, contents="hi", config=config).function_calls
        *_, last = client.models.generate_content_stream(model=MODEL, contents="hi", config=config)
    assert call.name == last.function_calls[0].name == "forecast"
    assert Forecast.model_validate(call.args)


@pytest.mark.parametrize(
    "held", [{"response_schema": Forecast}, {"response_json_schema": SCHEMA}], ids=["openapi", "json"]
)
@both
def test_structured_output_follows_its_schema(client_of: Any, held: dict[str, Any]) -> None:
    config = types.GenerateContentConfig(response_mime_type="application/json", **held)
    with client_of(output="schema") as client:
        answer = client.models.generate_content(model=MODEL, contents="hi", config=config)
    assert Forecast.model_validate_json(answer.text)
    assert answer.parsed is not None


def test_a_rate_limit_names_its_quota_and_when_to_come_back() -> None:
    with at_studio(requests_per_minute=6, headers="full") as client:
        client.models.generate_content(model=MODEL, contents="hi")
        with pytest.raises(errors.ClientError) as caught:
            client.models.generate_content(model=MODEL, contents="hi")
    assert (caught.value.code, caught.value.status) == (429, "RESOURCE_EXHAUSTED")
    quota, retry = caught.value.details["error"]["details"]
    assert quota["violations"][0]["quotaId"] == "GenerateRequestsPerMinutePerProjectPerModel"
    assert retry["retryDelay"] in ("9s", "10s")
    assert "retry-after" not in caught.value.response.headers


def test_a_days_quota_says_to_come_back_in_seconds() -> None:
    with at_studio(requests_per_day=1, headers="full") as client:
        client.models.generate_content(model=MODEL, contents="hi")
        with pytest.raises(errors.ClientError) as caught:
            client.models.generate_content(model=MODEL, contents="hi")
    quota, retry = caught.value.details["error"]["details"]
    assert "PerDay" in quota["violations"][0]["quotaId"]
    assert retry["retryDelay"] == "22s"


@pytest.mark.parametrize(
    ("status", "code", "name", "kind"),
    [
        (400, 400, "INVALID_ARGUMENT", errors.ClientError),
        ("insufficient_quota", 402, "RESOURCE_EXHAUSTED", errors.ClientError),
        (403, 403, "PERMISSION_DENIED", errors.ClientError),
        (404, 404, "NOT_FOUND", errors.ClientError),
        (500, 500, "INTERNAL", errors.ServerError),
        (529, 503, "UNAVAILABLE", errors.ServerError),
        (504, 504, "DEADLINE_EXCEEDED", errors.ServerError),
    ],
)
def test_an_error_has_its_type(status: int | str, code: int, name: str, kind: type[errors.APIError]) -> None:
    with at_studio(status_always=status) as client, pytest.raises(kind) as caught:
        client.models.generate_content(model=MODEL, contents="hi")
    assert (caught.value.code, caught.value.status) == (code, name)


def test_a_wrong_key_is_a_wrong_argument_and_an_unknown_model_is_not_found() -> None:
    with at_studio("wrong") as client, pytest.raises(errors.ClientError, match="API_KEY_INVALID") as caught:
        client.models.generate_content(model=MODEL, contents="hi")
    assert caught.value.code == 400
    with at_studio() as client, pytest.raises(errors.ClientError) as caught:
        client.models.generate_content(model="other", contents="hi")
    assert caught.value.code == 404


def test_an_overload_in_mid_stream_is_an_error() -> None:
    with at_studio(faults=Faults(error_in_stream=1.0)) as client:
        stream = client.models.generate_content_stream(model=MODEL, contents="four words of text")
        with pytest.raises(errors.APIError, match="overloaded"):
            list(stream)


@both
def test_tokens_are_counted(client_of: Any) -> None:
    with client_of() as client:
        assert client.models.count_tokens(model=MODEL, contents="Why is it so?").total_tokens == 4


def test_texts_are_embedded() -> None:
    with at_studio() as client:
        answer = client.models.embed_content(model=MODEL, contents=["a cat", "a dog"])
    assert [len(each.values or []) for each in answer.embeddings or []] == [32, 32]


@both
def test_a_refusal_is_a_finish_reason(client_of: Any) -> None:
    with client_of(refusals=1.0) as client:
        answer = client.models.generate_content(model=MODEL, contents="hi")
    (candidate,) = answer.candidates or []
    assert candidate.finish_reason == types.FinishReason.SAFETY
