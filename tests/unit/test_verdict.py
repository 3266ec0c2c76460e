"""Verdicts: what is recorded of a finished job, its scores, and which judges come next."""

from __future__ import annotations

from typing import Any

from fairlane.evaluators.spec import Contains, ExactMatch, Judge
from fairlane.job import JobState, Success, Usage
from fairlane.rendering import Rendering
from fairlane.results import JudgeResult, TaskResult
from fairlane.run import Message, Plan, RunSpec
from fairlane.store.attempts import Over, Ready
from fairlane.verdict import Ended, Place, Verdict, evaluation_over, follow, following, task_over

LANES = ("sim:judge", "sim:other")


def judge(name: str, template: str = "{{ output }}") -> Judge:
    return Judge(name=name, model="sim:judge", template=template, choices={"yes": 1.0, "no": 0.0})


def place(
    *evaluators: Any, row: dict[str, Any] | None = None, model: str = "sim:{{ lane }}", item: int = 2
) -> Place:
    """Item 2 of a run with these evaluators."""
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
    rendering = Rendering(Plan(spec=spec, eval_lanes=LANES[: len(judges)]))
    content = {"q": "1 + 1", "answer": "2", "lane": "fast"} if row is None else row
    return Place.of(rendering, item, content)


def succeeded(at: Place, ended: Ended | None = None) -> Verdict:
    """What becomes of a task that was answered, and of all that follows."""
    ended = ended or Ended(SUCCESS, None, 2, 450)
    output = ended.answer.output if ended.answer else ""
    return task_over(at, ended, follow(at, following(at, output), output, {}))


SUCCESS = Success("2", Usage(8, 1))


def test_a_task_is_recorded_with_its_output_usage_and_scores() -> None:
    scorers = (ExactMatch(name="exact", expected="answer"), Contains(name="has", text="3"))

    verdict = succeeded(place(*scorers))

    result = TaskResult.from_json(verdict.payload)
    assert (verdict.state, result.state, result.output) == (JobState.SUCCEEDED, JobState.SUCCEEDED, "2")
    assert (result.usage, result.attempts, result.latency_ms) == (Usage(8, 1), 2, 450)
    assert result.model == "sim:fast"
    assert result.scores == {"exact": 1.0, "has": 0.0}
    assert verdict.follow == ()


def test_a_score_that_cannot_be_had_is_recorded_with_its_reason() -> None:
    verdict = succeeded(place(ExactMatch(name="exact", expected="missing")))

    result = TaskResult.from_json(verdict.payload)
    assert result.scores["exact"] is None
    assert "missing" in result.score_errors["exact"]
    assert verdict.state is JobState.SUCCEEDED


def test_a_success_makes_its_judges_ready_each_on_its_lane() -> None:
    verdict = succeeded(place(judge("first"), judge("second", "x" * 4000)))

    first, second = verdict.follow
    assert isinstance(first, Ready)
    assert isinstance(second, Ready)
    assert [(step.job, step.lane) for step in (first, second)] == [(7, "sim:judge"), (8, "sim:other")]
    assert second.entry.tokens.input > first.entry.tokens.input > 0
    # Kinds follow those of the models, of which there is one.
    assert [step.entry.kind for step in (first, second)] == [1, 2]


def test_a_judge_that_cannot_be_rendered_is_invalid_and_the_next_is_ready() -> None:
    verdict = succeeded(place(judge("bad", "{{ nothing }}"), judge("good")))

    bad, good = verdict.follow
    assert isinstance(bad, Over)
    assert (bad.job, bad.state, bad.lane) == (7, JobState.INVALID, "sim:judge")
    assert "nothing" in str(JudgeResult.from_json(bad.payload).error)
    assert isinstance(good, Ready)


def test_a_failed_task_skips_its_judges() -> None:
    verdict = task_over(place(judge("first"), judge("second")), Ended(None, "reset", 2, 9))

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
    verdict = task_over(place(row={"q": 1}), Ended(None, "x", 1, 1))

    assert TaskResult.from_json(verdict.payload).model is None


def test_a_judges_answer_becomes_its_score() -> None:
    verdict = evaluation_over(
        place(judge("first")), 1, Ended(Success("yes", Usage(20, 1)), None, 2), "an output"
    )

    result = JudgeResult.from_json(verdict.payload)
    assert (verdict.state, result.score, result.answer, result.error) == (
        JobState.SUCCEEDED,
        1.0,
        "yes",
        None,
    )
    assert (result.usage, result.attempts, verdict.follow) == (Usage(20, 1), 2, ())


def test_an_answer_that_is_no_choice_is_kept_with_the_reason() -> None:
    verdict = evaluation_over(place(judge("first")), 1, Ended(Success("perhaps"), None, 2), "an output")

    result = JudgeResult.from_json(verdict.payload)
    assert (verdict.state, result.score, result.answer) == (JobState.FAILED, None, "perhaps")
    assert result.error


def test_a_judge_that_failed_has_no_score() -> None:
    verdict = evaluation_over(place(judge("first")), 1, Ended(None, "reset", 2), "an output")

    result = JudgeResult.from_json(verdict.payload)
    assert (verdict.state, result.score, result.answer, result.error) == (
        JobState.FAILED,
        None,
        None,
        "reset",
    )
