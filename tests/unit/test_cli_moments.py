"""Times in words and in ISO 8601."""

from __future__ import annotations

from datetime import UTC, timedelta, timezone

import pytest

from fairlane.cli.output import ago, at_local_time, iso
from fairlane.core.clock import span, until
from fairlane.core.figures import took

NOW = 1_700_000_000_000


def test_a_time_is_written_in_utc_to_the_millisecond() -> None:
    assert iso(NOW + 45) == "2023-11-14T22:13:20.045Z"


def test_a_missing_moment_has_no_time() -> None:
    assert iso(None) is None
    assert ago(None, NOW) == "–"


@pytest.mark.parametrize(
    ("milliseconds", "words"),
    [
        (-5, "0 ms"),
        (850, "850 ms"),
        (59_999, "59 s"),
        (60_000, "1 min"),
        (7_199_000, "1 h"),
        (172_800_000, "2 d"),
    ],
)
def test_a_span_is_reported_in_its_largest_unit_rounded_down(milliseconds: int, words: str) -> None:
    assert span(milliseconds) == words


@pytest.mark.parametrize(
    ("milliseconds", "words"), [(42_340, "42.3 s"), (62_900, "1:02 min"), (3_723_000, "1:02:03")]
)
def test_how_long_something_took_is_reported_to_the_second(milliseconds: int, words: str) -> None:
    assert took(milliseconds) == words


@pytest.mark.parametrize(
    ("before_ms", "words"), [(0, "just now"), (999, "just now"), (-300, "just now"), (180_000, "3 min ago")]
)
def test_a_moment_is_reported_from_now(before_ms: int, words: str) -> None:
    assert ago(NOW - before_ms, NOW) == words


@pytest.mark.parametrize(
    ("milliseconds", "words"),
    [(-60_000, "now"), (999, "now"), (1000, "in 1 s"), (59 * 60_000, "in 59 min")],
)
def test_what_is_to_come_is_reported_by_how_long_it_takes(milliseconds: int, words: str) -> None:
    assert until(NOW + milliseconds, NOW) == words


def test_a_moment_of_another_day_is_reported_with_its_date() -> None:
    assert at_local_time(NOW + 1000, NOW, UTC) == "22:13:21"
    assert at_local_time(NOW + 7_200_000, NOW, UTC) == "2023-11-15 00:13:20"
    assert at_local_time(NOW, NOW, timezone(timedelta(hours=3))) == "01:13:20"
