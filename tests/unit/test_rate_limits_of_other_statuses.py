"""Many services reject calls by rate with another status than 429: their names and first words say so."""

from __future__ import annotations

import json
from collections.abc import Mapping

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
)
from fairlane_workers.providers.answers.classify import Reading, classify
from fairlane_workers.providers.errors.error_body import ErrorBody
from tests.support.classified import refusal

NOW_MS = 1_792_567_680_000


def answered(
    status: int, document: object, headers: Mapping[str, str] | None = None, protocol: str = "openai"
) -> Outcome:
    body = document.encode() if isinstance(document, str) else json.dumps(document).encode()
    return refusal(protocol, status, headers or {}, body, now_ms=NOW_MS)


def named(code: str, message: str = "said") -> dict[str, object]:
    return {"error": {"code": code, "message": message}}


def fault(code: str) -> dict[str, object]:
    return {"fault": {"faultstring": "said", "detail": {"errorcode": code}}}


@pytest.mark.parametrize("status", [400, 403, 420, 500, 502, 503])
@pytest.mark.parametrize(
    "document",
    [
        named("ThrottlingException"),
        named("Throttling.RateQuota"),
        named("SlowDown"),
        named("rate_limit_exceeded"),
        {"error": {"type": "rate_limit_error", "message": "said"}},
        {"code": "RateLimitExceeded.EndpointRPMExceeded", "message": "said"},
        {"type": "https://example.com/problems#account-rate-limit-exceeded", "title": "said"},
        {
            "fault": {
                "faultstring": "said",
                "detail": {"errorcode": "policies.ratelimit.SpikeArrestViolation"},
            }
        },
        {"errors": [{"code": "rate_limit_reached_requests", "message": "said"}], "trace": "x"},
        {"Response": {"Error": {"Code": "RequestLimitExceeded", "Message": "said"}}},
        {"error": {"code": 403, "message": "said", "errors": [{"reason": "userRateLimitExceeded"}]}},
        [{"errorCode": "REQUEST_LIMIT_EXCEEDED", "message": "said"}],
        {"error_code": "too_many_requests", "error_msg": "said"},
    ],
)
def test_an_error_whose_own_name_is_a_rate_limit_is_one_with_any_status(
    status: int, document: object
) -> None:
    assert answered(status, document) == RateLimited("said", status)


def test_bedrock_throttles_with_a_400_too() -> None:
    headers = {"x-amzn-errortype": "ThrottlingException:http://internal.amazon.com/coral/"}
    outcome = answered(400, {"message": "Please wait before trying again."}, headers, "bedrock")
    assert outcome == RateLimited("Please wait before trying again.", 400)
    busy = answered(400, {"__type": "ServiceUnavailableException", "message": "busy"}, {}, "bedrock")
    assert busy == Overloaded("busy", 400)
    wrong = answered(400, {"__type": "ValidationException", "message": "wrong"}, {}, "bedrock")
    assert wrong == PermanentFailure("wrong", 400)


@pytest.mark.parametrize("status", [403, 500, 503])
@pytest.mark.parametrize(
    "message",
    [
        "You have exceeded a secondary rate limit. Please wait a few minutes before you try again.",
        "Too many requests",
        "Spike arrest violation. Allowed rate : 10ps",
        "litellm.RateLimitError: OpenAIException - try later",
        "Request was throttled. Expected available soon.",
        "Please reduce your request rate.",
    ],
)
def test_a_403_or_5xx_that_opens_with_a_rate_limit_is_one(status: int, message: str) -> None:
    assert isinstance(answered(status, {"message": message}), RateLimited)
    assert isinstance(answered(status, message), RateLimited)


def test_a_rate_limit_behind_a_403_waits_as_its_headers_say() -> None:
    reset = {"x-ratelimit-limit": "60", "x-ratelimit-remaining": "0", "x-ratelimit-reset": "333"}
    outcome = answered(403, {"message": "API rate limit exceeded for 192.0.2.1."}, reset)
    assert isinstance(outcome, RateLimited)
    assert outcome.retry_after_ms == 333_000


