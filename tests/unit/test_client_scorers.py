"""Plain callables as evaluators: by name on the workers, or in the process that reads the records."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fairlane import exact_match, scorer
from fairlane.core.errors import SubmissionError
from fairlane.model.evaluators import FunctionScorer
from fairlane.model.job import JobState
from tests.support.stage import Stage


def is_short(output: str, row: dict[str, Any]) -> bool:
    """Of a module, so that workers can import it."""
    return len(output) < row["limit"]


def submitted(stage: Stage, evaluators: list[Any], count: int = 1) -> Any:
    rows = [{"limit": 10 * n} for n in range(count)]
    run = stage.client.submit(rows, "{{ limit }}", model="sim:fast", evaluators=evaluators)
    stage.admit()
    return run


def test_a_function_of_a_module_is_scored_by_workers_under_its_name(stage: Stage) -> None:
    run = submitted(stage, [is_short])
    (sent,) = stage.spec(run.id).evaluators
    assert isinstance(sent, FunctionScorer)
    assert (sent.name, sent.function) == ("is_short", f"{__name__}:is_short")
    assert scorer(is_short, name="brief", lane="own").name == "brief"


@pytest.mark.parametrize(
    "function",
    [lambda output: 1, functools.partial(is_short, row={}), str.upper, dict, [].append],
    ids=["lambda", "partial", "method", "class", "bound"],
)
def test_a_function_that_workers_cannot_import_is_refused_with_the_way_out(
    stage: Stage, function: Any
) -> None:
    with pytest.raises(SubmissionError, match="scorer") as caught:
        submitted(stage, [function])
    assert 'where="client"' in caught.value.remedy


def test_a_scorer_of_the_client_scores_what_is_read_and_is_not_submitted(stage: Stage) -> None:
    mine = [
        scorer(lambda output: len(output), name="length", where="client"),
        scorer(is_short, where="client"),
        scorer(lambda row: np.float64(row["limit"]), name="numpy", where="client"),
        scorer(lambda output: 1 / 0, name="broken", where="client"),
        scorer(lambda output: "high", name="words", where="client"),
    ]
    run = submitted(stage, [exact_match("limit"), *mine], 2)
    assert [each.name for each in stage.spec(run.id).evaluators] == ["exact_match"]
    stage.answer(run.id, 1, scores={"exact_match": 1.0})
    stage.answer(run.id, 1, state=JobState.FAILED, error="down", output=None)
    first, second = run.results()
    assert first.scores == {
        "exact_match": 1.0,
        "length": 8.0,
        "is_short": 0.0,
        "numpy": 0.0,
        "broken": None,
        "words": None,
    }
    assert first.score_errors["broken"] == "ZeroDivisionError: division by zero"
    assert "a finite number" in first.score_errors["words"]
    assert second.scores["length"] is None
    assert "length" not in second.score_errors
    assert {record.item for record in run.stream()} == {0, 1}
    assert run.summary().scores["length"].mean == 8.0
    assert next(stage.client.run(run.id).results()).scores == {"exact_match": 1.0}
    again = stage.client.run(run.id).with_scorers(*mine)
    assert next(again.results()).scores == first.scores


@pytest.mark.parametrize(
    ("options", "shown"),
    [
        ({"function": "app.scorers:length", "where": "client"}, "no callable"),
        ({"function": is_short, "where": "moon"}, "neither"),
        ({"function": is_short, "where": "client", "lane": "own"}, "lanes"),
        ({"function": is_short, "where": "client", "level": "session"}, "sessions"),
        ({"function": is_short, "where": "client", "name": "not a name"}, "name"),
    ],
)
def test_a_wrong_scorer_is_refused(options: dict[str, Any], shown: str) -> None:
    with pytest.raises(SubmissionError, match=shown):
        scorer(**options)


def test_an_async_scorer_is_the_workers() -> None:
    async def slow(output: str) -> float:
        return 1.0

    with pytest.raises(SubmissionError, match="async"):
        scorer(slow, where="client")


def test_two_scores_of_one_name_are_refused_wherever_they_are_computed(stage: Stage) -> None:
    twin = scorer(lambda output: 1, name="exact_match", where="client")
    with pytest.raises(SubmissionError, match="two evaluators have this name"):
        submitted(stage, [exact_match("limit"), twin])
    assert list(stage.client.runs()) == []


def test_a_continued_run_and_rows_that_follow_are_scored_by_the_client_too(stage: Stage) -> None:
    length = scorer(lambda output: len(output), name="length", where="client")
    run = submitted(stage, [exact_match("limit")])
    stage.answer(run.id, 1, scores={"exact_match": 1.0})
    again = stage.client.continue_run(run.id, evaluators=[exact_match("limit"), length])
    assert [each.name for each in again.spec.evaluators] == ["exact_match"]
    assert again._scorers == (length,)
    with stage.client.open("{{ limit }}", model="sim:fast", evaluators=[length]) as rows:
        rows.write({"limit": 1})
    assert rows.run._scorers == (length,)


def test_a_report_shows_what_the_client_scored(stage: Stage, tmp_path: Path) -> None:
    length = scorer(lambda output: len(output), name="length", where="client")
    run = submitted(stage, [exact_match("limit"), length])
    stage.answer(run.id, run.status().items, scores={"exact_match": 1.0})
    run.report(tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text()
    assert "<h3>length</h3>" in page
    assert '<th scope="col" class="n">length</th>' in page
