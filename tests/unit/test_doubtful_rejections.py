"""A 4xx that real services send for a moment is tried again; one that rejects the request for good is not."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.model.outcome import AccessDenied, Outcome, Overloaded, PermanentFailure, RateLimited, TimedOut
from tests.support.classified import refusal

NOW_MS = 1_792_567_680_000
PAGE = "<html><head><title>400 Bad Request</title></head></html>"


def answered(status: int, document: object) -> Outcome:
    body = document if isinstance(document, str) else json.dumps(document)
    return refusal("openai", status, {}, body.encode(), now_ms=NOW_MS)


def said(message: str, **names: str) -> dict[str, object]:
    return {"error": {"message": message, **names}}


@pytest.mark.parametrize(
    ("status", "document"),
    [
        (404, ""),
        (404, said("The model `x` does not exist", code="model_not_found")),
        (404, said("Provider returned error", code="404")),
        (404, said("The API deployment for this resource does not exist", code="DeploymentNotFound")),
        (400, ""),
        (400, PAGE),
        (400, "null"),
        (405, PAGE),
        (400, said("Service temporarily unavailable, please retry", type="invalid_request_error")),
        (400, said("Service is temporarily overloaded")),
        (400, said("The engine is currently overloaded, please try again later")),
        (400, said("This model is at capacity")),
        (422, said("The model is currently not available. Retry in 5 seconds")),
        (498, said("Flex tier capacity exceeded")),
        (
            400,
            said("We could not parse the JSON body of your request. (HINT: …)", type="invalid_request_error"),
        ),
        (400, said("Invalid JSON payload received. Unknown name", status="INVALID_ARGUMENT")),
    ],
)
def test_what_may_pass_is_doubtful(status: int, document: object) -> None:
    outcome = answered(status, document)
    assert isinstance(outcome, PermanentFailure)
    assert outcome.doubtful


@pytest.mark.parametrize(
    ("status", "document"),
    [
        (400, said("This model's maximum context length is 8192 tokens", code="context_length_exceeded")),
        (400, said("Unsupported value: 'temperature' does not support 0.2", type="invalid_request_error")),
        (400, said('messages[0].content: "the service is currently overloaded, try again later"')),
        (400, said("Invalid JSON schema for response_format 'x'")),
        (400, {"error": {"code": "invalid_prompt"}}),
        (400, said("filtered, please try again later", code="content_filter")),
        (410, said("The model has reached its end of life")),
        (413, ""),
        (414, PAGE),
        (422, said("body.messages: field required")),
        (431, ""),
    ],
)
def test_what_rejects_the_request_for_good_is_not(status: int, document: object) -> None:
    outcome = answered(status, document)
    assert isinstance(outcome, PermanentFailure)
    assert not outcome.doubtful


@pytest.mark.parametrize(
    "kind", ["capacity_exceeded", "overloaded_error", "engine_overloaded", "UNAVAILABLE"]
)
@pytest.mark.parametrize("status", [400, 409, 498])
def test_an_overload_by_name_is_one_with_any_status_that_names_no_fault(status: int, kind: str) -> None:
    assert type(answered(status, said("said", type=kind))) is Overloaded


@pytest.mark.parametrize("kind", ["capacity_exceeded", "overloaded_error"])
@pytest.mark.parametrize(
    ("status", "expected"), [(401, AccessDenied), (402, AccessDenied), (404, PermanentFailure)]
)
def test_a_status_that_names_a_fault_counts_more(status: int, kind: str, expected: type[Outcome]) -> None:
    assert type(answered(status, said("said", type=kind))) is expected


@pytest.mark.parametrize("document", ["", {"error": "Client closed request"}, said("said", type="anything")])
def test_a_gateway_that_gave_up_waiting_timed_out(document: object) -> None:
    assert type(answered(499, document)) is TimedOut


@given(st.integers(400, 499), st.text(max_size=300))
def test_only_rejections_are_doubtful_and_their_words_stay(status: int, text: str) -> None:
    outcome = answered(status, said(text))
    if isinstance(outcome, PermanentFailure):
        assert outcome.status == status
        assert not (outcome.doubtful and outcome.content)
    else:
        assert not isinstance(outcome, RateLimited) or status == 429 or "rate" in text.lower()
