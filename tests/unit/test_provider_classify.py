"""What a provider refuses with decides the outcome: status and types, and of spent money the first words."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.model.outcome import (
    AccessDenied,
    FlawedAnswer,
    InvalidResponse,
    Outcome,
    Overloaded,
    PermanentFailure,
    RateLimited,
    ServerError,
    Success,
    TimedOut,
)
from fairlane.model.tokens import Usage
from fairlane_workers.providers.answers.answer import Answer
from fairlane_workers.providers.answers.classify import Reading, classify, conclude
from fairlane_workers.providers.errors.error_body import ErrorBody
from tests.support.classified import HTTP_PROTOCOLS, late_error, refusal

UNSAID = "an error without a message after HTTP 200 (a_spend_limit_exceeded)"
NOW_MS = 1_792_567_680_000

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    *("error", "message", "type", "code", "status", "details", "error_code", "detail"),
                    *("fault", "errors", "base_resp", "Response", "Error", "Code", "Message", "msg", "title"),
                    *("faultstring", "errorcode", "errorCode", "status_msg", "status_code", "reason"),
                ]
            ),
            inner,
        )
    ),
    max_leaves=12,
)

WORDLESS = "HTTP 400 without a message"


def openai(status: int, kind: str = "", code: str | int | None = None, **headers: str) -> Outcome:
    body = {"error": {"message": "said", "type": kind, "param": None, "code": code}}
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return refusal("openai", status, named, json.dumps(body).encode(), now_ms=NOW_MS)


def anthropic(status: int, kind: str, **details: Any) -> Outcome:
    body = {"type": "error", "error": {"type": kind, "message": "said", **details}}
    return refusal("anthropic", status, {}, json.dumps(body).encode(), now_ms=NOW_MS)


@pytest.mark.parametrize("status", range(300, 600))
def test_every_status_has_the_class_that_the_taxonomy_gives_it(status: int) -> None:
    special = {401: AccessDenied, 402: AccessDenied, 403: AccessDenied, 429: RateLimited}
    special |= {
        408: TimedOut,
        423: Overloaded,
        504: TimedOut,
        499: TimedOut,
        524: TimedOut,
        503: Overloaded,
        529: Overloaded,
        409: ServerError,
        421: ServerError,
        424: ServerError,
        425: ServerError,
    }
    general = {3: PermanentFailure, 4: PermanentFailure, 5: ServerError}[status // 100]
    outcome = refusal("openai", status, {}, b"", now_ms=NOW_MS)
    assert type(outcome) is special.get(status, general)
    assert outcome.status == status


@pytest.mark.parametrize("status", [400, 404, 422])
@pytest.mark.parametrize(("said", "repeated"), [("true", True), ("false", False), ("", False)])
def test_a_server_that_asks_for_another_try_gets_one(status: int, said: str, repeated: bool) -> None:
    outcome = openai(status, "invalid_request_error", x_should_retry=said)
    assert isinstance(outcome, ServerError if repeated else PermanentFailure)


@pytest.mark.parametrize("status", [101, 199, 600, 999])
def test_a_status_outside_of_http_is_an_invalid_response(status: int) -> None:
    assert isinstance(refusal("openai", status, {}, b"", now_ms=NOW_MS), InvalidResponse)


@pytest.mark.parametrize(
    "kind",
    [
        "insufficient_quota",
        "exceeded_current_quota_error",
        "credit_balance_exhausted",
        "project_spend_limit_exceeded",
        "organization_spend_limit_exceeded",
        "monthly_usage_limit_exceeded",
        "billing_hard_limit_reached",
    ],
)
@pytest.mark.parametrize("status", [400, 403, 429])
def test_spent_money_parks_the_lane_whether_type_or_code_says_so(kind: str, status: int) -> None:
    assert openai(status, kind) == AccessDenied("said", status, "quota")
    assert openai(status, "some_type", kind) == AccessDenied("said", status, "quota")
    assert openai(status, kind.upper()) == AccessDenied("said", status, "quota")


@pytest.mark.parametrize(
    ("status", "error"),
    [
        (
            400,
            {
                "type": "invalid_request_error",
                "message": "Your credit balance is too low to access the Anthropic API.",
            },
        ),
        (
            400,
            {
                "type": "invalid_request_error",
                "message": "You have reached your specified API usage limits.",
            },
        ),
        (
            400,
            {
                "code": "400",
                "message": 'litellm.BadRequestError: AnthropicException - b\'{"type":"error","error":{"type":'
                '"invalid_request_error","message":"Your credit balance is too low to access',
            },
        ),
        (429, {"message": "litellm.RateLimitError: Insufficient balance or no resource package."}),
        (
            429,
            {"code": "1113", "message": "Insufficient balance or no resource package. Please recharge."},
        ),
        (429, {"code": "1113", "message": "余额不足或无可用资源包,请充值。"}),
        (
            429,
            {
                "type": "rate_limit_error",
                "code": "1113",
                "message": "[1113][Insufficient balance or no resource package.][2026]",
            },
        ),
        (400, {"message": "Insufficient Balance", "type": "unknown_error", "code": "invalid_request_error"}),
        (403, {"code": 30001, "message": "Sorry, your account balance is insufficient"}),
        (
            429,
            "Your team 16f2151a-40f4-4a80-8ad0-cae00c27e8dd has either used all available credits or reached "
            "its monthly spending limit.",
        ),
    ],
)
def test_spent_money_parks_the_lane_where_only_the_message_says_so(status: int, error: object) -> None:
    for body in ({"error": error}, error if isinstance(error, dict) else {"error": error}):
        outcome = refusal("openai", status, {}, json.dumps(body).encode(), now_ms=NOW_MS)
        assert isinstance(outcome, AccessDenied)
        assert (outcome.status, outcome.reason) == (status, "quota")


@pytest.mark.parametrize(
    "message",
    [
        "Invalid value: 'Insufficient balance'",
        "The prompt 'Your credit balance is too low' was rejected",
        "Insufficient balanced brackets",
        'litellm.BadRequestError: OpenAIException - {"error":{"message":"{"message":"Insufficient balance',
        "Your team a b has either used all available credits",
    ],
)
@pytest.mark.parametrize("status", [400, 429])
def test_what_a_message_quotes_parks_no_lane(message: str, status: int) -> None:
    body = json.dumps({"error": {"message": message}}).encode()
    outcome = refusal("openai", status, {}, body, now_ms=NOW_MS)
    assert isinstance(outcome, RateLimited if status == 429 else PermanentFailure)


def test_an_enforced_spend_limit_of_anthropic_parks_the_lane() -> None:
    details = {"error_code": "enforced_spend_limit_reached"}
    assert anthropic(429, "rate_limit_error", details=details) == AccessDenied("said", 429, "quota")
    assert anthropic(429, "rate_limit_error") == RateLimited("said")
    assert anthropic(402, "billing_error") == AccessDenied("said", 402, "quota")


@pytest.mark.parametrize(
    "kind", ["rate_limit_exceeded", "slow_down", "tokens", "requests", "ThrottlingException"]
)
def test_a_429_that_is_no_quota_is_a_rate_limit(kind: str) -> None:
    limited = openai(429, kind)
    assert isinstance(limited, RateLimited)
    assert replace(limited, hints=None) == RateLimited("said")


@pytest.mark.parametrize("kind", ["engine_overloaded_error", "overloaded_error", "ModelNotReadyException"])
@pytest.mark.parametrize("status", [429, 500, 503, 529])
def test_a_provider_without_capacity_is_overloaded_whatever_its_status(kind: str, status: int) -> None:
    body = {"error": {"message": "overloaded, please try again in 2s", "type": kind}}
    outcome = refusal("openai", status, {}, json.dumps(body).encode(), now_ms=NOW_MS)
    assert isinstance(outcome, Overloaded)
    assert (outcome.status, outcome.retry_after_ms) == (status, 2_000)


@pytest.mark.parametrize("status", [401, 403])
def test_bad_credentials_park_the_lane(status: int) -> None:
    assert openai(status, "invalid_request_error", "invalid_api_key") == AccessDenied("said", status, "auth")


@pytest.mark.parametrize(
    "message",
    [
        "This organization has been disabled.",
        "Organization has been restricted. Please reach out to support if you believe this was in error.",
        "Your OpenAI account has been deactivated, please check your email for more information.",
        "Your account is not active, please check your billing details on our website.",
        'litellm.BadRequestError: AnthropicException - {"type":"error","error":{'
        '"message":"This organization has been disabled."}}',
    ],
)
@pytest.mark.parametrize("status", [400, 403, 429])
def test_an_account_that_its_provider_has_shut_parks_the_lane(status: int, message: str) -> None:
    body = {"error": {"message": message, "type": "invalid_request_error"}}
    outcome = refusal("openai", status, {}, json.dumps(body).encode(), now_ms=NOW_MS)
    assert outcome == AccessDenied(message, status, "auth")


def test_a_prompt_about_a_shut_account_parks_no_lane() -> None:
    said = "messages.0: This organization has been disabled."
    outcome = refusal("openai", 400, {}, json.dumps({"message": said}).encode(), now_ms=NOW_MS)
    assert outcome == PermanentFailure(said, 400)


@pytest.mark.parametrize(
    ("document", "kinds", "message"),
    [
        # Fastify's, Spring's and NestJS's
        ({"statusCode": 400, "error": "Bad Request", "message": "body must have q"}, (), "body must have q"),
        ({"status": 400, "error": "Bad Request", "message": "no q", "path": "/"}, ("400",), "no q"),
        (
            {"statusCode": 400, "error": "Bad Request", "message": ["q must be a text"]},
            (),
            '["q must be a text"]',
        ),
        ({"error": "insufficient_quota", "message": "pay"}, ("insufficient_quota",), "pay"),
        ({"error": "no such model", "message": "m"}, (), "m (no such model)"),
        ({"error": "no such model", "detail": "no such model: m"}, (), "no such model: m"),
        ({"error": "no such model"}, (), "no such model"),
        ({"error": "no such model", "message": ""}, (), "no such model"),
        ({"error": True, "code": 7, "message": "no such model"}, ("7",), "no such model"),
        ({"error": 7, "msg": "no such model"}, (), "no such model"),
    ],
)
def test_a_name_beside_a_message_does_not_hide_it(
    document: dict[str, object], kinds: tuple[str, ...], message: str
) -> None:
    error = ErrorBody.of(document)
    assert (error.kinds, error.message) == (kinds, message)


def shared(status: int, code: str) -> Outcome:
    """The outcome of an error on a lane that several models share."""
    error = ErrorBody.of({"error": {"message": "said", "type": "invalid_request_error", "code": code}})
    return classify(error, status, {}, Reading(shared=True), now_ms=NOW_MS)


def test_a_403_on_a_shared_lane_is_about_the_model_unless_it_names_the_key() -> None:
    assert shared(403, "model_not_allowed") == PermanentFailure("said", 403)
    assert shared(403, "invalid_api_key") == AccessDenied("said", 403, "auth")
    assert shared(401, "model_not_allowed") == AccessDenied("said", 401, "auth")
    assert shared(403, "insufficient_quota") == AccessDenied("said", 403, "quota")


@pytest.mark.parametrize("header", ["apim_request_id", "x_ms_region", "x_ratelimit_renewalperiod_requests"])
def test_a_quota_error_of_azure_with_a_short_wait_is_a_rate_limit(header: str) -> None:
    refused = openai(429, "insufficient_quota", "insufficient_quota", **{header: "x", "retry_after": "7"})
    assert refused == RateLimited("said", 429, 7_000)


def test_a_quota_error_of_azure_without_a_short_wait_parks_the_lane() -> None:
    assert isinstance(openai(429, "insufficient_quota", x_ms_region="x"), AccessDenied)
    assert isinstance(openai(429, "insufficient_quota", x_ms_region="x", retry_after="86400"), AccessDenied)
    assert isinstance(openai(429, "insufficient_quota", retry_after="7"), AccessDenied)


def test_a_503_of_exhausted_resources_is_a_rate_limit_and_any_other_an_overload() -> None:
    body = [{"error": {"code": 503, "status": "RESOURCE_EXHAUSTED", "message": "said"}}]
    outcome = refusal("openai", 503, {}, json.dumps(body).encode(), now_ms=NOW_MS)
    assert outcome == RateLimited("said", 503)
    assert openai(503, "server_error", "server_is_overloaded") == Overloaded("said", 503)


@pytest.mark.parametrize(
    "prose",
    [
        "request 4291 tokens",
        "HTTP 429: rate limit exceeded",
        "insufficient_quota",
        "overloaded_error 529",
        "401 unauthorized invalid_api_key",
        "timeout 504",
    ],
)
def test_prose_never_decides(prose: str) -> None:
    body = json.dumps({"error": {"message": prose, "type": "invalid_request_error"}}).encode()
    assert refusal("openai", 400, {}, body, now_ms=NOW_MS) == PermanentFailure(prose, 400)
    assert refusal("anthropic", 400, {}, prose.encode(), now_ms=NOW_MS) == PermanentFailure(prose, 400)
    late = {"message": prose, "type": "invalid_request_error"}
    assert late_error("openai", late, {}, now_ms=NOW_MS) == PermanentFailure(prose, 400)


def test_a_filtered_prompt_fails_its_job_and_not_its_lane() -> None:
    assert openai(403, "invalid_request_error", "content_policy_violation") == PermanentFailure(
        "said", 403, content=True
    )
    assert openai(400, "invalid_request_error", "content_filter") == PermanentFailure(
        "said", 400, content=True
    )


@pytest.mark.parametrize(
    ("protocol", "error", "expected"),
    [
        ("anthropic", {"type": "overloaded_error", "message": "said"}, Overloaded("said", 529)),
        ("anthropic", {"type": "rate_limit_error", "message": "said"}, RateLimited("said", 429)),
        ("anthropic", {"type": "api_error", "message": "said"}, ServerError("said", 500)),
        ("anthropic", {"type": "timeout_error", "message": "said"}, TimedOut("said", 504)),
        ("anthropic", {"type": "invalid_request_error", "message": "said"}, PermanentFailure("said", 400)),
        (
            "anthropic",
            {"type": "authentication_error", "message": "said"},
            AccessDenied("said", 401, "auth"),
        ),
        ("anthropic", {"type": "billing_error", "message": "said"}, AccessDenied("said", 402, "quota")),
        ("openai", {"type": "server_error", "message": "said"}, ServerError("said", 500)),
        ("openai", {"code": "server_is_overloaded", "message": "said"}, Overloaded("said", 503)),
        ("openai", {"code": "insufficient_quota", "message": "said"}, AccessDenied("said", 429, "quota")),
        (
            "openai",
            {"type": "x_usage_limit_exceeded", "message": "said"},
            AccessDenied("said", 429, "quota"),
        ),
        ("openai", {"code": 502, "message": "said"}, ServerError("said", 502)),
        ("openai", {"code": "429", "message": "said"}, RateLimited("said", 429)),
        ("openai", {"type": "never_heard_of", "code": 7, "message": "said"}, ServerError("said", 500)),
        ("openai", "said", ServerError("said", 500)),
    ],
)
def test_an_error_after_a_200_counts_as_the_status_its_type_stands_for(
    protocol: str, error: object, expected: Outcome
) -> None:
    assert late_error(protocol, error, {}, now_ms=NOW_MS) == expected


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"error": {"message": " said "}}', "said"),
        (b'{"error": "said"}', "said"),
        (b'{"message": "said", "object": "error", "code": 400}', "said"),
        (b'{"detail": "said"}', "said"),
        (b'{"detail": [{"loc": ["body"]}]}', '[{"loc": ["body"]}]'),
        (b'[{"error": {"message": "said"}}]', "said"),
        (b"said", "said"),
        (b"<html>a gateway</html>", WORDLESS),
        (b"", WORDLESS),
        (b"null", WORDLESS),
        (b"\xff", "\ufffd"),
        (b'{"error": {"message": "\\ud83d"}}', "\ufffd"),
        (b'{"error": {"message": "%s"}}' % (b"x" * 600), "x" * 499 + "…"),
    ],
)
def test_the_message_is_the_providers_own_and_bounded(body: bytes, message: str) -> None:
    outcome = refusal("openai", 400, {}, body, now_ms=NOW_MS)
    wordless = message == WORDLESS
    assert outcome == PermanentFailure(message, 400, doubtful=wordless, of_proxy=wordless)


def test_a_redirect_says_where_it_leads() -> None:
    outcome = refusal("openai", 307, {"location": "https://new.example/v1"}, b"", now_ms=NOW_MS)
    assert isinstance(outcome, PermanentFailure)
    assert "https://new.example/v1" in outcome.message


def test_secrets_are_struck_out_before_a_message_is_cut() -> None:
    secret = "sk-0123456789"
    body = json.dumps({"error": {"message": "x" * 495 + secret}}).encode()
    outcome = refusal("openai", 400, {}, body, now_ms=NOW_MS, secrets=(secret,))
    assert outcome == PermanentFailure("x" * 495 + "***", 400)


def test_retry_after_is_read_for_every_class() -> None:
    for status in (400, 401, 408, 429, 500, 503):
        outcome = refusal("openai", status, {"retry-after": "2"}, b"", now_ms=NOW_MS)
        assert outcome.retry_after_ms == 2_000


@given(document=JSON, status=st.integers(100, 999), protocol=st.sampled_from(HTTP_PROTOCOLS))
@pytest.mark.slow
def test_no_document_makes_it_raise(document: object, status: int, protocol: str) -> None:
    in_place = ErrorBody.in_place_of_answer(json.dumps(document).encode())
    assert in_place is None or ErrorBody.of(in_place).message
    outcomes = [
        refusal(protocol, status, {}, json.dumps(document).encode(), now_ms=NOW_MS),
        late_error(protocol, document, {}, now_ms=NOW_MS),
    ]
    for outcome in outcomes:
        message = outcome.message  # type: ignore[union-attr]
        assert 0 < len(message) <= 500
        message.encode()


@given(body=st.binary(max_size=200))
def test_no_bytes_make_it_raise(body: bytes) -> None:
    assert isinstance(refusal("openai", 429, {}, body, now_ms=NOW_MS), RateLimited | AccessDenied)


@pytest.mark.parametrize("reason", ["length", "max_tokens", "MAX_TOKENS", "max_output_tokens"])
def test_an_answer_whose_reasoning_used_up_its_tokens_is_empty(reason: str) -> None:
    answer = Answer(finish_reason=reason, ended=True, input_tokens=7, output_tokens=100)
    outcome = conclude(answer, 200, {}, Reading(), now_ms=NOW_MS)
    assert outcome == Success("", Usage(7, 100), reason)


@pytest.mark.parametrize(("reason", "expected"), [("STOP", FlawedAnswer), (None, InvalidResponse)])
def test_an_answer_without_text_is_flawed_if_it_says_that_it_is_whole(
    reason: str | None, expected: type[Outcome]
) -> None:
    answer = Answer(finish_reason=reason, ended=True, input_tokens=7, output_tokens=0)
    outcome = conclude(answer, 200, {}, Reading(), now_ms=NOW_MS)
    assert type(outcome) is expected
    assert not isinstance(outcome, FlawedAnswer) or outcome.usage == Usage(7, 0)


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (
            "Resource exhausted. Please try again later. Please refer to https://cloud.google.com/…",
            Overloaded,
        ),
        ("Resource exhausted, please try again later.", Overloaded),
        (
            "Unable to submit request because the service is temporarily out of capacity. Try again later.",
            Overloaded,
        ),
        ("The system is currently experiencing high demand and cannot process your request.", Overloaded),
        ("Resource has been exhausted (e.g. check quota).", RateLimited),
        ("Quota exceeded for aiplatform.googleapis.com/embed_content_input_tokens_per_minute", RateLimited),
        ("Rate limit reached. The prompt: resource exhausted. please try again later", RateLimited),
    ],
)
@pytest.mark.parametrize("status", [429, 503])
def test_a_429_without_capacity_for_anybody_is_an_overload(
    message: str, expected: type[Outcome], status: int
) -> None:
    body = {"error": {"code": status, "message": message, "status": "RESOURCE_EXHAUSTED"}}
    outcome = refusal("openai", status, {"retry-after": "20"}, json.dumps(body).encode(), now_ms=NOW_MS)
    assert (type(outcome), outcome.retry_after_ms) == (expected, 20_000)
