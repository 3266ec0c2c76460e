"""Comparisons of runs, lanes as a client reads them, and the tables that notebooks show."""

from __future__ import annotations

import math
from typing import Any

import pytest

from fairlane import Comparison, LaneNotFound, Run, exact_match
from fairlane.client.views.html import MOST_ROWS, table
from fairlane.core.errors import SubmissionError
from fairlane.model.job import JobState
from tests.support.stage import Stage

NASTY = "<script>alert('&')</script>"


def finished(
    stage: Stage,
    scores: list[dict[str, float | None] | None],
    rows: list[dict[str, Any]] | None = None,
    **options: Any,
) -> Run:
    """A run that is over, with these scores by item; ``None`` for a failed one."""
    given = [{"q": n} for n in range(len(scores))] if rows is None else rows
    run = stage.client.submit(
        given,
        check=bool(given),
        **{"prompt": "{{ q }}", "model": "sim:fast", "evaluators": [exact_match("q")], **options},
    )
    stage.admit()
    for each in scores:
        if each is None:
            stage.answer(run.id, 1, state=JobState.FAILED, error=NASTY, output=None)
        else:
            stage.answer(run.id, 1, scores=each)
    return run


def scored(*values: float | None) -> list[dict[str, float | None] | None]:
    return [None if value is None else {"exact_match": value} for value in values]


def test_a_difference_is_the_second_run_s_score_minus_the_first_s_with_its_standard_error(
    stage: Stage,
) -> None:
    first = finished(stage, scored(0, 0, 1, 1), name="before")
    second = finished(stage, scored(1, 0, 1, 0.5), name="after")
    found = first.compare(second)
    difference = found.scores["exact_match"]
    mean = 0.5 / 4
    squares = sum((each - mean) ** 2 for each in (1, 0, 0, -0.5))
    assert (found.first, found.second, found.matched, found.left_out) == ("before", "after", 4, ())
    assert difference.mean == pytest.approx(mean)
    assert difference.standard_error == pytest.approx(math.sqrt(squares / 3 / 4))
    assert difference.interval == pytest.approx(
        (mean - 3.182446305284 * difference.standard_error, mean + 3.182446305284 * difference.standard_error)
    )
    assert (difference.better, difference.worse, difference.equal) == (1, 1, 2)
    assert (difference.first_mean, difference.second_mean) == (0.5, 0.625)


def test_items_are_matched_by_their_rows_not_by_their_numbers(stage: Stage) -> None:
    first = finished(stage, scored(0, 1, 0), [{"q": "a"}, {"q": "b"}, {"q": "gone"}])
    second = finished(stage, scored(1, 1, 1), [{"q": "b"}, {"q": "new"}, {"q": "a"}])
    found = first.compare(second)
    assert (found.matched, found.only_first, found.only_second) == (2, 1, 1)
    assert found.scores["exact_match"].mean == 0.5
    assert found.left_out == (
        f"Left out: 1 item of {first.id} alone.",
        f"Left out: 1 item of {second.id} alone.",
    )


def test_one_model_is_compared_with_another_and_several_with_themselves(stage: Stage) -> None:
    first = finished(stage, scored(0, 1), model="sim:fast")
    second = finished(stage, scored(1, 1), model="sim:judge")
    assert first.compare(second).matched_by == "Items are matched by the row's content and repetition."
    assert first.compare(second).matched == 2
    both = finished(
        stage, scored(0, 1), [{"q": 0}], model=None, models=["sim:fast", "sim:judge"], prompt="{{ q }}"
    )
    found = first.compare(both)
    assert found.matched_by == "Items are matched by the row's content and repetition and model."
    assert (found.matched, found.only_first, found.only_second) == (1, 1, 1)


def test_repetitions_of_a_row_are_one_observation_of_the_standard_error(stage: Stage) -> None:
    rows = [{"q": "a"}, {"q": "b"}]
    first = finished(stage, scored(0, 0, 0, 0), rows, repetitions=2)
    second = finished(stage, scored(1, 1, 0, 0), rows, repetitions=2)
    difference = first.compare(second).scores["exact_match"]
    assert (difference.pairs, difference.rows, difference.mean) == (4, 2, 0.5)
    assert difference.standard_error == pytest.approx(0.5)