@pytest.mark.parametrize(
    ("document", "wait_ms"),
    [
        (
            {"statusCode": 403, "message": "Out of call volume quota. Quota is replenished soon."},
            447_791_000,
        ),
        ({"statusCode": 403, "message": "Token quota is exceeded. Try again in 50 minutes."}, 3_000_000),
        ({"error": "Quota exceeded"}, None),
        ({"errors": [{"code": "token_quota_reached", "message": "said"}]}, None),
        ({"error": {"message": "said", "errors": [{"reason": "dailyLimitExceeded"}]}}, None),
    ],
)
def test_a_quota_behind_a_403_holds_the_lane_and_is_no_wrong_key(
    document: object, wait_ms: int | None
) -> None:
    headers = {"retry-after": str(wait_ms // 1000)} if wait_ms and wait_ms > 3_600_000 else {}
    outcome = answered(403, document, headers)
    assert isinstance(outcome, RateLimited)
    assert outcome.retry_after_ms == wait_ms
    assert outcome.hints is not None
    assert outcome.hints.exhausted == "day"


@pytest.mark.parametrize(
    ("status", "document"),
    [
        (400, {"error": {"type": "budget_exceeded", "message": "said", "code": "400"}}),
        (429, {"error": {"type": "budget_exceeded", "message": "said", "code": "429"}}),
        (400, named("project_budget_exceeded")),
        (
            400,
            {
                "error": {
                    "message": "litellm.BadRequestError: OpenAIException - Budget has been exceeded! Cost"
                }
            },
        ),
        (400, {"error": {"message": "Budget has been exceeded! Current cost: 76.16, Max budget: 10.0"}}),
        (429, {"error": {"message": "No deployments available - crossed budget: Exceeded budget for m"}}),
        (412, {"status": "failure", "message": "The budget is exhausted"}),
        (412, {"message": "Usage quota exceeded"}),
        (403, {"error": {"message": "Key limit exceeded (daily limit). Manage it", "code": 403}}),
    ],
)
def test_a_used_up_budget_of_a_gateway_holds_the_lane(status: int, document: object) -> None:
    outcome = answered(status, document)
    assert isinstance(outcome, RateLimited)
    assert outcome.hints is not None
    assert outcome.hints.exhausted == "day"


def test_a_403_that_names_the_limit_of_a_minute_is_no_used_up_day() -> None:
    outcome = answered(403, named("quotaExceeded", "Quota exceeded for requests per minute."))
    assert isinstance(outcome, RateLimited)
    assert outcome.hints is not None
    assert outcome.hints.exhausted == "requests"


@pytest.mark.parametrize(
    ("status", "document", "kind"),
    [
        (403, {"message": "The rate limit setting of this key is invalid."}, AccessDenied),
        (403, {"message": "Key limit exceeded (total limit)."}, AccessDenied),
        (403, {"message": "You may not see this model: 'too many requests'"}, AccessDenied),
        (403, named("insufficient_quota", "Quota exceeded"), AccessDenied),
        (401, {"message": "Too many requests with a wrong key"}, AccessDenied),
        (402, named("RESOURCE_EXHAUSTED", "Rate limit exceeded"), AccessDenied),
        (400, {"message": "Rate limit exceeded is not a valid prompt"}, PermanentFailure),
        (400, {"message": "Explain why a budget has been exceeded! "}, PermanentFailure),
        (404, {"message": "Too many requests"}, PermanentFailure),
        (404, named("rate_limit_exceeded"), PermanentFailure),
        (413, named("rate_limit_exceeded", "Request too large for model m"), PermanentFailure),
        (422, named("budget_exceeded"), PermanentFailure),
        (412, {"message": "The precondition failed"}, PermanentFailure),
        (500, {"message": "could not render 'rate limit exceeded'"}, ServerError),
        (500, {"message": "The worker failed. It was not a rate limit."}, ServerError),
        (500, fault("policies.ratelimit.InvalidMessageWeight"), ServerError),
        (503, "<html><h1>503 Service Temporarily Unavailable</h1></html>", Overloaded),
        (429, {"error": "Model is overloaded", "error_type": "overloaded"}, Overloaded),
    ],
)  # fmt: skip
def test_other_errors_stay_what_they_are(status: int, document: object, kind: type[Outcome]) -> None:
    assert isinstance(answered(status, document), kind)


def test_what_the_connection_configures_goes_first() -> None:
    error = ErrorBody.of({"error": {"code": "ThrottlingException", "message": "said"}})
    reading = Reading(error_map={"400": "permanent"})
    assert classify(error, 400, {}, reading, now_ms=NOW_MS) == PermanentFailure("said", 400)


@given(st.sampled_from([400, 404, 413, 422]), st.text(max_size=200))
def test_no_words_make_a_rate_limit_of_an_error_of_the_request(status: int, prompt: str) -> None:
    message = f"{prompt} too many requests: rate limit exceeded, quota exceeded"
    assert isinstance(answered(status, {"error": {"message": message}}), PermanentFailure | AccessDenied)


@given(st.sampled_from([403, 500, 503]), st.text(max_size=200))
def test_no_quoted_prompt_makes_a_rate_limit(status: int, prompt: str) -> None:
    message = f"cannot process '{prompt} too many requests, rate limit exceeded, quota exceeded"
    assert not isinstance(answered(status, {"error": {"message": message}}), RateLimited)


@pytest.mark.parametrize(
    ("document", "kinds", "message"),
    [
        ({"title": "One or more errors occurred.", "status": 400, "errors": {"Prompt": ["is required"]}},
         ("400",), "One or more errors occurred."),
        ({"fault": {"code": 900800, "message": "Throttled out"}}, ("900800",), "Throttled out"),
        ({"errors": []}, (), None),
        ({"fault": "x"}, (), None),
        ({"detail": {"error_code": "a", "why": "b"}}, ("a",), '{"error_code": "a", "why": "b"}'),
    ],
)  # fmt: skip
def test_what_gateways_put_around_an_error_is_taken_off(
    document: object, kinds: tuple[str, ...], message: str | None
) -> None:
    error = ErrorBody.of(document)
    assert (error.kinds, error.message) == (kinds, message)
