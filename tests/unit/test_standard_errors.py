"""Standard errors: items of one row are one observation, in whatever order they come."""

from __future__ import annotations

import math
import random
from fractions import Fraction
from itertools import pairwise
from statistics import fmean, stdev
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.apps.report.gathering import Gathering
from fairlane.client.views.tally import summarise
from fairlane.export.moments import Moments, OpenRows
from fairlane.model.job import JobState
from fairlane.model.record import Record
from fairlane.model.run import RunState
from fairlane.model.run_status import Scores
from tests.support.records import make_record, spec_of

values = st.floats(-1e6, 1e6) | st.none()


@st.composite
def tables(draw: st.DrawFn) -> list[list[float | None]]:
    """Rows, each with as many scores, some of which are missing."""
    width = draw(st.integers(1, 4))
    return draw(st.lists(st.lists(values, min_size=width, max_size=width), min_size=1, max_size=8))


def clustered(table: list[list[float | None]]) -> float | None:
    """The formula of Miller (2024) as it stands there, times G / (G - 1)."""
    rows = [found for row in table if (found := [each for each in row if each is not None])]
    if len(rows) < 2:
        return None
    whole = [each for row in rows for each in row]
    mean = math.fsum(whole) / len(whole)
    squares = math.fsum(math.fsum(each - mean for each in row) ** 2 for row in rows)
    return math.sqrt(len(rows) / (len(rows) - 1) * squares) / len(whole)


def summed(table: list[list[float | None]], order: list[int]) -> Scores:
    moments, rows, width = Moments(), OpenRows(len(table[0])), len(table[0])
    for item in order:
        value = table[item // width][item % width]
        rows.add(item, [] if value is None else [(moments, value)])
    return moments.scores(len(order), rows.of(moments))


@given(tables(), st.randoms(use_true_random=False))
def test_the_standard_error_is_that_over_rows_in_any_order(
    table: list[list[float | None]], rng: random.Random
) -> None:
    order = list(range(len(table) * len(table[0])))
    expected = clustered(table)
    for each in (order, rng.sample(order, len(order))):
        found = summed(table, each)
        assert found.rows == sum(any(value is not None for value in row) for row in table)
        if expected is None:
            assert found.standard_error is None
        else:
            assert found.standard_error == pytest.approx(expected, rel=1e-6, abs=1e-6)


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=30))
def test_with_one_item_a_row_it_is_the_plain_one(scores: list[float]) -> None:
    found = summed([[each] for each in scores], list(range(len(scores))))
    assert found.mean == pytest.approx(fmean(scores), abs=1e-6)
    assert found.standard_error == pytest.approx(stdev(scores) / math.sqrt(len(scores)), rel=1e-6, abs=1e-6)


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=20), st.integers(1, 3))
def test_no_scores_make_a_number_that_is_infinite(scores: list[float], width: int) -> None:
    padded = [*scores, *[None] * (-len(scores) % width)]
    table: list[list[float | None]] = [padded[at : at + width] for at in range(0, len(padded), width)]
    found = summed(table, list(range(len(padded))))
    assert math.isfinite(found.mean or 0.0)
    assert found.standard_error is None or math.isfinite(found.standard_error)


def test_repeating_a_row_does_not_make_its_score_more_certain() -> None:
    once: list[list[float | None]] = [[0.0], [1.0], [1.0], [0.0], [1.0]]
    errors = [summed([row * times for row in once], list(range(5 * times))) for times in (1, 2, 20)]
    assert all(one.standard_error == pytest.approx(other.standard_error) for one, other in pairwise(errors))
    assert [each.of_rows for each in errors] == ["5", "10 of 5 rows", "100 of 5 rows"]


def test_items_in_order_leave_one_row_open() -> None:
    moments, rows = Moments(), OpenRows(3)
    for item in range(300):
        rows.add(item, [(moments, float(item))])
        assert len(rows.of(moments)) <= 1
    assert rows.of(moments) == []


def records(models: int, repetitions: int) -> tuple[Any, list[Record]]:
    names = tuple(f"sim:m{number}" for number in range(models))
    spec = spec_of(models=names, repetitions=repetitions)
    made = [
        make_record(
            (row * models + model) * repetitions + repetition,
            model=name,
            repetition=repetition,
            scores={"s": float(row % 2)},
        )
        for row in range(10)
        for model, name in enumerate(names)
        for repetition in range(repetitions)
    ]
    return spec, made


def test_a_summary_and_a_report_count_rows() -> None:
    spec, made = records(models=2, repetitions=10)
    summary = summarise(spec, RunState.COMPLETED, made, {})
    by_rows = stdev([0.0, 1.0] * 5) / math.sqrt(10)
    for found in (summary.scores["s"], *(each["s"] for each in summary.scores_by_model.values())):
        assert found.standard_error == pytest.approx(by_rows)
        assert found.rows == 10
    gathering = Gathering(items_per_row=spec.cells_per_row)
    list(gathering.passing(made))
    for cell in gathering.cells.values():
        assert gathering.mean(cell, "s") == pytest.approx((0.5, by_rows))


def test_an_invalid_item_ends_its_row_too() -> None:
    spec, made = records(models=1, repetitions=2)
    made[0] = make_record(0, state=JobState.INVALID, output=None, error="no field", scores={"s": None})
    found = summarise(spec, RunState.COMPLETED, made, {}).scores["s"]
    assert (found.count, found.missing, found.rows) == (19, 1, 10)


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=20), st.data())
def test_a_mean_is_the_float_nearest_to_the_exact_one_in_any_order(
    found: list[float], data: st.DataObject
) -> None:
    exact = float(sum(map(Fraction, found)) / len(found))
    for each in (found, data.draw(st.permutations(found))):
        moments = Moments()
        for value in each:
            moments.add(value)
            moments.end_row(1, value)
        assert moments.scores(len(each)).mean == exact


@given(st.lists(st.sampled_from([0.0, 0.1, 1.0]), min_size=2, max_size=6), st.data())
def test_rows_with_the_same_scores_in_another_order_have_no_spread(
    row: list[float], data: st.DataObject
) -> None:
    table: list[list[float | None]] = [[*row], list(data.draw(st.permutations(row)))]
    assert summed(table, list(range(2 * len(row)))).standard_error == 0