def test_what_has_no_score_in_both_runs_is_stated(stage: Stage) -> None:
    first = finished(stage, scored(0, None, 1))
    second = finished(stage, [{"other": 1.0}, {"exact_match": 1.0}, {"exact_match": None}])
    found = first.compare(second)
    assert (found.scores["exact_match"].pairs, found.scores["exact_match"].missing) == (0, 3)
    assert found.scores["exact_match"].mean is None
    assert found.only_second_scores == ("other",)
    assert found.left_out == (
        "Left out of exact_match: 3 matched items without a score in both.",
        f"Only {second.id} has scores of other.",
    )
    assert found.to_dict()["scores"]["exact_match"]["missing"] == 3


def test_fields_may_identify_rows_and_one_that_no_row_has_is_refused(stage: Stage) -> None:
    first = finished(stage, scored(0, 1), [{"q": 1, "id": "a"}, {"q": 2, "id": "b"}])
    second = finished(
        stage, scored(1, 1), [{"q": 1, "id": "a", "hint": "x"}, {"q": 2, "id": "b", "hint": "y"}]
    )
    assert first.compare(second).matched == 0
    found = first.compare(second, by="id")
    assert (found.matched, found.scores["exact_match"].mean) == (2, 0.5)
    assert found.matched_by == "Items are matched by the row's id and repetition."
    with pytest.raises(SubmissionError, match="no row of the two runs has this field"):
        first.compare(second, by=["ident"])


def test_equal_rows_are_paired_in_their_order(stage: Stage) -> None:
    rows = [{"q": "a"}, {"q": "a"}]
    difference = finished(stage, scored(0, 1), rows).compare(finished(stage, scored(0, 1), rows))
    assert (difference.matched, difference.scores["exact_match"].equal) == (2, 2)


def test_lanes_are_read_with_what_limits_them(stage: Stage) -> None:
    run = stage.client.submit([{"q": 1}, {"q": 2}], "{{ q }}", model="sim:fast")
    stage.admit()
    stage.answer(run.id, 1)
    lanes = stage.client.lanes()
    assert [each.lane for each in lanes] == ["sim:fast", "sim:judge"]
    (fast,) = stage.client.lanes("sim:fast")
    assert (fast.granted, fast.succeeded, fast.queued, fast.rate_limits) == (1, 1, 1, 0)
    assert lanes.to_dicts()[0]["lane"] == "sim:fast"
    assert lanes[:1][0] == lanes[0]
    with pytest.raises(LaneNotFound):
        stage.client.lanes("sim:nosuch")


def test_a_notebook_s_tables_escape_every_text(stage: Stage) -> None:
    run = finished(stage, scored(0, None), name=NASTY)
    other = finished(stage, scored(0, None), name=f"{NASTY} again")
    shown = [run, run.summary(), run.compare(other), stage.client.lanes()]
    for each in shown:
        html = each._repr_html_()
        assert "<script" not in html
        assert "<table" in html
    assert "&lt;script&gt;" in run.summary()._repr_html_()
    assert "1 failed" in run.summary()._repr_html_()


def test_a_run_that_has_expired_is_shown_with_the_reason(stage: Stage) -> None:
    run = finished(stage, scored(1))
    for key in stage.redis.scan_iter(f"*{run.id}*"):
        stage.redis.delete(key)
    assert "no run" in run._repr_html_()


def test_long_tables_say_how_many_rows_they_leave_out() -> None:
    html = table("many", ["n"], [[n] for n in range(MOST_ROWS + 3)])
    assert html.count("<tr>") == 1 + MOST_ROWS
    assert "and 3 more" in html


def test_a_comparison_without_scores_is_empty(stage: Stage) -> None:
    found = finished(stage, [], []).compare(finished(stage, [], []))
    assert isinstance(found, Comparison)
    assert (found.matched, dict(found.scores)) == (0, {})
