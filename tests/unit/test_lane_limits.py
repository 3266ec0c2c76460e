"""Limits of lanes as Redis has them: what an earlier version has written is read."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fairlane.core.section import MOST_COUNT
from fairlane.model.lane import LaneLimits
from fairlane.store.write.lanes.lane_view import read_limits, stored_limit

RATES = st.floats(0, allow_nan=False, allow_infinity=False)


@given(RATES)
def test_a_stored_rate_beyond_the_most_is_the_most(rate: float) -> None:
    stored = dict([stored_limit("requests_per_minute", rate), stored_limit("exact", True)])
    assert read_limits(stored) == LaneLimits(requests_per_minute=min(rate, MOST_COUNT), exact=True)


@given(st.integers(1, 10**30))
def test_a_stored_number_of_calls_beyond_the_most_is_the_most(calls: int) -> None:
    assert read_limits({"max_concurrency": str(calls)}).max_concurrency == min(calls, MOST_COUNT)


def test_words_are_read_as_they_are() -> None:
    assert read_limits({"charge": "reserved", "later": "9"}) == LaneLimits(charge="reserved")
