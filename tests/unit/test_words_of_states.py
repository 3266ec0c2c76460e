"""What an error says of a server, a gateway, a limit or a prompt's length counts more than its status."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.model.hints import Hints
from fairlane.model.outcome import (
    AccessDenied,
    Outcome,
    Overloaded,
    PermanentFailure,
    RateLimited,
    ServerError,
)
from fairlane_workers.providers.answers.answer import Answer
from fairlane_workers.providers.answers.classify import Reading, conclude
from fairlane_workers.providers.errors.content import is_too_long
from fairlane_workers.providers.errors.error_body import ErrorBody
from fairlane_workers.providers.errors.server_state import opening_of
from tests.support.classified import late_error, refusal

NOW_MS = 1_792_567_680_000
TOO_LONG = [
    "This model's maximum context length is 4096 tokens. However, you requested 9000 tokens",
    "the request exceeds the available context size (4096 tokens), try increasing it",
    "Context size has been exceeded.",
    "context window exceeds limit",
    "Prefill worker failed: The decoder prompt (length 375008) is longer than the maximum model length",
    "input is too large to process. increase the physical batch size",
    "in ensemble 'ensemble', Prompt length (9000) exceeds maximum input length (4096)",
    "The number of tokens to keep from the initial prompt is greater than the context length.",
    "Trying to keep the first 9000 tokens when context the overflows. However, the model is loaded with less",
    "prompt is too long: 208310 tokens > 200000 maximum",
    "Input is too long for requested model.",
    "Internal server error: prompt is longer than max model len",
    "too many tokens: total number of tokens in the prompt exceeds the limit of 8191",
    "The input (9000 tokens) is longer than the model's context length (4096 tokens).",
    "The input token count (1048577) exceeds the maximum number of tokens allowed (1048576).",
    "This model's maximum prompt length is 131072 but the request contains 537812 tokens.",
    "Prompt contains 40000 tokens, too large for model with 32768 maximum context length",
    "Input validation error: `inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 `inputs` tokens",
    "Range of input length should be [1, 30720]",
    "Prompt exceeds max length",
    "Request payload size exceeds the limit: 20971520 bytes.",
    "Malformed input request: expected maxLength: 50000, actual: 60000, please reformat your input",
    "prompt: length: 1..200000",
    "Invalid 'messages[1].content': string too long. Expected a string with maximum length 1048576",
    "Invalid 'input': string too long. Expected a string with maximum length 10485760",
    "Unable to submit request because the input token count is 40000 but model only supports up to 32768.",
    "Your request exceeded model token limit: 262144",
    "litellm.ContextWindowExceededError: litellm.BadRequestError: OpenAIException - too long",
    'Provider returned error: {"error":{"message":"This model\'s maximum context length is 4096"}}',
]
NOT_TOO_LONG = [
    "Too many tokens, please wait before trying again.",
    "Too many tokens per day, please wait",
    "The model has crashed: out of memory at maximum context",
    "max_tokens is too large: 100000. This model supports at most 4096 completion tokens",
    "CUDA out of memory",
    "model requires more system memory (5.6 GiB) than is available (3.1 GiB)",
    "The request took too long",
    "Invalid 'user': string too long. Expected a string with maximum length 64",
    "Invalid 'metadata.messages': string too long.",
    "Rate limit reached: input tokens exceed the maximum per minute",
]
FAULTS = [
    "The model has crashed without additional information. (Exit code: null)",
    "Model unloaded.",
    "EngineCore encountered an issue. See stack trace (above) for the root cause.",
    "Background loop has errored already.",
    "Endpoint x is not ready.",
    "The endpoint is not running",
    "Bad Request: Invalid state: endpoint is scaled to zero",
    "The endpoint is currently scaling up from zero, please retry.",
    "Service unavailable.",
    "internal server error",
    "Request timeout expired",
    "Operation canceled.",
    "Channel Error",
    "The request is aborted by a higher priority request.",
    "Model org/x is still loading",
    "No connected db.",
]
NO_FAULTS = [
    "The parameter model loading mode is invalid",
    'messages[0].content: "the endpoint is not ready"',
    "service_tier 'scaling' is not supported",
    "Your organization is not ready for this model",
    "max_tokens must be positive",
]
FULL = ["The request queue is full.", "Model busy, retry later", "Server is busy, please try again later"]
AT_ONCE = [
    "Too many concurrent requests",
    "You have reached the concurrent request limit. Please try again later.",
    "timed out waiting for a concurrent request slot",
    "Maximum number of concurrent requests exceeded",
    "Concurrency limit reached for requests",
    "Exceeded the limit of simultaneous connections",
]
NO_ROUTE = [
    {"message": "no Route matched with those values"},
    {"error_msg": "404 Route Not Found"},
    {"message": "no healthy upstream"},
    {"error": "no upstream found"},
]


def said(status: int, message: str, **names: object) -> Outcome:
    return answered(status, {"error": {"message": message, **names}})


def answered(status: int, document: object) -> Outcome:
    return refusal("openai", status, {}, json.dumps(document).encode(), now_ms=NOW_MS)


def late(message: str) -> Outcome:
    return late_error("openai", {"message": message}, {}, now_ms=NOW_MS)


@pytest.mark.parametrize("message", TOO_LONG)
@pytest.mark.parametrize("status", [400, 413, 422, 500, 503])
def test_a_prompt_beyond_the_context_fails_its_row_alone(status: int, message: str) -> None:
    for outcome in (said(status, message), said(status, message, type="server_error"), late(message)):
        assert isinstance(outcome, PermanentFailure), outcome
        assert outcome.content
        assert not outcome.doubtful


@pytest.mark.parametrize("kind", ["context_length_exceeded", "exceed_context_size_error"])
def test_a_type_says_that_a_prompt_is_too_long(kind: str) -> None:
    for outcome in (said(400, "m", code=kind), said(500, "m", type=kind)):
        assert outcome == PermanentFailure("m", outcome.status, content=True)


@pytest.mark.parametrize("message", NOT_TOO_LONG)
def test_other_lengths_and_limits_are_no_length_of_a_prompt(message: str) -> None:
    assert not is_too_long(ErrorBody((), message))


def test_a_429_stays_a_limit() -> None:
    assert isinstance(said(429, "Too many tokens in your prompts: exceeds the limit of 10"), RateLimited)


@pytest.mark.parametrize("message", FAULTS)
@pytest.mark.parametrize("status", [400, 404, 422])
def test_a_server_that_says_it_is_not_up_rejects_no_row(status: int, message: str) -> None:
    assert isinstance(said(status, message), ServerError)


@pytest.mark.parametrize("kind", ["internal_server_error", "server_error", "no_db_connection"])
def test_a_type_that_names_a_servers_fault_counts_more_than_a_400(kind: str) -> None:
    assert isinstance(said(400, "said", type=kind), ServerError)
    assert isinstance(said(401, "said", type=kind), AccessDenied)


@pytest.mark.parametrize("message", NO_FAULTS)
def test_what_a_rejection_says_beside_is_no_state(message: str) -> None:
    assert isinstance(said(400, message), PermanentFailure)


def test_a_key_that_nobody_can_look_up_is_not_denied() -> None:
    for words in ("No connected db.", "Can't reach database server at `db:5432`"):
        assert isinstance(said(401, f"Authentication Error, {words}", type="auth_error"), ServerError)
    assert isinstance(said(401, "Authentication Error, invalid key"), AccessDenied)


@pytest.mark.parametrize("message", FULL)
@pytest.mark.parametrize("status", [400, 429, 503])
def test_a_full_queue_is_an_overload(status: int, message: str) -> None:
    assert isinstance(said(status, message), Overloaded)
    assert isinstance(answered(status, {"detail": {"error": message}}), Overloaded)


def test_a_locked_model_is_an_overload() -> None:
    assert isinstance(said(423, "Model is being loaded, resource locked"), Overloaded)


@pytest.mark.parametrize("message", AT_ONCE)
@pytest.mark.parametrize("status", [400, 403, 429, 500, 503])
def test_too_many_calls_at_once_are_a_limit_of_concurrency(status: int, message: str) -> None:
    for outcome in (said(status, message, type="permission_error"), late(message)):
        assert isinstance(outcome, RateLimited), outcome
        assert outcome.hints == Hints({}, "concurrency")


@pytest.mark.parametrize(
    "message",
    ["max_concurrency must be positive", "Concurrent tool calls are not supported: the limit is one"],
)
def test_a_setting_about_concurrency_is_no_limit(message: str) -> None:
    assert isinstance(said(400, message), PermanentFailure)


def test_a_403_that_passes_denies_nothing() -> None:
    assert isinstance(said(403, "Access is limited at the moment. Please try again later."), Overloaded)
    assert isinstance(said(403, "You may not use this model"), AccessDenied)
    assert isinstance(said(403, "Insufficient balance, please try again later"), AccessDenied)
    assert isinstance(said(403, "Please try again later", code="invalid_api_key"), AccessDenied)


@pytest.mark.parametrize("document", NO_ROUTE)
@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_gateway_without_a_route_answers_in_place_of_the_api(status: int, document: object) -> None:
    outcome = answered(status, document)
    assert isinstance(outcome, PermanentFailure)
    assert (outcome.doubtful, outcome.of_proxy) == (True, True)


def test_an_unknown_resource_of_api_management_is_its_own() -> None:
    outcome = answered(404, {"statusCode": 404, "message": "Resource not found"})
    assert isinstance(outcome, PermanentFailure)
    assert outcome.of_proxy
    for document in (
        {"error": {"message": "The model `x` does not exist", "code": "model_not_found"}},
        {"statusCode": 404, "code": "model_not_found", "message": "model x"},
    ):
        outcome = answered(404, document)
        assert isinstance(outcome, PermanentFailure)
        assert not outcome.of_proxy


@given(
    st.sampled_from([*FAULTS, *FULL, *AT_ONCE]),
    st.sampled_from([400, 404, 422]),
    st.text("abc ", max_size=20),
)
def test_a_quotation_of_such_words_is_none(words: str, status: int, before: str) -> None:
    outcome = said(status, f'messages[0].content is not allowed: "{before} {words}"')
    assert isinstance(outcome, PermanentFailure)


@given(st.text(max_size=600), st.integers(400, 599))
def test_any_words_have_a_class(message: str, status: int) -> None:
    assert said(status, message) is not None
    assert len(opening_of(message)) <= 200
    is_too_long(ErrorBody((), message * 20))


# Waits


def success(headers: dict[str, str]) -> Outcome:
    answer = Answer(parts=["text"], ended=True, finish_reason="stop", output_tokens=1)
    return conclude(answer, 200, headers, Reading(), now_ms=NOW_MS)


@given(st.integers(0, 100_000))
def test_a_retry_after_on_a_success_delays_nobody(wait_s: int) -> None:
    assert success({"retry-after": str(wait_s)}).retry_after_ms is None


def test_a_retry_after_on_a_success_counts_where_nothing_is_left() -> None:
    left = {"x-ratelimit-limit-requests": "60", "x-ratelimit-remaining-requests": "0"}
    assert success({"retry-after": "7", **left}).retry_after_ms == 7000
    left["x-ratelimit-remaining-requests"] = "3"
    assert success({"retry-after": "7", **left}).retry_after_ms is None


def test_a_wait_of_more_than_an_hour_is_named() -> None:
    body = json.dumps({"error": {"message": "maintenance"}}).encode()
    outcome = refusal("openai", 503, {"retry-after": "86400"}, body, now_ms=NOW_MS)
    assert outcome == Overloaded("maintenance (Retry-After asks for 24 h)", 503, 86_400_000)
    outcome = refusal("openai", 503, {"retry-after": "3600"}, body, now_ms=NOW_MS)
    assert outcome == Overloaded("maintenance", 503, 3_600_000)
