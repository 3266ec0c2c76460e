"""Rate limits in what other libraries raise: each is recognised, and ordinary errors never are."""

from __future__ import annotations

import re
import urllib.error
from datetime import timedelta
from email.message import Message
from http import HTTPStatus
from types import SimpleNamespace
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane_workers.providers.errors.throttling import Throttled, throttled

NOW_MS = 1_790_000_000_000


def class_of(name: str, *bases: type[Exception]) -> type[Exception]:
    return type(name, bases or (Exception,), {})


def having(error: BaseException, **attributes: Any) -> BaseException:
    for name, value in attributes.items():
        setattr(error, name, value)
    return error


def aws(code: str, status: int = 400, **headers: str) -> BaseException:
    """As botocore raises it: `botocore.exceptions.ClientError`."""
    response = {
        "Error": {"Code": code, "Message": "Rate exceeded"},
        "ResponseMetadata": {"HTTPStatusCode": status, "HTTPHeaders": headers},
    }
    return having(class_of("ClientError")(f"An error occurred ({code})"), response=response)


def over_http(status: int, content: bytes = b"", **headers: str) -> BaseException:
    response = httpx.Response(status, headers=headers, content=content)
    return httpx.HTTPStatusError("rejected", request=httpx.Request("GET", "http://x"), response=response)


def caused(outer: BaseException, cause: BaseException) -> BaseException:
    outer.__cause__ = cause
    return outer


SPENT_IN_WORDS = {"code": "1113", "message": "Insufficient balance or no resource package. Please recharge."}


class Unreadable(dict[str, Any]):
    """A body whose entries cannot be read."""

    def get(self, *_: Any) -> Any:
        raise RuntimeError


THROTTLED = [
    *(class_of(name)("slow down") for name in (
        "RateLimitError", "RateLimitedError", "RateLimitExceeded", "RateLimitException",
        "ThrottlingException", "TooManyRequests", "TooManyRequestsError", "TooManyRequestsException",
        "ThrottledException", "ResourceExhausted", "ThrottlingError",
        "ProvisionedThroughputExceededException", "LMRateLimitError", "OpenAIRateLimitError",
    )),
    class_of("MyOwn", class_of("RateLimitError"))("slow down"),
    having(Exception("x"), status_code=429),
    having(Exception("x"), status=429),
    having(Exception("x"), code=429),
    having(Exception("x"), code=HTTPStatus.TOO_MANY_REQUESTS),
    having(Exception("x"), http_status=429),
    having(Exception("x"), response=SimpleNamespace(status_code=429)),
    having(Exception("x"), response=SimpleNamespace(status=429)),
    having(Exception("x"), status="RESOURCE_EXHAUSTED"),
    having(Exception("x"), code="rate_limit_exceeded"),
    over_http(429),
    urllib.error.HTTPError("http://x", 429, "Too Many Requests", Message(), None),
    *(aws(code) for code in (
        "Throttling", "ThrottlingException", "ThrottledException", "RequestThrottledException", "SlowDown",
        "TooManyRequestsException", "ProvisionedThroughputExceededException", "RequestLimitExceeded",
    )),
    *(RuntimeError(text) for text in (
        "429", "HTTP 429", "429 Too Many Requests", "Error code: 429 - {'error': {}}", "status 429",
        "status_code=429", "429 Client Error: Too Many Requests for url: http://x", "got 429", "code: 429.",
        "rate limit", "Rate limit exceeded", "rate_limit_exceeded", "You are being rate limited.",
        "Rate-limit reached for gpt-4o", "too many requests, slow down", "API error (429): later",
        "429 RESOURCE_EXHAUSTED. {'error': {}}", "HTTP/1.1 429 Too Many Requests", "too_many_requests",
    )),
    having(class_of("RateLimitError")("x"), body={"message": "Rate limit reached", "code": "rate_limit"}),
    having(class_of("RateLimitError")("x"), body=Unreadable()),
    caused(RuntimeError("the tool failed"), class_of("RateLimitError")("slow down")),
    over_http(403, b'{"message": "You have exceeded a secondary rate limit. Please wait."}'),
    over_http(400, b'{"error": {"code": "ThrottlingException", "message": "Rate exceeded"}}'),
    over_http(500, b"Too many requests"),
    having(Exception("403 Client Error: rate limit exceeded for url: http://x"), status_code=403),
    having(Exception("x"), status_code=403, body={"message": "Quota exceeded"}),
    caused(RuntimeError("the tool failed"), over_http(429)),
]  # fmt: skip

