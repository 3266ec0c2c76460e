"""What real services answer, beyond what their documentation says, is read as what it means.

Each answer was reported in public: its body is the service's own, but for names and numbers.
"""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.model.outcome import (
    AccessDenied,
    Outcome,
    Overloaded,
    PermanentFailure,
    RateLimited,
    ServerError,
    TimedOut,
)
from tests.support.classified import refusal

NOW_MS = 1_792_567_680_000


def answered(status: int, document: object, protocol: str = "openai", **headers: str) -> Outcome:
    body = document if isinstance(document, str) else json.dumps(document)
    return refusal(protocol, status, headers, body.encode(), now_ms=NOW_MS)


def said(message: str, **names: object) -> dict[str, object]:
    return {"error": {"message": message, **names}}


CONTENT = [
    (
        400,
        said(
            "Invalid prompt: your prompt was flagged as potentially violating our usage policy.",
            code="invalid_prompt",
        ),
    ),
    (422, said("This content was flagged for possible cybersecurity risk.", code="cyber_policy")),
    (400, said("Output blocked by content filtering policy", type="invalid_request_error")),
    (400, said("Content Exists Risk", type="invalid_request_error", code="invalid_request_error")),
    (400, {"detail": "Content Exists Risk"}),
    (400, said("Output data may contain inappropriate content.", code="data_inspection_failed")),
    (400, {"code": "DataInspectionFailed", "message": "Input text data may contain inappropriate content."}),
    (422, said("input new_sensitive (1026)")),
    (500, said("input new_sensitive (1026)")),
    (400, said("系统检测到输入或生成内容可能包含不安全或敏感内容", code="1301")),
    (
        403,
        {
            "code": "The caller does not have permission to execute the specified operation",
            "error": "Content violates usage guidelines. Team: t, Failed check: SAFETY_CHECK_TYPE_BIO",
        },
    ),
    (403, said('openai/m requires moderation on OpenAI. Your input was flagged for "violence"', code=403)),
    (400, said("Your request was rejected as a result of our safety system.", code="moderation_blocked")),
    (400, said("The input text may be sensitive", code="InputTextSensitiveContentDetected")),
]


@pytest.mark.parametrize(("status", "document"), CONTENT)
@pytest.mark.parametrize("protocol", ["openai", "anthropic"])
def test_a_refusal_of_content_is_one_of_its_row_alone(status: int, document: object, protocol: str) -> None:
    outcome = answered(status, document, protocol)
    assert isinstance(outcome, PermanentFailure)
    assert outcome.content
    assert not outcome.doubtful


@pytest.mark.parametrize(
    ("status", "document"),
    [
        (400, said("Invalid Responses API request", code="invalid_prompt")),
        (400, said("Unsupported value: 'content_filter' in response_format")),
        (400, said("messages: at least one message is required")),
        (403, said("Request blocked by the firewall")),
        (400, said("The content of messages[0] has to be a string")),
    ],
)
def test_other_rejections_are_none_of_content(status: int, document: object) -> None:
    outcome = answered(status, document)
    assert not (isinstance(outcome, PermanentFailure) and outcome.content)


@pytest.mark.parametrize(
    ("status", "document"),
    [
        (
            412,
            said(
                "Account acme is suspended, possibly due to reaching the monthly spending limit.",
                code="PRECONDITION_FAILED",
            ),
        ),
        (
            429,
            said(
                "Your prepayment credits are depleted. Please go to AI Studio to manage your project.",
                status="RESOURCE_EXHAUSTED",
            ),
        ),
        (429, said("Gemini 2.5 Pro Preview doesn't have a free quota tier. Use another model.")),
        (400, said("Blocked", code="blocked_api_access")),
        (
            403,
            said(
                "Key limit exceeded (total limit). Manage it using https://openrouter.ai/settings/keys",
                code=403,
            ),
        ),
        (403, said("user quota is not enough (request id: 1)", code="insufficient_user_quota")),
        (403, said("token quota is not enough", code="pre_consume_token_quota_failed")),
    ],
)
def test_spent_money_holds_the_lane(status: int, document: object) -> None:
    outcome = answered(status, document)
    assert isinstance(outcome, AccessDenied)
    assert outcome.reason == "quota"


