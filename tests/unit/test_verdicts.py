"""A judge is asked for a reason and a choice; its answer is read in that form, or as any text."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fairlane import llm_judge
from fairlane.evaluators.judge import Verdict, read_verdict
from fairlane.evaluators.rubrics import verdict_format
from fairlane.evaluators.scorers import Score
from fairlane.model.job import JobState
from fairlane.model.outcome import Success
from fairlane.model.results import JudgeResult, TaskResult, assemble
from fairlane.model.run import Plan
from fairlane.pipeline.evaluations import FinishedJob, evaluation_result
from fairlane.pipeline.rendering import Rendering
from tests.support.records import spec_of

CHOICES = {"yes": 1.0, "no": 0.0}
FORM = {"response_format"}


def judged_by(**options: Any) -> Rendering:
    evaluator = llm_judge("sim:judge", "{{ output }}?", CHOICES, **options)
    return Rendering(Plan(spec=spec_of(evaluators=(evaluator,))))


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        ('{"reason": "It adds up.", "choice": "yes"}', Verdict(Score(1.0), "It adds up.")),
        ('```json\n{"reason": "No: 4.", "choice": "no"}\n```', Verdict(Score(0.0), "No: 4.")),
        ('<think>no</think>{"choice": "Yes"}', Verdict(Score(1.0), "Yes")),
        ("yes", Verdict(Score(1.0), "yes")),
        ("It adds up.\nVerdict: yes", Verdict(Score(1.0), "It adds up.\nVerdict: yes")),
        (
            '{"text": "", "tool_calls": [{"name": "v", "arguments": {"reason": "So.", "choice": "no"}}]}',
            Verdict(Score(0.0), "So."),
        ),
        ('{"verdict": "yes"}', Verdict(Score(1.0), '{"verdict": "yes"}')),
    ],
)
def test_an_answer_is_a_choice_and_what_the_judge_said(answer: str, verdict: Verdict) -> None:
    assert read_verdict(answer, CHOICES) == verdict


def test_a_choice_in_an_unfinished_reason_is_no_verdict() -> None:
    read = read_verdict('{"reason": "yes, it is polite, but', CHOICES)
    assert read.score.value is None
    assert "breaks off" in (read.score.error or "")


def test_a_choice_that_was_not_offered_has_no_score() -> None:
    assert read_verdict('{"reason": "Hm.", "choice": "perhaps"}', CHOICES).score.value is None


def test_the_form_asks_for_the_reason_first_and_for_one_of_the_choices() -> None:
    schema = verdict_format(["yes", "no"], reasons=True)["json_schema"]["schema"]
    assert list(schema["properties"]) == schema["required"] == ["reason", "choice"]
    assert schema["properties"]["choice"]["enum"] == ["yes", "no"]
    assert list(verdict_format(["yes"], reasons=False)["json_schema"]["schema"]["properties"]) == ["choice"]


def test_a_judge_is_held_to_the_form_where_its_connection_can() -> None:
    rendering = judged_by()
    (step,) = rendering.spec.evals
    call = rendering.evaluation(step, {}, "4")
    assert call.params.keys() == call.optional == FORM
    plain = Rendering(Plan(spec=rendering.spec, unstructured=("sim",))).evaluation(step, {}, "4")
    assert (dict(plain.params), plain.optional) == ({}, frozenset())
    assert call.messages == plain.messages == [{"role": "user", "content": "4?"}]
    tooled = Rendering(Plan(spec=rendering.spec, tooled=("sim",))).evaluation(step, {}, "4")
    assert tooled.params.keys() == tooled.optional == {"tools", "tool_choice"}
    (tool,) = tooled.params["tools"]
    schema = call.params["response_format"]["json_schema"]["schema"]
    assert tool["function"]["parameters"] == schema
    assert tooled.params["tool_choice"]["function"]["name"] == tool["function"]["name"]


@pytest.mark.parametrize(
    "options", [{"params": {"max_tokens": 9}}, {"params": {"response_format": {"type": "text"}}}]
)
def test_the_form_never_replaces_what_the_run_says(options: dict[str, Any]) -> None:
    rendering = judged_by(**options)
    (step,) = rendering.spec.evals
    assert rendering.evaluation(step, {}, "4").params == options["params"]


def test_a_record_keeps_a_judges_reason_beside_its_score_and_what_was_left_out() -> None:
    rendering = judged_by()
    (step,) = rendering.spec.evals
    task = TaskResult(JobState.SUCCEEDED, "4", left_out=("temperature", "top_p")).to_json()
    for said, arguments in (
        ('{"reason": "It adds up.", "choice": "yes"}', {"llm_judge": "It adds up."}),
        ("Yes.", {}),
    ):
        answer = Success(said, left_out=("response_format",))
        stored = evaluation_result(step, FinishedJob(answer)).to_json()
        assert JudgeResult.from_json(stored).left_out == ("response_format",)
        record = assemble(rendering.spec, 0, {}, [task, stored])
        assert (record.scores, record.arguments) == ({"llm_judge": 1.0}, arguments)
        assert record.notes == {
            "task": "sent without temperature, top_p: the model does not support it",
            "llm_judge": "sent without response_format: the model does not support it",
        }


def test_a_judge_of_an_older_run_keeps_its_form() -> None:
    stored = {"kind": "llm_judge", "name": "j", "model": "sim:judge", "template": "x", "choices": CHOICES}
    rendering = Rendering(Plan(spec=spec_of(evaluators=(stored,))))
    (step,) = rendering.spec.evals
    assert rendering.evaluation(step, {}, "4").params == {}
    assert json.loads(rendering.spec.model_dump_json())["evaluators"][0]["reasons"] is None
