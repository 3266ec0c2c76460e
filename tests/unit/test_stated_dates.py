"""A message that says when an account may call again is believed, to the minute and in UTC."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.model.outcome import AccessDenied
from fairlane_workers.providers.errors.retry_after import stated_date_ms
from tests.support.classified import answer_at
from tests.support.provider_presets import connection

NOW = datetime(2026, 11, 29, 12, tzinfo=UTC)
NOW_MS = round(NOW.timestamp() * 1000)
CAPPED = "You have reached your specified API usage limits. You will regain access on {}."


@given(st.integers(1, 100 * 24 * 60 - 1))
def test_a_date_to_come_is_how_long_to_wait(minutes: int) -> None:
    date = NOW + timedelta(minutes=minutes)
    said = CAPPED.format(f"{date:%Y-%m-%d} at {date:%H:%M} UTC")
    assert stated_date_ms(said, NOW_MS) == minutes * 60_000


@pytest.mark.parametrize(
    "date",
    [
        "2026-11-29 at 11:59 UTC",
        "2027-11-29 at 00:00 UTC",
        "2026-13-01 at 00:00 UTC",
        "2026-12-01 at 25:00 UTC",
        "2026-12-01 at 00:00",
        "Monday",
    ],
)
def test_a_date_that_is_past_far_unreadable_or_without_a_zone_is_none(date: str) -> None:
    assert stated_date_ms(CAPPED.format(date), NOW_MS) is None


@given(st.text(max_size=300) | st.none())
def test_any_text_is_read(text: str | None) -> None:
    assert stated_date_ms(text, NOW_MS) is None or NOW_MS


def test_an_account_without_money_says_when_it_may_call_again() -> None:
    body = json.dumps({"error": {"message": CAPPED.format("2026-12-01 at 00:00 UTC")}}).encode()
    outcome = answer_at(connection("anthropic"), 400, {}, body, now_ms=NOW_MS)
    assert isinstance(outcome, AccessDenied)
    assert outcome.retry_after_ms == 36 * 3_600_000


@pytest.mark.parametrize("off_ms", [-600_000, 0, 600_000])
@pytest.mark.parametrize(
    ("status", "message", "wait_ms"),
    [
        (400, CAPPED.format("2026-12-01 at 00:00 UTC"), 36 * 3_600_000),
        (503, "Overloaded. Try again at 2026-11-29T12:20:00Z.", 1_200_000),
        (429, "Rate limit reached. Try again at 2026-11-29T12:20:00Z.", 1_200_000),
    ],
)
def test_a_workers_clock_does_not_change_what_a_provider_says(
    status: int, message: str, wait_ms: int, off_ms: int
) -> None:
    body = json.dumps({"error": {"message": message}}).encode()
    date = {"date": format_datetime(NOW, usegmt=True)}
    outcome = answer_at(connection("anthropic"), status, date, body, now_ms=NOW_MS + off_ms)
    assert getattr(outcome, "retry_after_ms", None) == wait_ms