@pytest.mark.parametrize("protocol", ["openai", "anthropic"])
@pytest.mark.parametrize(
    ("status", "message", "kind"),
    [
        (
            403,
            "You've reached your weekly (7-day) usage limit. Your quota will reset.",
            "access_terminated_error",
        ),
        (403, "You've reached your usage limit for this billing cycle.", "permission_error"),
        (429, "Usage limit reached for 5 hour. Your limit will reset at 2026-09-09 05:38:28", "1308"),
        (
            429,
            "usage limit exceeded, 5-hour usage limit reached for Token Plan Plus (9/9 used)",
            "rate_limit",
        ),
        (429, "you (acme) have reached your session usage limit, upgrade for higher limits", "api_error"),
        (429, "you (acme) have reached your hourly usage limit, please wait", "api_error"),
    ],
)
def test_a_quota_of_hours_or_longer_holds_the_lane(
    status: int, message: str, kind: str, protocol: str
) -> None:
    outcome = answered(status, said(message, type=kind), protocol)
    assert isinstance(outcome, RateLimited)
    assert outcome.hints is not None
    assert outcome.hints.exhausted == "day"


def test_a_prompt_that_is_too_long_for_the_credits_left_is_one_rows_alone() -> None:
    words = "Prompt tokens limit exceeded: 230799 > 91442. To increase, add credits"
    assert type(answered(402, said(words, code=402))) is PermanentFailure
    assert type(answered(402, said("Insufficient credits", code=402))) is AccessDenied


def test_amazons_gateway_names_a_quota_by_two_words() -> None:
    spent, throttled = (
        answered(429, {"message": "Limit Exceeded"}),
        answered(429, {"message": "Too Many Requests"}),
    )
    assert isinstance(spent, RateLimited)
    assert spent.hints is not None
    assert spent.hints.exhausted == "day"
    assert isinstance(throttled, RateLimited)
    assert throttled.hints is None


@pytest.mark.parametrize(
    ("status", "document"),
    [
        (
            400,
            {
                "status": 400,
                "title": "Bad Request",
                "detail": "Function id 'a': DEGRADED function cannot be invoked",
            },
        ),
        (
            400,
            said(
                "No models loaded. Please load a model in the developer page or use the `lms load` command."
            ),
        ),
        (404, {"error": 'Failed to load model "m". Error: Operation canceled.'}),
        (400, {"error": "Model m not found or vLLM engine is sleeping."}),
        (400, said("the server closed connection before returning the first response byte")),
        (
            400,
            {
                "message": "**NETWORK ERROR DUE TO HIGH TRAFFIC. PLEASE REGENERATE OR REFRESH THIS PAGE.**",
                "code": 50001,
            },
        ),
        (400, said("Already borrowed", type="BadRequestError")),
        (
            400,
            said(
                'litellm.BadRequestError: BedrockException - {"message":"The system met an unexpected '
                'error during processing. Try your request again."}',
                code="400",
            ),
        ),
        (
            424,
            {"error": "Request failed during generation: Server error: index 1", "error_type": "generation"},
        ),
        (503, said("No available channel for model m under group default", code="model_not_found")),
        (424, {"ErrorCode": "CLIENT_ERROR_FROM_MODEL", "OriginalStatusCode": 500, "Message": "worker died"}),
    ],
)
def test_a_server_that_says_that_it_is_broken_is(status: int, document: object) -> None:
    assert type(answered(status, document)) is ServerError


def test_a_424_has_the_status_of_its_model_where_that_is_given() -> None:
    document = said("prompt too long")
    told = answered(424, document, **{"ms-azureml-model-error-statuscode": "400"})
    assert isinstance(told, PermanentFailure)
    assert isinstance(answered(424, {"OriginalStatusCode": 429, "Message": "slow down"}), RateLimited)


