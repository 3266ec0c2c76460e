"""A refusal names the axis that ran out, and the wait is that axis' own."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfoNotFoundError

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.model.hints import Axis, AxisHint
from fairlane.model.outcome import (
    AccessDenied,
    Outcome,
    Overloaded,
    PermanentFailure,
    RateLimited,
)
from fairlane_workers.providers.limits import bodies
from fairlane_workers.providers.limits.table import DIALECTS, NAMES
from tests.support.classified import late_error, refusal

NOW_MS = 1_792_567_680_000  # Wed, 21 Oct 2026 07:28:00 GMT, 00:28 in Los Angeles
DAY_MS = 86_400_000
TO_MIDNIGHT_MS = DAY_MS - 28 * 60_000

TPM = "Rate limit reached for gpt-4o in organization org-x on tokens per min (TPM): Limit 10000, Used 9000, "
TPM += "Requested 4291. Please try again in 19.7s."
RPM = "Rate limit reached for default in organization org-x on requests per min. Limit: 3 / min."


def refused(
    limits: str | None, headers: dict[str, str], error: dict[str, Any] | None = None, status: int = 429
) -> Outcome:
    body = json.dumps({"error": {"message": "said", **(error or {})}}).encode()
    return refusal("openai", status, headers, body, now_ms=NOW_MS, limits=limits)


def of(outcome: Outcome) -> tuple[Axis | None, int | None]:
    assert isinstance(outcome, RateLimited)
    return (outcome.hints.exhausted if outcome.hints else None), outcome.retry_after_ms


def hint_of(outcome: Outcome, axis: Axis) -> AxisHint | None:
    assert outcome.hints is not None
    return outcome.hints.axes.get(axis)


def levels(requests: tuple[str, str], tokens: tuple[str, str]) -> dict[str, str]:
    shown = {}
    for axis, (remaining, reset) in (("requests", requests), ("tokens", tokens)):
        shown[f"x-ratelimit-limit-{axis}"] = "1000"
        shown[f"x-ratelimit-remaining-{axis}"] = remaining
        shown[f"x-ratelimit-reset-{axis}"] = reset
    return shown


def google(*violations: tuple[str, str], delay: str | None = "22s") -> dict[str, Any]:
    quotas = [{"quotaId": quota, "quotaValue": value, "quotaMetric": "m"} for quota, value in violations]
    details: list[dict[str, Any]] = [
        {"@type": "type.googleapis.com/google.rpc.Help", "links": []},
        {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": quotas},
    ]
    if delay is not None:
        details.append({"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": delay})
    return {"code": 429, "status": "RESOURCE_EXHAUSTED", "details": details}


def test_the_request_clock_never_shortens_an_exhausted_token_clock() -> None:
    headers = levels(("999", "12ms"), ("0", "45s"))
    assert of(refused("openai", headers)) == ("tokens", 45_000)
    assert of(refused("openai", levels(("0", "12ms"), ("0", "45s")))) == ("tokens", 45_000)
    assert of(refused("openai", headers, {"type": "tokens"})) == ("tokens", 45_000)


def test_the_type_of_an_error_names_the_axis() -> None:
    headers = levels(("999", "12ms"), ("900", "6s"))
    assert of(refused("openai", headers, {"type": "requests"})) == ("requests", 12)
    assert of(refused("openai", headers, {"type": "tokens"})) == ("tokens", 6_000)
    assert of(refused("openai", headers)) == (None, None)


@pytest.mark.parametrize("limits", ["openai", "groq", "generic", None])
def test_the_time_to_a_full_refill_is_no_wait_where_retry_after_is_reported(limits: str | None) -> None:
    headers = {**levels(("999", "12ms"), ("0", "45s")), "retry-after": "2"}
    assert of(refused(limits, headers)) == ("tokens", 2_000)
    headers["retry-after"] = "0"
    assert of(refused(limits, headers)) == ("tokens", 45_000)


@pytest.mark.parametrize("limits", ["azure", "xai"])
def test_the_end_of_a_window_is_waited_for_beyond_retry_after(limits: str) -> None:
    headers = {**levels(("999", "0"), ("0", "45")), "retry-after": "2"}
    assert of(refused(limits, headers)) == ("tokens", 45_000)
    assert of(refused(limits, {**headers, "retry-after": "50"})) == ("tokens", 50_000)


def test_the_zeros_of_azure_mean_neither_at_once_nor_a_whole_window() -> None:
    """A lane doubles a named wait while it proves too short (refusal/patience.lua)."""
    headers = levels(("999", "0"), ("0", "0")) | {
        "x-ratelimit-type": "tokens",
        "x-ratelimit-renewalperiod-tokens": "60",
        "retry-after": "1",
        "retry-after-ms": "0",
    }
    outcome = refused(None, headers)
    assert of(outcome) == ("tokens", 1_000)
    assert hint_of(outcome, "tokens") == AxisHint(1_000, 0, None)
    assert of(refused(None, {**headers, "retry-after": "27"})) == ("tokens", 27_000)
    del headers["retry-after"]
    assert of(refused(None, headers)) == ("tokens", 0)  # the lane's own wait, as if none were named


def test_what_azure_does_not_know_is_not_now() -> None:
    headers = {
        f"x-ratelimit-{word}-tokens": value
        for word, value in {"limit": "-1", "remaining": "-1", "reset": "0"}.items()
    }
    assert of(refused("azure", headers)) == (None, None)
    assert of(refused("azure", {**headers, "x-ratelimit-type": "tokens"})) == ("tokens", None)


@pytest.mark.parametrize(
    ("named", "expected"),
    [
        ("tokens", "tokens"),
        ("requests", "requests"),
        ("UserConcurrentRequests", "concurrency"),
        ("UserByDay", "day"),
        ("UserByMinute", "requests"),
        ("weather", None),
    ],
)
def test_azure_names_the_axis_in_a_header(named: str, expected: Axis | None) -> None:
    assert of(refused("azure", {"x-ratelimit-type": named, "retry-after": "5"})) == (expected, 5_000)


def test_anthropic_shows_the_axis_by_what_is_left() -> None:
    headers = {
        "anthropic-ratelimit-input-tokens-limit": "40000",
        "anthropic-ratelimit-input-tokens-remaining": "0",
        "anthropic-ratelimit-input-tokens-reset": "2026-10-21T07:28:30Z",
        "anthropic-ratelimit-requests-remaining": "49",
        "anthropic-ratelimit-requests-reset": "2026-10-21T07:28:01Z",
    }
    assert of(refused(None, headers, {"type": "rate_limit_error"})) == ("input", 30_000)
    assert of(refused(None, {**headers, "retry-after": "7"})) == ("input", 7_000)


def test_the_requests_of_groq_are_those_of_a_day() -> None:
    headers = levels(("0", "24h0m0s"), ("900", "1s"))
    assert of(refused("groq", {**headers, "retry-after": "60"}, {"type": "requests"})) == ("day", 60_000)
    assert of(refused("groq", headers, {"type": "requests"})) == ("day", 86_400)  # of 1,000, one is back

    headers = levels(("970", "3m"), ("900", "1s"))
    message = "… on requests per minute (RPM): Limit 30, Used 30, Requested 1. Please try again in 2s."
    outcome = refused("groq", headers, {"type": "requests", "message": message})
    assert of(outcome) == ("requests", 2_000)
    assert hint_of(outcome, "requests") == AxisHint(30)

    message = "… on tokens per day (TPD): Limit 500000, Used 499000, Requested 2000."
    assert of(refused("groq", headers, {"type": "tokens", "message": message})) == ("day", None)


def test_a_spent_month_of_mistral_is_a_day_that_nobody_knows_the_end_of() -> None:
    headers = {
        "x-ratelimitbysize-limit-minute": "500000",
        "x-ratelimitbysize-remaining-minute": "499000",
        "x-ratelimitbysize-limit-month": "1000",
        "x-ratelimitbysize-remaining-month": "0",
        "ratelimitbysize-reset": "32",
    }
    outcome = refused(None, headers)
    assert of(outcome) == ("day", None)
    assert hint_of(outcome, "day") == AxisHint(None, 0, None)
    assert hint_of(outcome, "tokens") == AxisHint(500_000, 499_000, 32_000)


def test_together_is_overloaded_at_503_and_limited_at_429() -> None:
    headers = {"x-ratelimit-limit": "10", "x-ratelimit-remaining": "0", "x-ratelimit-reset": "1"}
    assert of(refused("together", headers)) == ("requests", 1_000)
    busy = refused("together", headers, status=503)
    assert isinstance(busy, Overloaded)
    assert busy.retry_after_ms is None
    assert hint_of(busy, "requests") == AxisHint(600, 0, 1_000)
    assert busy.hints is not None
    assert busy.hints.exhausted is None


@pytest.mark.parametrize(
    ("quota", "axis"),
    [
        ("GenerateRequestsPerMinutePerProjectPerModel-FreeTier", "requests"),
        ("GenerateContentInputTokensPerModelPerMinute-FreeTier", "input"),
        ("GenerateContentPaidTierInputTokensPerModelPerMinute", "input"),
        ("TokenCountPerMinute", "tokens"),
        ("ConcurrentRequestsPerProject", "concurrency"),
    ],
)
def test_gemini_names_the_quota_and_the_wait_in_its_body(quota: str, axis: Axis) -> None:
    outcome = refused("gemini", {}, google((quota, "15")))
    assert of(outcome) == (axis, 22_000)
    assert hint_of(outcome, axis) == AxisHint(15, 0, None)
    assert of(refused("generic", {}, google((quota, "15"), delay=None))) == (axis, None)
    assert of(refused("gemini", {"retry-after": "30"}, google((quota, "15")))) == (axis, 30_000)


def test_a_quota_of_gemini_that_is_no_axis_leaves_the_wait() -> None:
    assert of(refused("gemini", {}, google(("ImagesPerMinute", "5")))) == (None, 22_000)


def test_a_day_of_gemini_ends_at_midnight_pacific_whatever_its_delay_says() -> None:
    minute, day = "GenerateRequestsPerMinutePerProject", "GenerateRequestsPerDayPerProjectPerModel-FreeTier"
    outcome = refused("gemini", {}, google((minute, "15"), (day, "1500")))
    assert of(outcome) == ("day", TO_MIDNIGHT_MS)
    assert hint_of(outcome, "day") == AxisHint(1_500, 0, TO_MIDNIGHT_MS)
    assert hint_of(outcome, "requests") == AxisHint(15, 0, None)
    tokens = refused("generic", {}, google(("GenerateContentInputTokensPerModelPerDay", "250000")))
    assert of(tokens) == ("day", TO_MIDNIGHT_MS)
    assert hint_of(tokens, "day") == AxisHint(None, 0, TO_MIDNIGHT_MS)


def test_an_error_of_google_in_mid_stream_or_in_a_list_is_read_too() -> None:
    error = {"message": "said", **google(("GenerateRequestsPerMinutePerProject", "15"))}
    late = late_error("openai", error, {}, now_ms=NOW_MS, limits="gemini")
    assert of(late) == ("requests", 22_000)
    listed = refusal("openai", 429, {}, json.dumps([{"error": error}]).encode(), now_ms=NOW_MS)
    assert of(listed) == ("requests", 22_000)


@pytest.mark.parametrize(
    ("moment", "hours"),
    [
        (datetime(2026, 1, 15, 20, tzinfo=UTC), 12),  # winter
        (datetime(2026, 7, 15, 20, tzinfo=UTC), 11),  # summer
        (datetime(2026, 3, 8, 8, tzinfo=UTC), 23),  # the day that loses an hour
        (datetime(2026, 11, 1, 7, tzinfo=UTC), 25),  # the day that gains one
    ],
)
def test_midnight_follows_daylight_saving_time(moment: datetime, hours: int) -> None:
    assert bodies.until_midnight_pacific_ms(round(moment.timestamp() * 1000)) == hours * 3_600_000


def test_without_time_zones_it_is_always_winter_on_the_west_coast(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> None:
        raise ZoneInfoNotFoundError(name)

    monkeypatch.setattr(bodies, "ZoneInfo", missing)
    bodies._pacific.cache_clear()
    try:
        assert bodies.until_midnight_pacific_ms(NOW_MS + 12 * 3_600_000) == TO_MIDNIGHT_MS - 11 * 3_600_000
    finally:
        bodies._pacific.cache_clear()


def test_prose_gives_way_to_types_and_headers() -> None:
    headers = levels(("0", "6s"), ("900", "1s"))
    assert of(refused("openai", headers, {"message": TPM})) == ("requests", 6_000)
    outcome = refused("openai", headers, {"message": TPM, "type": "tokens"})
    assert of(outcome) == ("tokens", 1_000)
    assert hint_of(outcome, "tokens") == AxisHint(1_000, 900, 1_000)


@pytest.mark.parametrize(
    "message",
    [
        "Request too large for gpt-4o on tokens per min (TPM): Limit 30000, Requested 30601.",
        "Request too large for model `m` on tokens per minute (TPM): Limit 8,000, Requested ~34,031, please",
        "Rate limit reached for m on tokens per min (TPM): Limit 30000, Used 900, Requested 30601.",
    ],
)
def test_a_request_beyond_the_whole_limit_fails_and_names_the_limit(message: str) -> None:
    outcome = refused("openai", {"retry-after": "1"}, {"message": message, "type": "tokens"})
    assert isinstance(outcome, PermanentFailure)
    assert (outcome.status, outcome.retry_after_ms) == (429, None)
    assert outcome.hints is not None
    assert (outcome.hints.exhausted, hint_of(outcome, "tokens")) == (
        None,
        AxisHint(30_000 if "30000" in message else 8_000),
    )


@pytest.mark.parametrize("status", [400, 422])
def test_prose_is_not_read_on_what_is_no_rate_limit(status: int) -> None:
    outcome = refused("openai", {}, {"message": TPM}, status)
    assert isinstance(outcome, PermanentFailure)
    assert outcome.hints is None


def test_a_hard_quota_keeps_the_hints_of_its_headers_and_names_no_axis() -> None:
    outcome = refused("openai", levels(("0", "1s"), ("9", "1s")), {"type": "insufficient_quota"})
    assert isinstance(outcome, AccessDenied)
    assert outcome.retry_after_ms is None
    assert outcome.hints is not None
    assert outcome.hints.exhausted is None


def test_a_reset_beyond_belief_is_no_wait() -> None:
    assert of(refused("openai", levels(("9", "1s"), ("0", "20h")))) == ("tokens", None)
    assert of(
        refused(
            "cerebras",
            {"x-ratelimit-remaining-requests-day": "0", "x-ratelimit-reset-requests-day": "999999"},
        )
    ) == ("day", None)


LEAF = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20)
LEAF |= st.sampled_from(
    ["type.googleapis.com/google.rpc.QuotaFailure", "google.rpc.RetryInfo", "XPerDayTokens", "22s"]
)
KEYS = [
    "error",
    "message",
    "type",
    "code",
    "details",
    "@type",
    "violations",
    "quotaId",
    "quotaValue",
    "retryDelay",
    "retry_after",
    "metadata",
    "headers",
    "X-RateLimit-Reset",
    "X-RateLimit-Remaining",
]
DOCUMENT = st.recursive(
    LEAF,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner),
    max_leaves=15,
)


@given(
    document=DOCUMENT,
    details=DOCUMENT,
    dialect=st.sampled_from(sorted(DIALECTS)),
    headers=st.dictionaries(
        st.sampled_from(sorted(NAMES | {"date", "retry-after", "retry-after-ms"})),
        st.text(max_size=20) | st.integers(-5, 10**13).map(str) | st.datetimes().map(datetime.isoformat),
    ),
)
@pytest.mark.slow
def test_no_refusal_raises_or_asks_for_a_wait_that_cannot_be(
    document: object, details: object, dialect: str, headers: dict[str, str]
) -> None:
    for body in (document, {"error": {"details": details}}, {"error": {"details": [details]}}):
        outcome = refusal("openai", 429, headers, json.dumps(body).encode(), now_ms=NOW_MS, limits=dialect)
        assert outcome.retry_after_ms is None or 0 <= outcome.retry_after_ms < 10**15
        if outcome.hints is not None:
            assert outcome.hints
            assert json.loads(outcome.hints.to_json())
            assert all(hint.limit is None or hint.limit > 0 for hint in outcome.hints.axes.values())
