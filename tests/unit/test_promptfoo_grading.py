"""Graders ask models in rounds; what they make of the answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from fairlane.apps.promptfoo.evaluation import Evaluation
from fairlane.apps.promptfoo.grading.questions import Chat, Question, chat_from, first_object, grade
from fairlane.apps.promptfoo.programs.programs import Programs
from fairlane.apps.promptfoo.scoring.scorer import Scorer
from fairlane.apps.promptfoo.scoring.verdicts import Verdict
from fairlane.apps.promptfoo.subjects import CheckError, Result
from tests.support.promptfoo import Folder, asserting, config, record


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def read(folder: Folder, text: str) -> Evaluation:
    return folder.read(text, judge_model="openai:judge", embedding_model="openai:embedding")


def verdicts(
    evaluation: Evaluation,
    outputs: Sequence[tuple[int, str]],
    ask: Callable[[Sequence[Question]], Sequence[Any]],
) -> list[Verdict]:
    """The verdicts on outputs of the first row, each with its prompt's number."""
    (run,) = evaluation.runs
    records = [
        (record(output, dict(evaluation.rows[0]), prompt=prompt, item=number), run)
        for number, (prompt, output) in enumerate(outputs)
    ]
    found = list(Scorer(evaluation.texts, Programs(allowed=False), ask).verdicts(records))
    return [verdict for _, _, verdict in sorted(found, key=lambda each: each[0].item)]


def answering(*rounds: Sequence[Any]) -> Callable[[Sequence[Question]], Sequence[Any]]:
    """Answers round after round, as many as are asked for."""
    left = list(rounds)

    def answer(questions: Sequence[Question]) -> Sequence[Any]:
        answers = left.pop(0) if questions else []
        assert len(answers) == len(questions)
        return answers

    return answer


RECALLED = "a [Attributed]\nb [Not Attributed]"
CONTEXT: Mapping[str, Any] = {"vars": {"word": "hi", "query": "why?", "context": "one.\ntwo.\nthree.\nfour."}}


@pytest.mark.parametrize(
    ("assertion", "rounds", "passes", "score"),
    [
        ({"type": "factuality", "value": "x"}, [['{"category": "B"}']], True, 1.0),
        ({"type": "factuality", "value": "x"}, [["(D) they disagree"]], False, 0.0),
        ({"type": "not-factuality", "value": "x"}, [['{"category": "D"}']], True, 1.0),
        ({"type": "model-graded-closedqa", "value": "x"}, [["because\nY"]], True, 1.0),
        ({"type": "model-graded-closedqa", "value": "x"}, [["because\nN"]], False, 0.0),
        ({"type": "similar", "value": ["x", "y"], "threshold": 0.8}, [[0.5, 0.9]], True, 0.9),
        ({"type": "similar", "value": ["x"], "threshold": 0.8}, [[0.7]], False, 0.7),
        ({"type": "answer-relevance", "threshold": 0.5}, [["a?", "b?", "c?"], [0.4, 0.5, 0.9]], True, 0.6),
        (
            {"type": "context-recall", "value": "x", "threshold": 0.6},
            [[RECALLED]],
            False,
            0.5,
        ),
        ({"type": "context-relevance", "threshold": 0.5}, [["one.\ntwo."]], True, 0.5),
        ({"type": "context-relevance", "threshold": 0.5}, [["Insufficient Information"]], False, 0.0),
        (
            {"type": "context-faithfulness", "threshold": 0.5},
            [["s1\ns2"], ["Final verdict for each statement in order: Yes. No."]],
            True,
            0.5,
        ),
        (
            {"type": "g-eval", "value": "x"},
            [['{"steps": ["a"]}'], ['{"score": 8, "reason": "r"}']],
            True,
            0.8,
        ),
        ({"type": "g-eval", "value": "x"}, [["no"]], False, 0.0),
        ({"type": "llm-rubric", "value": "x", "threshold": 0.5}, [["fail"]], False, 0.0),
    ],
)
def test_models_are_asked_about_an_output(
    folder: Folder, assertion: dict[str, Any], rounds: list[list[Any]], *, passes: bool, score: float
) -> None:
    evaluation = read(folder, asserting(assertion, **CONTEXT))
    (found,) = verdicts(evaluation, [(0, "an output")], answering(*rounds))
    assert (found.outcome == "passed", found.score) == (passes, pytest.approx(score)), found.reasons


