"""Comparing runs: the interval, the three means, and ids that are numbers in one and texts in the other."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.client.views.comparison import Difference, compare_runs
from fairlane.client.views.student import critical, within
from fairlane.model.record import Record
from fairlane.model.run import RunSpec
from tests.support.records import make_record, spec_of

scores = st.floats(-1e3, 1e3) | st.none()
finite = st.floats(allow_nan=False, allow_infinity=False)
pairs = st.tuples(st.integers(0, 4), scores, scores)


@dataclass
class Scored:
    """A run that has ended."""

    id: str
    records: Sequence[Record]

    @property
    def name(self) -> str:
        return self.id

    @property
    def spec(self) -> RunSpec | None:
        return spec_of(run=self.id)

    def results(self) -> Iterator[Record]:
        return iter(self.records)


def run(name: str, rows: Sequence[dict[str, Any]], values: Sequence[float | None]) -> Scored:
    made = [
        make_record(n, row=row, scores={"s": value})
        for n, (row, value) in enumerate(zip(rows, values, strict=True))
    ]
    return Scored(name, made)


def compared(found: Sequence[tuple[int, float | None, float | None]]) -> Difference:
    rows = [{"q": row} for row, _, _ in found]
    before, after = run("a", rows, [each[1] for each in found]), run("b", rows, [each[2] for each in found])
    return compare_runs(before, after).scores["s"]


@given(st.lists(pairs, min_size=1, max_size=20))
def test_the_change_is_the_second_mean_minus_the_first(found: list[tuple[int, Any, Any]]) -> None:
    each = compared(found)
    if each.mean is None:
        assert (each.first_mean, each.second_mean, each.interval) == (None, None, None)
        return
    assert each.first_mean is not None
    assert each.second_mean is not None
    assert each.second_mean - each.first_mean == pytest.approx(each.mean, abs=1e-9)
    assert each.pairs == each.better + each.worse + each.equal


@given(st.lists(st.tuples(st.integers(0, 2), finite, finite), min_size=1, max_size=9))
def test_scores_at_the_ends_of_a_float_are_compared(found: list[tuple[int, float, float]]) -> None:
    each = compared(found)
    rounding = max(abs(score) for _, *both in found for score in both) * 1e-12
    assert each.first_mean == pytest.approx(sum(_means(found, 1)), abs=rounding)
    assert each.second_mean == pytest.approx(sum(_means(found, 2)), abs=rounding)
    figures = (each.first_mean, each.second_mean, each.mean, each.standard_error)
    assert all(figure is None or math.isfinite(figure) for figure in figures)


def _means(found: list[tuple[int, float, float]], place: int) -> Iterator[float]:
    """Parts of the mean over rows of their means, none of which is beyond a float."""
    rows = Counter(row for row, *_ in found)
    for each in found:
        yield each[place] / rows[each[0]] / len(rows)


def test_rows_with_unequal_numbers_of_pairs_have_equal_weight() -> None:
    each = compared([(0, 0.0, 1.0), (0, 0.0, 1.0), (1, 1.0, 0.0), (1, None, 0.0)])
    assert (each.first_mean, each.second_mean, each.mean) == (0.5, 0.5, 0.0)


@pytest.mark.parametrize(
    ("degrees", "t"),  # of every textbook's table
    [(1, 12.706), (2, 4.303), (3, 3.182), (4, 2.776), (9, 2.262), (29, 2.045), (60, 2.000), (120, 1.980)],
)
def test_the_interval_has_as_many_standard_errors_as_students_table(degrees: int, t: float) -> None:
    assert critical(degrees) == pytest.approx(t, abs=6e-4)
    found = Difference(0, degrees + 1, 0, 0.0, 1.0, 1.0, 0.5, 0, 0, 0)
    assert found.interval == pytest.approx((1 - t / 2, 1 + t / 2), abs=1e-3)


@given(st.integers(1, 400))
def test_the_critical_value_encloses_95_percent_and_falls(degrees: int) -> None:
    assert within(critical(degrees), degrees) == pytest.approx(0.95, abs=1e-9)
    assert 1.959 < critical(degrees + 1) < critical(degrees)


@pytest.mark.parametrize("rows", [2, 3, 5, 10])
def test_of_many_comparisons_95_percent_have_the_truth_within(rows: int) -> None:
    rng, times = random.Random(1), 1000
    hits = 0
    for _ in range(times):
        interval = compared([(row, 0.0, rng.gauss(1.0, 1.0)) for row in range(rows)]).interval
        assert interval is not None
        hits += interval[0] <= 1.0 <= interval[1]
    assert hits / times == pytest.approx(0.95, abs=0.025)


@given(st.lists(st.integers(-50, 50), min_size=1, max_size=10, unique=True))
def test_ids_of_other_types_match_as_texts_where_none_are_equal(ids: list[int]) -> None:
    numbers = run("a", [{"id": each, "of": "jsonl"} for each in ids], [0.0] * len(ids))
    floats = run("c", [{"id": float(each)} for each in ids], [1.0] * len(ids))
    texts = run("b", [{"id": str(each), "of": "csv"} for each in reversed(ids)], [1.0] * len(ids))
    for first in (numbers, floats):
        found = compare_runs(first, texts, by="id")
        assert (found.matched, found.only_first, found.only_second) == (len(ids), 0, 0)
        assert "as text" in found.matched_by


def test_ids_that_match_as_they_are_stay_apart_from_texts() -> None:
    first = run("a", [{"id": 1}, {"id": "1"}], [0.0, 1.0])
    found = compare_runs(first, run("b", [{"id": 1}, {"id": "1"}], [0.0, 1.0]), by="id")
    assert (found.matched, found.scores["s"].equal) == (2, 2)
    assert "as text" not in found.matched_by


def test_ids_that_nothing_matches_are_reported_as_before() -> None:
    found = compare_runs(run("a", [{"id": 1}], [0.0]), run("b", [{"id": "x"}], [0.0]), by="id")
    assert (found.matched, found.only_first, found.only_second) == (0, 1, 1)
    assert "as text" not in found.matched_by


@given(st.lists(st.sampled_from([0.0, 0.25, 1.0]), min_size=1, max_size=6), st.data())
def test_runs_with_the_same_scores_do_not_differ_in_whatever_order(
    row: list[float], data: st.DataObject
) -> None:
    other = data.draw(st.permutations(row))
    same = compared([(number, *pair) for number in range(2) for pair in zip(row, other, strict=True)])
    assert (same.mean, same.standard_error) == (0, 0)
    across = compared([(number, *pair) for number, pair in enumerate(zip(row, other, strict=True))])
    assert across.first_mean == across.second_mean
    assert across.mean == 0


@pytest.mark.parametrize("by", [[], (), iter(())])
def test_no_fields_are_all_fields(by: Any) -> None:
    rows = [{"q": number} for number in range(3)]
    before, after = run("a", rows, [0.0, 0.5, 1.0]), run("b", rows[::-1], [1.0, 0.5, 0.0])
    assert compare_runs(before, after, by).scores["s"].equal == 3


def test_fields_may_come_from_an_iterator() -> None:
    rows = [{"q": number, "r": 0} for number in range(3)]
    before, after = run("a", rows, [0.0, 0.5, 1.0]), run("b", rows[::-1], [1.0, 0.5, 0.0])
    assert compare_runs(before, after, iter(["q", "r"])).scores["s"].equal == 3  # type: ignore[arg-type]
