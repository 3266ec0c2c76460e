"""Labels keep few values, whatever anybody is called."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fairlane.telemetry.metrics_server import OTHER, LabelValues


@given(st.lists(st.text(max_size=5)), st.integers(1, 5))
def test_there_are_never_more_values_than_said_and_one(names: list[str], most: int) -> None:
    values = LabelValues(most)
    shown = {values.of(name) for name in names}
    assert len(shown) <= most + 1
    assert shown <= {(name,) for name in names} | {(OTHER,)}


def test_the_first_values_keep_their_labels() -> None:
    values = LabelValues(2)
    assert [values.of(name) for name in ("a", "b", "c", "a", "c")] == [
        ("a",),
        ("b",),
        (OTHER,),
        ("a",),
        (OTHER,),
    ]
    assert values.known() == [("a",), ("b",)]


def test_a_pair_is_shown_whole_or_not_at_all() -> None:
    values = LabelValues(1)
    assert values.of("lane", "team") == ("lane", "team")
    assert values.of("lane", "another") == (OTHER, OTHER)
