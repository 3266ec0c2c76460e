"""Verdicts: what is recorded of a finished job, its scores, and which judges come next."""

from __future__ import annotations

from typing import Any

import pytest

from fairlane.decision import Finish
from fairlane.evaluators.spec import Contains, ExactMatch, Judge
from fairlane.job import JobState, NetworkFailure, Outcome, Success, Usage
from fairlane.results import JudgeResult, TaskResult
from fairlane.run import Message, Plan, RunSpec, cell_of
from fairlane.store.attempts import Lesson, Over, Ready
from fairlane_workers.material import RunMaterial, Work
from fairlane_workers.verdict import judge_verdict, task_verdict

LANES = ("sim:judge", "sim:other")


def judge(name: str, template: str = "{{ output }}") -> Judge:
    return Judge(name=name, model="sim:judge", template=template, choices={"yes": 1.0, "no": 0.0})


def work(
    *evaluators: Any,
    row: dict[str, Any] | None = None,
    model: str = "sim:{{ lane }}",
    step: int = 0,
    item: int = 2,
) -> Work:
    """Item 2 of a run with these evaluators; ``step`` names its judge."""
    judges = [each for each in evaluators if isinstance(each, Judge)]
    spec = RunSpec(
        run="r1",
        team="search",
        name="",
        prompts=((Message(role="user", content="{{ q }}"),),),
        models=(model,),
        evaluators=tuple(evaluators),
        rows=10,
        page_rows=10,
        submitted_ms=0,
    )
    material = RunMaterial.of(Plan(spec=spec, judge_lanes=LANES[: len(judges)]))
    content = {"q": "1 + 1", "answer": "2", "lane": "fast"} if row is None else row
    if step == 0:
        return Work(material, item, cell_of(spec, item), content)
    return Work(
        material, item, cell_of(spec, item), content, judges[step - 1], material.judges[step - 1], "an output"
    )


def finished(error: str | None = None, attempts: int = 2) -> Finish:
    return Finish(Lesson("ok"), attempts, error)


SUCCESS = Success("2", Usage(8, 1))


def test_a_task_is_recorded_with_its_output_usage_and_scores() -> None:
    scorers = (ExactMatch(name="exact", expected="answer"), Contains(name="has", text="3"))

    verdict = task_verdict(work(*scorers), SUCCESS, finished(), 450)

    result = TaskResult.from_json(verdict.payload)
    assert (verdict.state, result.state, result.output) == (JobState.SUCCEEDED, JobState.SUCCEEDED, "2")
    assert (result.usage, result.attempts, result.latency_ms) == (Usage(8, 1), 2, 450)
    assert result.model == "sim:fast"
    assert result.scores == {"exact": 1.0, "has": 0.0}
    assert verdict.follow == ()


def test_a_score_that_cannot_be_had_is_recorded_with_its_reason() -> None:
    verdict = task_verdict(work(ExactMatch(name="exact", expected="missing")), SUCCESS, finished(), 1)

    result = TaskResult.from_json(verdict.payload)
    assert result.scores["exact"] is None
    assert "missing" in result.score_errors["exact"]
    assert verdict.state is JobState.SUCCEEDED


def test_a_success_makes_its_judges_ready_each_on_its_lane() -> None:
    verdict = task_verdict(work(judge("first"), judge("second", "x" * 4000)), SUCCESS, finished(), 1)

    first, second = verdict.follow
    assert isinstance(first, Ready)
    assert isinstance(second, Ready)
    assert [(step.job, step.lane) for step in (first, second)] == [(7, "sim:judge"), (8, "sim:other")]
    assert second.entry.tokens.input > first.entry.tokens.input > 0
    # Kinds follow those of the models, of which there is one.
    assert [step.entry.kind for step in (first, second)] == [1, 2]


def test_a_judge_that_cannot_be_rendered_is_invalid_and_the_next_is_ready() -> None:
    verdict = task_verdict(work(judge("bad", "{{ nothing }}"), judge("good")), SUCCESS, finished(), 1)

    bad, good = verdict.follow
    assert isinstance(bad, Over)
    assert (bad.job, bad.state, bad.lane) == (7, JobState.INVALID, "sim:judge")
    assert "nothing" in str(JudgeResult.from_json(bad.payload).error)
    assert isinstance(good, Ready)


@pytest.mark.parametrize("outcome", [NetworkFailure("reset"), SUCCESS])
def test_a_failed_task_skips_its_judges(outcome: Outcome) -> None:
    verdict = task_verdict(work(judge("first"), judge("second")), outcome, finished("reset"), 9)

    result = TaskResult.from_json(verdict.payload)
    assert (verdict.state, result.error, result.attempts, result.output) == (
        JobState.FAILED,
        "reset",
        2,
        None,
    )
    assert [(step.job, step.lane) for step in verdict.follow] == [(7, "sim:judge"), (8, "sim:other")]
    assert {step.state for step in verdict.follow if isinstance(step, Over)} == {JobState.SKIPPED}


def test_a_task_whose_row_names_no_model_any_more_is_recorded_without_one() -> None:
    verdict = task_verdict(work(row={"q": 1}), NetworkFailure("x"), finished("x"), 1)

    assert TaskResult.from_json(verdict.payload).model is None


def test_a_judges_answer_becomes_its_score() -> None:
    verdict = judge_verdict(work(judge("first"), step=1), Success("yes", Usage(20, 1)), finished(), 1)

    result = JudgeResult.from_json(verdict.payload)
    assert (verdict.state, result.score, result.answer, result.error) == (
        JobState.SUCCEEDED,
        1.0,
        "yes",
        None,
    )
    assert (result.usage, result.attempts, verdict.follow) == (Usage(20, 1), 2, ())


def test_an_answer_that_is_no_choice_is_kept_with_the_reason() -> None:
    verdict = judge_verdict(work(judge("first"), step=1), Success("perhaps"), finished(), 1)

    result = JudgeResult.from_json(verdict.payload)
    assert (verdict.state, result.score, result.answer) == (JobState.FAILED, None, "perhaps")
    assert result.error


def test_a_judge_that_failed_has_no_score() -> None:
    verdict = judge_verdict(work(judge("first"), step=1), NetworkFailure("reset"), finished("reset"), 1)

    result = JudgeResult.from_json(verdict.payload)
    assert (verdict.state, result.score, result.answer, result.error) == (
        JobState.FAILED,
        None,
        None,
        "reset",
    )
