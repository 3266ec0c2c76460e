"""Numbers and resets in headers: every form in which they are seen, and nothing absurd."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane_workers.providers.errors import retry_after
from fairlane_workers.providers.limits.amounts import LONGEST_MS, MOST, number, reset_ms

NOW_MS = 1_792_567_680_123  # Wed, 21 Oct 2026 07:28:00.123 GMT


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("6m0s", 360_000),
        ("2m59.56s", 179_560),
        ("12ms", 12),
        ("1s", 1_000),
        ("7.66s", 7_660),
        ("0s", 0),
        ("0.5ms", 1),
        ("250us", 1),
        ("1h0m0s", 3_600_000),
        ("1d2h", 93_600_000),
        (" 1m30s ", 90_000),
        ("60", 60_000),
        ("0", 0),
        ("33011.382867", 33_011_383),
        ("1792567690", 9_877),
        ("1792567690.5", 10_377),
        ("1792567690123", 10_000),
        ("2026-10-21T07:28:20Z", 19_877),
        ("2026-10-21T09:28:20.5+02:00", 20_377),
        ("Wed, 21 Oct 2026 07:28:20 GMT", 19_877),
        ("2026-10-21T07:27:40Z", 0),  # it passed while the provider answered
        ("1792567000", 0),
    ],
)
def test_every_form_of_a_reset_is_a_duration(text: str, expected_ms: int) -> None:
    assert reset_ms(text, NOW_MS) == expected_ms


@pytest.mark.parametrize(
    "text",
    [
        *(None, "", "s", "-1", "-5s", "1x", "1s1m", "1 m", "soon", "nan", "9" * 14, "999999999s", "400d"),
        *("2015-10-21T07:28:20Z", "1792563000", "2099-10-21T07:28:20Z", "٦m", "1..5s", "9" * 400 + "s"),
    ],
)
def test_a_reset_that_is_long_past_negative_absurd_or_unreadable_says_nothing(text: str | None) -> None:
    assert reset_ms(text, NOW_MS) is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        *(("0", 0), ("40000", 40_000), (" 7 ", 7), ("99.5", 99.5), ("-1", None), ("", None), (None, None)),
        *(("nan", None), ("inf", None), ("1e3", None), ("1_000", None), ("40,000", None), ("9" * 14, None)),
        *(("٦", None), ("²", None)),
    ],
)
def test_a_number_is_a_plain_count_or_nothing(text: str | None, expected: float | None) -> None:
    assert number(text) == expected


@given(
    text=st.text(max_size=40)
    | st.text("0123456789.dhmsuµ-+:TZ ", max_size=30)
    | st.datetimes().map(lambda moment: moment.isoformat() + "Z")
)
def test_no_text_raises_or_leaves_the_bounds(text: str) -> None:
    count, reset = number(text), reset_ms(text, NOW_MS)
    assert count is None or 0 <= count <= MOST
    assert reset is None or 0 <= reset <= LONGEST_MS


@given(milliseconds=st.integers(0, LONGEST_MS))
def test_a_duration_is_read_as_it_was_written(milliseconds: int) -> None:
    minutes, rest = divmod(milliseconds, 60_000)
    assert reset_ms(f"{minutes}m{rest / 1000:.3f}s", NOW_MS) == milliseconds
    assert reset_ms(f"{milliseconds}ms", NOW_MS) == milliseconds


def test_a_duration_that_many_answers_share_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed = list[str]()

    class Counted:
        def fullmatch(self, text: str) -> re.Match[str] | None:
            parsed.append(text)
            return duration.fullmatch(text)

    duration = retry_after._DURATION
    monkeypatch.setattr(retry_after, "_DURATION", Counted())
    assert [reset_ms("3m41.25s", NOW_MS + passed) for passed in range(3)] == [221_250] * 3
    assert parsed == ["3m41.25s"]
