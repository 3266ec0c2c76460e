"""A 429's own sentence names the limit that ran out and the wait, however a provider words it.

The sentences are those of providers, gateways and proxies, most of them as public reports quote them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.model.hints import Axis, AxisHint
from fairlane.model.outcome import RateLimited
from fairlane_workers.providers.errors.retry_after import wait_in_words_ms
from fairlane_workers.providers.limits.prose import NamedLimit, named_limit
from tests.support.classified import refusal

SECOND_MS, MINUTE_MS = 1_000, 60_000
NOW_MS = 1_778_850_000_000  # 2026-05-15T13:00:00Z

SENTENCES = Path(__file__).with_name("sentences_of_429s.tsv")


def sentences() -> Iterator[tuple[str, NamedLimit | None]]:
    for line in SENTENCES.read_text().splitlines():
        if line and not line.startswith("#"):
            axis, limit, sentence = line.split("\t")
            size = None if limit == "-" else float(limit)
            yield sentence, None if axis == "-" else NamedLimit(cast(Axis, axis), size)


WAITS = {
    "Please try again in 9.816s.": 9_816,
    "Please try again in 644ms.": 644,
    "Please try again in 6m0s. Visit https://x": 360_000,
    "Please try again in 1m12.5s": 72_500,
    "please try again after 1 seconds": SECOND_MS,
    "Please retry after 60 seconds.": MINUTE_MS,
    "Please wait 42 seconds before retrying.": 42_000,
    "No deployments available for selected model, Try again in 60 seconds. Passed model=m": MINUTE_MS,
    "Your rate limit resets in ~30s.": 30_000,
    "Retry after 10 minutes": 600_000,
    "Please retry in 41.5s": 41_500,
    "try again in 250 milliseconds": 250,
    "usage limit exceeded, 5-hour usage limit reached, resets at 2026-05-15T15:00:00Z (2056)": 120
    * MINUTE_MS,
    "Your limit resets at 2026-05-15T13:00:01+00:00": SECOND_MS,
    "Too many overall requests. Please try after 2026-05-15T13:00:01.000Z": SECOND_MS,
    "Your limit resets at 2026-05-15T12:00:00Z": None,
    "Your limit resets at 2026-99-99T12:00:00Z": None,
    "Retrying in 5 seconds is what others do": None,
    "Please retry after 86400 seconds.": None,
    "Please wait before trying again.": None,
    "try again in 2 months": None,
    "try again in 5": None,
    "Request was throttled. Expected available in 5 seconds.": 5_000,
    "Quota has been exhausted. You can submit the request after 49 seconds": 49_000,
    "Rate limit exceeded, retry in 48 seconds": 48_000,
    "Too many requests. Support is available 1 hour a day.": None,
}


@pytest.mark.parametrize(("message", "named"), list(sentences()))
def test_a_sentence_names_its_limit_unless_it_names_two(message: str, named: NamedLimit | None) -> None:
    assert named_limit(message) == named


@pytest.mark.parametrize(("message", "wait_ms"), WAITS.items())
def test_a_sentence_names_its_wait(message: str, wait_ms: int | None) -> None:
    assert wait_in_words_ms(message, NOW_MS) == wait_ms


@pytest.mark.parametrize(
    ("body", "axis", "hint", "wait_ms"),
    [
        (
            {
                "error": {
                    "message": "reached max organization concurrency: 1, please try again after 1 seconds"
                }
            },
            "concurrency",
            AxisHint(1),
            SECOND_MS,
        ),
        (
            {"error": {"message": "Too fast", "code": "concurrent_request_limit_exceeded"}},
            "concurrency",
            None,
            None,
        ),
        ({"error": {"message": "Slow down", "code": "limit_requests"}}, "requests", None, None),
        ({"message": "Details: TPM limit reached.", "data": None}, "tokens", None, None),
        (
            {
                "error": {
                    "message": "Provider returned error",
                    "code": 429,
                    "metadata": {"raw": "Rate limit reached on tokens per min: Limit 9000. Try again in 1s."},
                }
            },
            "tokens",
            AxisHint(9000),
            SECOND_MS,
        ),
        (
            {"error": {"message": "Too many concurrent requests for this client.", "retry_after": 10}},
            "concurrency",
            None,
            10_000,
        ),
        (
            {
                "error": {
                    "message": "Rate limit exceeded: free-models-per-day. Add 10 credits",
                    "metadata": {
                        "headers": {
                            "X-RateLimit-Limit": "50",
                            "X-RateLimit-Remaining": "0",
                            "X-RateLimit-Reset": str(NOW_MS + 90 * MINUTE_MS),
                        }
                    },
                }
            },
            "day",
            None,
            90 * MINUTE_MS,
        ),
        ({"error": "timed out waiting for a concurrent request slot"}, "concurrency", None, None),
        (
            {"error": {"message": "Weekly limit reached", "resets_in_seconds": 7200, "resets_at": 1}},
            "day",
            None,
            120 * MINUTE_MS,
        ),
        (
            {"code": "quota_exceeded", "reset_at": "2026-05-15T13:00:05Z", "title": "Daily quota exceeded"},
            "day",
            None,
            5 * SECOND_MS,
        ),
        (
            {"success": False, "error": [{"code": 2003, "message": "Requests rate limit exceeded"}]},
            "requests",
            None,
            None,
        ),
    ],
)
def test_an_answer_names_axis_limit_and_wait(
    body: dict[str, object], axis: Axis, hint: AxisHint | None, wait_ms: int | None
) -> None:
    outcome = refusal("openai", 429, {}, json.dumps(body).encode(), now_ms=NOW_MS)
    assert isinstance(outcome, RateLimited)
    assert outcome.hints is not None
    assert outcome.hints.exhausted == axis
    assert outcome.hints.axes.get(axis) == hint
    assert outcome.retry_after_ms == wait_ms


@pytest.mark.parametrize(
    ("headers", "wait_ms"),
    [
        ({"retry-after": "7"}, 7_000),
        ({"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "3s"}, 3_000),
    ],
)
def test_headers_go_before_a_sentence(headers: dict[str, str], wait_ms: int) -> None:
    body = {"error": {"message": "Rate limit reached on tokens per min. Please try again in 19.7s."}}
    outcome = refusal("openai", 429, headers, json.dumps(body).encode(), now_ms=NOW_MS)
    assert isinstance(outcome, RateLimited)
    assert outcome.retry_after_ms == wait_ms


WORDS = st.sampled_from(
    [
        *(
            "tokens",
            "requests",
            "per",
            "min",
            "day",
            "TPM",
            "RPM",
            "limit",
            "Limit:",
            "of",
            "max",
            "concurrency",
            "at",
        ),
        *(
            "(TPM):",
            "1",
            "30,000",
            "0",
            "0.0",
            "999999999999999",
            "rate",
            "too many",
            "try again in",
            "5s",
            "1h",
            "/",
        ),
    ]
)


@given(message=st.text(max_size=200) | st.lists(WORDS, max_size=60).map(" ".join))
def test_no_sentence_raises_or_names_what_cannot_be(message: str) -> None:
    found, wait_ms = named_limit(message), wait_in_words_ms(message, NOW_MS)
    assert found is None or found.limit is None or 0 < found.limit <= 60 * 1e12
    assert wait_ms is None or 0 <= wait_ms <= 60 * MINUTE_MS


@pytest.mark.parametrize(
    "part", ["request ", "1h", "limit ", "1,", "concurrent ", "tokens per ", "try again in 1m"]
)
def test_of_a_long_sentence_the_beginning_is_read(part: str) -> None:
    text = part * 100_000
    assert named_limit(text) == named_limit(text[:2_000])
    assert wait_in_words_ms(text, NOW_MS) == wait_in_words_ms(text[:2_000], NOW_MS)