@pytest.mark.parametrize(
    ("status", "document"),
    [
        (400, said("Failed to call a function. Please adjust your prompt.", code="tool_use_failed")),
        (400, said("Failed to generate JSON.", code="json_validate_failed")),
        (400, said("Timeout while downloading https://example.org/a.png", code="invalid_value", param="url")),
        (400, said("Cannot fetch content from the provided URL")),
        (400, said("Provider returned error", code=400)),
        (400, said("No models provided", code=400)),
        (
            400,
            said(
                "/chat/completions: Invalid model name passed in model=m. Call `/v1/models` to view models."
            ),
        ),
        (429, said("Extra usage is required for long context requests.", type="rate_limit_error")),
    ],
)
def test_a_request_that_may_pass_is_tried_again(status: int, document: object) -> None:
    outcome = answered(status, document)
    assert isinstance(outcome, PermanentFailure)
    assert outcome.doubtful


@pytest.mark.parametrize(
    "document",
    [
        said("Service tier capacity exceeded for this model.", type="invalid_request_error", code="3505"),
        said("busy", type="service_tier_capacity_exceeded"),
        said(
            "We're experiencing high traffic right now! Please try again soon.",
            code="queue_exceeded",
            param="queue",
        ),
        said("The service may be temporarily overloaded, please try again later", code="1305"),
        said("The engine is currently overloaded, please try again later", type="rate_limit_error"),
        said("No capacity available for model m on the server", status="RESOURCE_EXHAUSTED"),
        said("Server busy", code="ServerOverloaded"),
        said("Resource Unavailable", code="resource_unavailable"),
        {"errors": [{"code": 3040, "message": "Capacity temporarily exceeded, please try again."}]},
        said("当前分组上游负载已饱和", code="insufficient_quota"),
        said(
            "Provider returned error",
            code=429,
            metadata={
                "raw": "acme/m is temporarily rate-limited upstream. Please retry shortly.",
                "provider_name": "P",
            },
        ),
    ],
)
def test_a_429_without_capacity_is_an_overload(document: object) -> None:
    assert type(answered(429, document)) is Overloaded


def test_what_the_service_behind_openrouter_said_is_final() -> None:
    metadata = {"raw": "the image is too small", "provider_name": "P"}
    outcome = answered(400, said("Provider returned error", code=400, metadata=metadata))
    assert isinstance(outcome, PermanentFailure)
    assert outcome.message == "Provider returned error: the image is too small"
    assert not outcome.doubtful


@pytest.mark.parametrize(
    "target",
    [
        "https://acme.cloudflareaccess.com/cdn-cgi/access/login/api.acme.org?kid=1",
        "https://sso.acme.org/oauth2/sign_in?rd=https://api.acme.org",
        "/login",
    ],
)
def test_a_redirect_to_a_login_is_denied_access(target: str) -> None:
    outcome = answered(302, "", location=target)
    assert isinstance(outcome, AccessDenied)
    assert "credentials" in outcome.message


def test_other_redirects_keep_their_meaning() -> None:
    moved = answered(301, "", location="https://api.acme.org/v2/login-methods/chat")
    assert isinstance(moved, PermanentFailure)
    assert "base_url" in moved.message
    long = answered(303, "", location="https://a.modal.run/?__modal_function_call_id=fc-1")
    assert isinstance(long, TimedOut)


@given(
    st.integers(400, 599),
    st.text(max_size=200),
    st.recursive(
        st.none() | st.text(max_size=20) | st.integers(),
        lambda inner: st.dictionaries(st.text(max_size=10), inner, max_size=3),
    ),
)
def test_any_metadata_of_an_error_is_read(status: int, message: str, metadata: object) -> None:
    outcome = answered(status, said(message, metadata=metadata))
    assert not hasattr(outcome, "output")
