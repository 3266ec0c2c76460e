"""An error inside a 200 is what the same error is with a status of its own."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fairlane.model.outcome import (
    AccessDenied,
    Outcome,
    Overloaded,
    PermanentFailure,
    RateLimited,
    ServerError,
    TimedOut,
)
from fairlane_workers.providers.protocols.openai.errors import read_error
from tests.support.classified import late_error, refusal
from tests.support.provider_calls import ask, call, streamed
from tests.support.scripted_server import event, http
from tests.support.wires import WIRES, OpenAIChatWire, Wire
from tests.support.wires.openai_responses import OpenAIResponsesWire

CHAT, RESPONSES = OpenAIChatWire(), OpenAIResponsesWire()
REJECTED = [
    *("misalignment_policy_violation", "cyber_policy", "bio_policy", "invalid_prompt"),
    *("data_inspection_failed", "DataInspectionFailed"),
    *("invalid_image", "invalid_image_format", "invalid_image_url", "invalid_image_mode"),
    *("invalid_base64_image", "image_too_large", "image_too_small", "image_parse_error"),
    *("image_content_policy_violation", "image_file_too_large", "image_file_not_found"),
    *("empty_image_file", "unsupported_image_media_type", "failed_to_download_image"),
    *("data_residency_mismatch", "context_length_exceeded", "content_filter"),
]


def of(wire: Wire, document: dict[str, Any], *, stream: bool) -> Outcome:
    """The outcome of a 200 that is this document, or of a stream that holds it."""
    if not stream:
        return call(wire, ask(), [http(200, document)])[0]
    data = wire.begin() + wire.piece("half") + event(document) + wire.end()
    return call(wire, ask(stream=True), streamed(wire, data))[0]


@pytest.mark.parametrize("protocol", ["openai", "openai_responses", "azure_openai"])
@pytest.mark.parametrize("code", REJECTED)
def test_a_code_that_rejects_the_request_rejects_it_after_a_200(protocol: str, code: str) -> None:
    error = {"code": code, "message": "m"}
    late = late_error(protocol, error, {}, now_ms=0)
    assert isinstance(late, PermanentFailure)
    assert late == refusal(protocol, 400, {}, json.dumps({"error": error}).encode(), now_ms=0)


@pytest.mark.parametrize("code", REJECTED)
def test_a_response_that_failed_for_its_request_is_not_tried_again(code: str) -> None:
    error = {"code": code, "message": "m"}
    response = {"object": "response", "status": "failed", "error": error, "output": []}
    failed = {"type": "response.failed", "response": response}
    shown = {"type": "error", "sequence_number": 3, **error}
    for outcome in (
        of(RESPONSES, response, stream=False),
        of(RESPONSES, failed, stream=True),
        of(RESPONSES, shown, stream=True),
    ):
        assert isinstance(outcome, PermanentFailure), outcome
        assert outcome.message == "m"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"error": {"message": "m"}, "status_code": 429}, RateLimited),
        ({"error": {"message": "m"}, "status_code": 422}, PermanentFailure),
        ({"error": {"message": "m"}, "status_code": 503}, Overloaded),
        ({"error": {"message": "m", "code": "rate_limit_exceeded"}, "status_code": 400}, RateLimited),
        ({"error": "m", "error_type": "overloaded"}, Overloaded),
        ({"error": "m"}, ServerError),
    ],
)
def test_what_stands_beside_an_error_counts(document: dict[str, Any], expected: type, stream: bool) -> None:
    outcome = of(CHAT, document, stream=stream)
    assert type(outcome) is expected, outcome
    assert outcome.message == "m"  # type: ignore[union-attr]


MINIMAX = [
    (1000, ServerError("m", 500)),
    (1001, TimedOut("m", 504)),
    (1002, RateLimited("m", 429)),
    (1004, AccessDenied("m", 401, "auth")),
    (1008, AccessDenied("m", 429, "quota")),
    (1026, PermanentFailure("m", 400, content=True)),
    (1027, PermanentFailure("m", 400, content=True)),
    (1039, RateLimited("m", 429)),
    (2013, PermanentFailure("m", 400)),
    (2049, AccessDenied("m", 401, "auth")),
    (2056, RateLimited("m", 429)),
    (9999, ServerError("m", 500)),
]


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(("code", "expected"), MINIMAX)
def test_minimax_codes_are_what_they_say(code: int, expected: Outcome, stream: bool) -> None:
    base = {"status_code": code, "status_msg": "m"}
    assert of(CHAT, {"choices": None, "base_resp": base}, stream=stream) == expected


@pytest.mark.parametrize(("code", "expected"), MINIMAX)
def test_minimax_codes_are_the_same_in_its_other_protocol(code: int, expected: Outcome) -> None:
    anthropic = next(wire for wire in WIRES if wire.protocol == "anthropic")
    base = {"status_code": str(code), "status_msg": "m"}
    assert type(of(anthropic, {"base_resp": base}, stream=False)) is type(expected)


def test_the_same_numbers_of_others_are_not_minimaxs() -> None:
    assert of(CHAT, {"error": {"code": 1026, "message": "m"}}, stream=False) == ServerError("m", 500)
    assert read_error(b'{"status_code": 1026, "message": "m"}').kinds == ("1026",)


@pytest.mark.parametrize("code", [0, None, "0"])
def test_minimax_success_is_no_error(code: object) -> None:
    base = {"status_code": code, "status_msg": "success"}
    outcome = of(CHAT, {**CHAT.whole("a"), "base_resp": base}, stream=False)
    assert getattr(outcome, "output", None) == "a"