def test_a_rubric_prompt_of_the_configuration_is_asked_and_its_json_read(folder: Folder) -> None:
    words = [
        {"role": "system", "content": "Grade {{word}}: {{rubric}}"},
        {"role": "user", "content": "{{output}}"},
    ]
    text = asserting({"type": "llm-rubric", "value": "is kind"}, options={"rubricPrompt": words})
    seen: list[Question] = []

    def answer(questions: Sequence[Question]) -> Sequence[Any]:
        seen.extend(questions)
        return ['Well: {"pass": true, "score": 0.4, "reason": "r"}' for _ in questions]

    (found,) = verdicts(read(folder, text), [(0, "an output")], answer)
    assert (found.outcome, found.score) == ("passed", 0.4)
    (chat,) = seen
    assert isinstance(chat, Chat)
    assert [each["content"] for each in chat.messages] == ["Grade hi: is kind", "an output"]


@pytest.mark.parametrize("points", ["NaN", "1e999", "1" + "0" * 400])
def test_a_judge_s_score_that_is_no_number_is_that_of_its_verdict(folder: Folder, points: str) -> None:
    text = asserting({"type": "llm-rubric", "value": "is kind"}, options={"rubricPrompt": "{{output}}"})
    evaluation = read(folder, text)
    (found,) = verdicts(evaluation, [(0, "an output")], answering([f'{{"pass": true, "score": {points}}}']))
    assert (found.outcome, found.score) == ("passed", 1.0)


def test_a_judge_that_fails_is_an_error_of_its_output_alone(folder: Folder) -> None:
    evaluation = read(folder, asserting({"type": "factuality", "value": "x"}))
    answers = answering([CheckError("the judge failed: refused"), '{"category": "A"}'])
    bad, good = verdicts(evaluation, [(0, "a"), (0, "b")], answers)
    assert (bad.outcome, bad.reasons) == ("error", ('factuality "x": the judge failed: refused',))
    assert good.outcome == "passed"


def test_the_best_output_of_a_test_passes_and_the_others_do_not(folder: Folder) -> None:
    tests = [{"vars": {"word": "hi"}, "assert": [{"type": "select-best", "value": "kind"}]}]
    evaluation = read(folder, config(prompts=["A {{word}}", "B {{word}}"], tests=tests))
    first, second = verdicts(evaluation, [(0, "a"), (1, "b")], answering(["1"]))
    assert (first.outcome, second.outcome) == ("failed", "passed")
    alone = verdicts(evaluation, [(0, "a")], answering())
    assert alone[0].reasons == (
        'select-best "kind": there is one output alone: select-best compares several',
    )


def test_the_output_with_the_highest_score_passes(folder: Folder) -> None:
    assertions = [{"type": "max-score"}, {"type": "contains", "value": "b", "weight": 2}]
    tests = [{"vars": {"word": "hi"}, "assert": assertions, "threshold": 0}]
    evaluation = read(folder, config(prompts=["A {{word}}", "B {{word}}"], tests=tests))
    first, second = verdicts(evaluation, [(0, "a"), (1, "b")], answering())
    assert (first.outcome, second.outcome) == ("failed", "passed")


def test_all_that_is_asked_in_a_round_goes_out_together() -> None:
    rounds: list[int] = []

    def grader(turns: int) -> Any:
        for _ in range(turns):
            yield [Chat("m", []), Chat("m", [])]
        return Result(True, float(turns))

    def ask(questions: Sequence[Question]) -> Sequence[Any]:
        rounds.append(len(questions))
        return ["x"] * len(questions)

    graded = grade({number: grader(number) for number in range(4)}, ask)
    assert rounds == [6, 4, 2]
    assert {key: each.score for key, each in graded.items() if isinstance(each, Result)} == {
        0: 0.0,
        1: 1.0,
        2: 2.0,
        3: 3.0,
    }


def test_a_template_is_a_chat_or_one_message() -> None:
    model = {"model": "openai:judge", "params": {"temperature": 0}}
    chat = chat_from(model, json.dumps([{"role": "user", "content": "{{a}}"}]), {"a": '"x"'})
    assert (chat.model, chat.params) == ("openai:judge", {"temperature": 0})
    assert list(chat.messages) == [{"role": "user", "content": '"x"'}]
    assert list(chat_from(model, "Say {{a}}", {"a": "x"}).messages) == [{"role": "user", "content": "Say x"}]


def test_the_first_object_of_an_answer_is_read() -> None:
    assert first_object('<think>{"a": 1}</think> ```json\n{"b": {"c": 2}}\n```') == {"b": {"c": 2}}
    assert first_object("{ nothing }") is None
    assert first_object("{" * 1000) is None


@pytest.mark.parametrize("points", [{"disagree": "x"}, {"disagree": None}, {"agree": True}, 1])
def test_points_of_factuality_that_are_no_numbers_are_a_problem(folder: Folder, points: object) -> None:
    options = {"provider": "openai:gpt-4o", "factuality": points}
    (problem,) = folder.refusals(asserting({"type": "factuality", "value": "x"}, options=options))
    where = "promptfooconfig.yaml:1: tests[0].options.factuality"
    assert problem == f"{where}: these are numbers of points by category"