ORDINARY = [
    ValueError("could not generate limits"),
    ValueError("cannot generate"),
    ValueError("generate limit reached"),
    ValueError("the moderate limit"),
    ValueError("corporate-limited"),
    ValueError("row 429 has no label"),
    ValueError("got 429 rows"),
    ValueError("error 429 rows differ"),
    ValueError("expected 128 tokens, got 4290"),
    ValueError("at byte 429"),
    ValueError("1.429"),
    ValueError("rate limit must be positive"),
    ValueError("the rate_limit parameter is wrong: rate_limit value"),
    ValueError("no rate limit is configured"),
    KeyError("429"),
    KeyError("rate limit"),
    TypeError("rate limit"),
    AttributeError("'Client' object has no attribute 'rate_limit'"),
    having(Exception("rate limit rules: see our docs"), status_code=400),
    having(Exception("HTTP 429 is documented"), status_code=404),
    having(Exception("x"), status_code=True),
    having(Exception("x"), code=1429),
    having(class_of("RateLimitError")("x"), code="insufficient_quota", status_code=429),
    having(class_of("RateLimitError")("x"), type="exceeded_current_quota_error", status_code=429),
    having(class_of("RateLimitError")("x"), code="InsufficientQuotaError", status_code=429),
    having(class_of("RateLimitError")("x"), body=SPENT_IN_WORDS, status_code=429),
    having(class_of("RateLimitError")("x"), body={"error": SPENT_IN_WORDS}, status_code=429),
    caused(RuntimeError("the tool failed"), having(class_of("RateLimitError")("x"), body=SPENT_IN_WORDS)),
    over_http(404),
    over_http(503),
    over_http(403, b'{"message": "You may not see this."}'),
    over_http(400, b'{"message": "rate limit exceeded"}'),
    over_http(429, b'{"error": {"code": "insufficient_quota", "message": "pay"}}'),
    over_http(403, b"x" * 200_000),
    aws("ValidationException"),
    aws("AccessDeniedException", 403),
    class_of("RateLimitConfigError")("bad"),
    class_of("GenerateLimitError")("bad"),
    class_of("ModelRateLimitOptions")("bad"),
    class_of("LimitError")("bad"),
]


@pytest.mark.parametrize("error", THROTTLED, ids=repr)
def test_a_rate_limit_is_recognised(error: BaseException) -> None:
    assert throttled(error, NOW_MS) == Throttled()


@pytest.mark.parametrize("error", ORDINARY, ids=repr)
def test_an_ordinary_error_is_none(error: BaseException) -> None:
    assert throttled(error, NOW_MS) is None


def test_an_error_that_was_handled_before_another_was_raised_is_not_its_cause() -> None:
    handled = ValueError("the fallback has no such row")
    handled.__context__ = class_of("RateLimitError")("slow down")

    assert throttled(handled, NOW_MS) is None


@pytest.mark.parametrize(
    ("error", "wait_ms"),
    [
        (over_http(429, **{"Retry-After": "7"}), 7000),
        (over_http(429, **{"retry-after-ms": "250"}), 250),
        (aws("ThrottlingException", 400, **{"retry-after": "3"}), 3000),
        (having(class_of("RateLimitError")("x"), retry_after=1.5), 1500),
        (having(class_of("RateLimitError")("x"), retry_after=timedelta(seconds=2)), 2000),
        (having(class_of("RateLimitError")("x"), retry_after="4"), 4000),
        (having(class_of("RateLimitError")("x"), retry_after="soon"), None),
        (having(class_of("RateLimitError")("x"), retry_after=-1), None),
        (having(class_of("RateLimitError")("x"), retry_after=True), None),
        (having(class_of("RateLimitError")("x"), headers={"Retry-After": "9"}), 9000),
        (having(class_of("RateLimitError")("x"), headers=17), None),
        (class_of("RateLimitError")("Rate limit reached. Please try again in 9.816s."), 9816),
        (having(class_of("RateLimitError")("try again in 2s"), headers={"Retry-After": "9"}), 9000),
        (caused(RuntimeError("the tool failed"), over_http(429, **{"Retry-After": "7"})), 7000),
    ],
)
def test_the_wait_is_read_where_the_library_keeps_it(error: BaseException, wait_ms: int | None) -> None:
    assert throttled(error, NOW_MS) == Throttled(wait_ms)


def test_an_error_whose_attributes_and_text_cannot_be_read_is_ordinary() -> None:
    class Broken(Exception):
        def __getattr__(self, name: str) -> Any:
            raise RuntimeError(name)

        def __str__(self) -> str:
            raise RuntimeError

    assert throttled(Broken(), NOW_MS) is None


def test_a_loop_of_causes_ends() -> None:
    one, other = ValueError("one"), ValueError("other")
    one.__cause__, other.__cause__ = other, one

    assert throttled(one, NOW_MS) is None


SIGN = re.compile(r"rate\W?_?limit|too\W?_?many\W?_?requests|429", re.IGNORECASE)
ENDS_IN_RATE = st.sampled_from(
    ["generate", "iterate", "moderate", "corporate", "accurate", "separate", "Crate"]
)


@given(text=st.text(max_size=200))
def test_a_text_without_any_sign_is_no_rate_limit(text: str) -> None:
    if not SIGN.search(text):
        assert throttled(ValueError(text), NOW_MS) is None


@given(
    before=st.text(alphabet="abc ", max_size=10),
    word=ENDS_IN_RATE,
    gap=st.sampled_from([" ", "_", "-", ""]),
    limit=st.sampled_from(["limit", "limits", "limited"]),
    after=st.text(alphabet="abc .", max_size=10),
)
def test_words_that_end_in_rate_are_no_rate_limit(
    before: str, word: str, gap: str, limit: str, after: str
) -> None:
    assert throttled(ValueError(f"{before}{word}{gap}{limit}{after}"), NOW_MS) is None


@given(
    number=st.integers(0, 10**9), noun=st.sampled_from(["rows", "items", "tokens", "bytes", "ms", "of 500"])
)
def test_a_number_of_things_is_no_status(number: int, noun: str) -> None:
    for amount in (number, 429):
        assert throttled(ValueError(f"got {amount} {noun}"), NOW_MS) is None


@given(
    status=st.integers(100, 499).filter(lambda status: status not in (403, 412, 420, 429, 449)),
    text=st.text(max_size=50),
)
def test_the_status_of_another_error_outweighs_the_text(status: int, text: str) -> None:
    error = having(Exception(f"rate limit: {text}"), status_code=status)

    assert throttled(error, NOW_MS) is None
