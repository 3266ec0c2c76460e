"""Retry-After is read in every form in which it is seen."""

from __future__ import annotations

from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane_workers.providers.errors.retry_after import retry_after_ms

NOW_MS = 1_792_567_680_123  # Wed, 21 Oct 2026 07:28:00.123 GMT


@pytest.mark.parametrize(
    ("value", "expected_ms"),
    [
        ("1", 1_000),
        ("0", 0),
        ("  20 ", 20_000),
        ("1.5", 1_500),
        ("0.0001", 1),
        ("7.66", 7_660),
        ("1.1", 1_100),
        ("0.021", 21),
        ("1.", 1_000),
        ("86400", 86_400_000),
        ("Wed, 21 Oct 2026 07:28:20 GMT", 19_877),
        ("Wednesday, 21-Oct-26 07:28:20 GMT", 19_877),
        ("Wed Oct 21 07:28:20 2026", 19_877),
        ("2026-10-21T07:28:20Z", 19_877),
        ("2026-10-21T09:28:20.5+02:00", 20_377),
        ("1792567690", 9_877),
        ("1792567690.5", 10_377),
        ("1792567690123", 10_000),
    ],
)
def test_every_form_of_retry_after_is_a_duration(value: str, expected_ms: int) -> None:
    assert retry_after_ms({"retry-after": value}, NOW_MS) == expected_ms


@pytest.mark.parametrize(
    "value",
    [
        "",
        "-1",
        "-0.5",
        "soon",
        "nan",
        "inf",
        "1e3",
        "1_000",
        "0x10",
        "1,5",
        "\u0661",
        "1 2",
        "9" * 15,
        "9" * 400,
        "1792567680000",
        "Wed, 21 Oct 2015 07:28:00 GMT",
        "Wed, 99 Oct 2026 07:28:00 GMT",
        "2026-99-99T00:00:00Z",
    ],
)
def test_what_is_past_negative_or_unreadable_says_nothing(value: str) -> None:
    assert retry_after_ms({"retry-after": value}, NOW_MS) is None
    assert retry_after_ms({"retry-after-ms": value}, NOW_MS) is None


@pytest.mark.parametrize(
    ("headers", "expected_ms"),
    [
        ({}, None),
        ({"retry-after-ms": "250"}, 250),
        ({"x-ms-retry-after-ms": "250"}, 250),
        ({"x-amz-retry-after": "250"}, 250),
        ({"x-amz-retry-after": "250", "retry-after": "1"}, 250),
        ({"retry-after-ms": "20.4"}, 21),
        ({"retry-after-ms": "1792567690123"}, 10_000),
        ({"retry-after-ms": "250", "retry-after": "1"}, 250),
        ({"retry-after-ms": "junk", "retry-after": "1"}, 1_000),
        ({"retry-after-ms": "250", "retry-after": "junk"}, 250),
        ({"retry-after-ms": "0"}, 0),
        ({"retry-after-ms": "0", "retry-after": "junk"}, 0),
    ],
)
def test_milliseconds_are_the_finer_statement(headers: dict[str, str], expected_ms: int | None) -> None:
    assert retry_after_ms(headers, NOW_MS) == expected_ms


@pytest.mark.parametrize(
    ("value", "expected_ms"),
    [
        ("5s", 5_000),
        ("1m30s", 90_000),
        ("500ms", 500),
        ("10 seconds", 10_000),
        ("2 min", 120_000),
        ("1h", 3_600_000),
        ("1.5S", 1_500),
        ("3, 3", 3_000),
        ("3, 20", 20_000),
        ("30s, 2", 30_000),
        ("junk, 2", 2_000),
        ("Wed, 21 Oct 2026 07:28:20 GMT, 3", 19_877),
        ("3, Wed, 21 Oct 2026 07:28:20 GMT", 19_877),
        ("Wed, 21 Oct 2015 07:28:00 GMT, 4", 4_000),
    ],
)
def test_durations_have_units_and_the_longest_of_several_counts(value: str, expected_ms: int) -> None:
    assert retry_after_ms({"retry-after": value}, NOW_MS) == expected_ms


def test_of_several_milliseconds_the_longest_counts() -> None:
    assert retry_after_ms({"retry-after-ms": "250, 400"}, NOW_MS) == 400


@pytest.mark.parametrize("value", ["s", "5x", "5 s 3", "h1", "1s1m", "ms", "-5s", "5 apples", ", ", "1,5s"])
def test_what_only_looks_like_a_duration_says_nothing(value: str) -> None:
    assert retry_after_ms({"retry-after": value}, NOW_MS) is None


@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=5), st.sampled_from(["", "s", " seconds"]))
def test_the_longest_of_any_number_of_values_counts(waits_s: list[int], unit: str) -> None:
    header = ", ".join(f"{wait_s}{unit}" for wait_s in waits_s)
    assert retry_after_ms({"retry-after": header}, NOW_MS) == max(waits_s) * 1000


def test_epoch_seconds_in_the_past_say_nothing() -> None:
    assert retry_after_ms({"retry-after": "1792567000"}, NOW_MS) is None


def test_zero_milliseconds_do_not_undo_a_positive_retry_after() -> None:
    assert retry_after_ms({"retry-after-ms": "0", "retry-after": "1"}, NOW_MS) == 1_000


def test_a_date_is_a_date_and_not_a_number_of_seconds() -> None:
    assert retry_after_ms({"retry-after": "2026-10-21T07:29:00Z"}, NOW_MS) == 59_877


@given(skew_s=st.integers(-86_400, 86_400), wait_s=st.integers(0, 3_600))
def test_the_skew_of_our_clock_does_not_change_a_date_beside_its_own_now(skew_s: int, wait_s: int) -> None:
    then_s = NOW_MS // 1000
    headers = {
        "date": formatdate(then_s, usegmt=True),
        "retry-after": formatdate(then_s + wait_s, usegmt=True),
    }
    assert retry_after_ms(headers, NOW_MS + skew_s * 1000) == wait_s * 1000


@given(value=st.text(max_size=50), fine=st.text(max_size=50), date=st.text(max_size=50))
def test_no_header_raises_or_yields_what_is_not_a_duration(value: str, fine: str, date: str) -> None:
    read = retry_after_ms({"retry-after": value, "retry-after-ms": fine, "date": date}, NOW_MS)
    assert read is None or 0 <= read < 10**15


@given(milliseconds=st.integers(0, 10**9 - 1))
def test_a_fraction_of_a_second_is_rounded_up_and_never_by_more_than_one(milliseconds: int) -> None:
    assert retry_after_ms({"retry-after": f"{milliseconds / 1000:.3f}"}, NOW_MS) == milliseconds
    assert retry_after_ms({"retry-after": f"{milliseconds / 1000:.3f}1"}, NOW_MS) == milliseconds + 1
