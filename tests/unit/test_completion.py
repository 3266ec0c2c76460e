"""Completions: the record of a finished job, its scores, and the judges that follow."""

from __future__ import annotations

from typing import Any

from fairlane.model.choices import Message
from fairlane.model.ending import Completion, ReadyJob, RecordedJob
from fairlane.model.evaluators import Contains, ExactMatch, Judge
from fairlane.model.job import JobState
from fairlane.model.outcome import Success
from fairlane.model.results import JudgeResult, TaskResult
from fairlane.model.run import Plan, RunSpec
from fairlane.model.tokens import Usage
from fairlane.pipeline.completion import complete_evaluation, complete_task
from fairlane.pipeline.evaluations import FinishedJob
from fairlane.pipeline.rendering import Rendering, RunItem

LANES = ("sim:judge", "sim:other")


def judge(name: str, template: str = "{{ output }}") -> Judge:
    return Judge(name=name, model="sim:judge", template=template, choices={"yes": 1.0, "no": 0.0})


def place(
    *evaluators: Any,
    row: dict[str, Any] | None = None,
    model: str = "sim:{{ lane }}",
    item: int = 2,
    **fields: Any,
) -> RunItem:
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
        **fields,
    )
    rendering = Rendering(Plan(spec=spec, eval_lanes=LANES[: len(judges)]))
    content = {"q": "1 + 1", "answer": "2", "lane": "fast"} if row is None else row
    return RunItem.of(rendering, item, content)


def succeeded(at: RunItem, ended: FinishedJob | None = None) -> Completion:
    """The completion of a task that was answered."""
    return complete_task(at, ended or FinishedJob(SUCCESS, None, 2, 450))


SUCCESS = Success("2", Usage(8, 1))


def test_results_are_short_only_where_the_runs_client_reads_that() -> None:
    long, short = (succeeded(place(short_results=reads)).payload for reads in (False, True))
    assert long.startswith('{"s":"succeeded","o":"2"')
    assert short == '["2",8,1,2,450,null,{"m":"sim:fast"}]'
    assert TaskResult.from_json(long) == TaskResult.from_json(short)

    item = place(judge("a"), short_results=True)
    verdict = complete_evaluation(item, 1, FinishedJob(Success("yes", Usage(7, 1)), None, 1, 20), "2")
    assert verdict.payload == '[1.0,"yes",7,1,1]'


def test_the_model_that_a_spec_names_is_not_stored_again() -> None:
    assert TaskResult.from_json(succeeded(place(model="sim:fast")).payload).model is None


def test_a_task_is_recorded_with_its_output_usage_and_scores() -> None:
    scorers = (ExactMatch(name="exact", expected="answer"), Contains(name="has", text="3"))

    completion = succeeded(place(*scorers))

    result = TaskResult.from_json(completion.payload)
    assert (completion.state, result.state, result.output) == (JobState.SUCCEEDED, JobState.SUCCEEDED, "2")
    assert (result.usage, result.attempts, result.latency_ms) == (Usage(8, 1), 2, 450)
    assert result.model == "sim:fast"
    assert result.scores == {"exact": 1.0, "has": 0.0}
    assert completion.follow == ()


def test_a_score_that_cannot_be_had_is_recorded_with_its_reason() -> None:
    completion = succeeded(place(ExactMatch(name="exact", expected="missing")))

    result = TaskResult.from_json(completion.payload)
    assert result.scores["exact"] is None
    assert "missing" in result.score_errors["exact"]
    assert completion.state is JobState.SUCCEEDED


def test_a_success_makes_its_judges_ready_each_on_its_lane() -> None:
    completion = succeeded(place(judge("first"), judge("second", "x" * 4000)))

    first, second = completion.follow
    assert isinstance(first, ReadyJob)
    assert isinstance(second, ReadyJob)
    assert [(step.job, step.lane) for step in (first, second)] == [(7, "sim:judge"), (8, "sim:other")]
    assert second.entry.tokens.input > first.entry.tokens.input > 0
    # Kinds follow those of the models, of which there is one.
    assert [step.entry.kind for step in (first, second)] == [1, 2]


def test_a_judge_that_cannot_be_rendered_is_invalid_and_the_next_is_ready() -> None:
    completion = succeeded(place(judge("bad", "{{ nothing }}"), judge("good")))

    bad, good = completion.follow
    assert isinstance(bad, RecordedJob)
    assert (bad.job, bad.state, bad.lane) == (7, JobState.INVALID, "sim:judge")
    assert "nothing" in str(JudgeResult.from_json(bad.payload).error)
    assert isinstance(good, ReadyJob)


def test_a_failed_task_skips_its_judges() -> None:
    completion = complete_task(place(judge("first"), judge("second")), FinishedJob(None, "reset", 2, 9))

    result = TaskResult.from_json(completion.payload)
    assert (completion.state, result.error, result.attempts, result.output) == (
        JobState.FAILED,
        "reset",
        2,
        None,
    )
    assert [(step.job, step.lane) for step in completion.follow] == [(7, "sim:judge"), (8, "sim:other")]
    assert {step.state for step in completion.follow if isinstance(step, RecordedJob)} == {JobState.SKIPPED}


def test_a_task_whose_row_names_no_model_any_more_is_recorded_without_one() -> None:
    completion = complete_task(place(row={"q": 1}), FinishedJob(None, "x", 1, 1))

    assert TaskResult.from_json(completion.payload).model is None


def test_a_judges_answer_becomes_its_score() -> None:
    completion = complete_evaluation(
        place(judge("first")), 1, FinishedJob(Success("yes", Usage(20, 1)), None, 2), "an output"
    )

    result = JudgeResult.from_json(completion.payload)
    assert (completion.state, result.score, result.answer, result.error) == (
        JobState.SUCCEEDED,
        1.0,
        "yes",
        None,
    )
    assert (result.usage, result.attempts, completion.follow) == (Usage(20, 1), 2, ())


def test_an_answer_that_is_no_choice_is_kept_with_the_reason() -> None:
    completion = complete_evaluation(
        place(judge("first")), 1, FinishedJob(Success("perhaps"), None, 2), "an output"
    )

    result = JudgeResult.from_json(completion.payload)
    assert (completion.state, result.score, result.answer) == (JobState.FAILED, None, "perhaps")
    assert result.error


def test_a_judge_that_failed_has_no_score() -> None:
    completion = complete_evaluation(place(judge("first")), 1, FinishedJob(None, "reset", 2), "an output")

    result = JudgeResult.from_json(completion.payload)
    assert (completion.state, result.score, result.answer, result.error) == (
        JobState.FAILED,
        None,
        None,
        "reset",
    )
