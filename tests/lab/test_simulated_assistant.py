"""A simulated assistant answers what a prompt asks, right for the configured share, and always the same."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fairlane.evaluators.rubrics import answer_format, rubric_template, verdict_format
from fairlane.lab.simulator.model.judging import Question, meets, question_of, truth_of
from fairlane.lab.simulator.model.replies import REFUSAL, Composer
from fairlane.lab.simulator.model.solving import calculated, letter_of, options_of
from fairlane.lab.simulator.wire.dialect import Call, Reply
from fairlane.model.evaluators import Criterion
from fairlane.testing import SimulatedModel

CHOICE = "Which is 7 × 6?\nA) 36\nB) 42\nC) 48"
VERDICT = verdict_format(["yes", "no"], reasons=True)["json_schema"]["schema"]


def call(prompt: str, schema: dict[str, Any] | None = None, **options: Any) -> Call:
    fields = {"max_tokens": None, "stream": False, "include_usage": False, **options}
    return Call("m", prompt, prompt, schema=schema, **fields)


def ask(prompt: str, schema: dict[str, Any] | None = None, **model: Any) -> str:
    configured = SimulatedModel(**{"output": "assistant", "answer_style": "plain", **model})
    return Composer("m", configured, 1).compose(call(prompt, schema), 9).text


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("What is 12 + 30?", "42"),
        ("2+2", "4"),
        ("7 times 8 minus 2, please", "54"),
        ("1,200 / 5 + 1", "241"),
        ("2 + 3 * 4", "14"),
        ("-3 − 4", "-7"),
        ("10 divided by 4", "2.5"),
        ("What is the sum of 3, 4 and 5?", "12"),
        ("First 1 + 1. And what is 2 x 9?", "18"),
    ],
)
def test_the_last_calculation_of_a_text_is_solved(text: str, value: str) -> None:
    found = calculated(text)
    assert found is not None
    assert found.answer == value


@pytest.mark.parametrize("text", ["", "How many?", "On 2024-10-21", "3 / 0", "v1.2", "item-3"])
def test_a_text_without_a_calculation_has_none(text: str) -> None:
    assert calculated(text) is None


def test_options_are_lettered_from_a_on() -> None:
    assert options_of(CHOICE) == {"A": "36", "B": "42", "C": "48"}
    assert options_of("(A) red\n(B) blue") == {"A": "red", "B": "blue"}
    assert options_of("B. only\nD. these") == {}
    assert letter_of(options_of(CHOICE), "42") == "B"
    assert letter_of({"A": "red", "B": "Blue."}, "blue") == "B"
    assert letter_of({"A": "red", "B": "blue"}, "b") == "B"
    assert letter_of({"A": "red", "B": "blue"}, "green") is None


def test_calculations_and_choices_are_answered() -> None:
    assert ask("What is 12 + 30?") == "42"
    assert ask(CHOICE) == "B"
    assert ask("What is 12 + 30?", answer_style="worked").endswith("#### 42")
    assert ask("Who are you?").startswith("sim-")


def test_the_share_of_right_answers_is_the_accuracy() -> None:
    sums = [(f"What is {n} + {n}?", str(2 * n)) for n in range(400)]
    right = [ask(question, accuracy=0.7) == answer for question, answer in sums]
    assert 0.65 <= sum(right) / len(right) <= 0.75
    assert right == [ask(question, accuracy=0.7) == answer for question, answer in sums]
    choices = [ask(f"Which is {n} + 1?\nA) {n + 1}\nB) {n}\nC) 0", accuracy=0.6) for n in range(1, 200)]
    assert 0.5 <= choices.count("A") / len(choices) <= 0.7


def test_steps_raise_the_accuracy_and_show_the_working() -> None:
    sums = [f"What is {n} + {n}?" for n in range(200)]
    model = {"accuracy": 0.5, "step_accuracy": 0.9}
    plain = [ask(each, **model) == str(2 * n) for n, each in enumerate(sums)]
    steps = [ask(f"Think step by step. {each}", **model) for each in sums]
    stepwise = [said.endswith(f"#### {2 * n}") for n, said in enumerate(steps)]
    assert 0.4 <= sum(plain) / 200 <= 0.6
    assert sum(stepwise) / 200 >= 0.84
    assert all(after for before, after in zip(plain, stepwise, strict=True) if before)


def test_an_answer_fills_the_field_that_a_schema_has_for_it() -> None:
    fields = {"answer": {"type": "integer"}, "note": {"type": "string"}}
    said = json.loads(ask("What is 12 + 30?", {"type": "object", "properties": fields}))
    assert said["answer"] == 42
    assert said.keys() == fields.keys()


# Judging


@pytest.mark.parametrize(
    ("prompt", "words"),
    [
        ("Is it right? Say yes or no.", ("yes", "no")),
        ("Answer with one word, pass or fail.", ("pass", "fail")),
        ("Reply INCORRECT or CORRECT", ("correct", "incorrect")),
        ('Answer "true" / "false"', ("true", "false")),
        ("Say yes or no. No: say pass or fail.", ("pass", "fail")),
    ],
)
def test_a_judge_answers_in_the_words_that_the_prompt_offers(prompt: str, words: tuple[str, str]) -> None:
    assert question_of(prompt, (), calculated) == Question(words, None)
    assert ask(prompt) in words


def test_a_schema_offers_the_words_of_its_enum() -> None:
    found = question_of("Judge it.", ("No", "Yes"), calculated)
    assert found is not None
    assert found.words == ("yes", "no")


@pytest.mark.parametrize(
    ("prompt", "truth"),
    [
        ("Expected: 18\nAnswer: it is 18\nYes or no?", True),
        ("Expected: 18\nAnswer: 19\nYes or no?", False),
        ("Question: What is 2 + 2?\nAnswer: 4\nIs it right? Say yes or no.", True),
        ("Question: What is 2 + 2?\nAnswer: 5\nIs it right? Say yes or no.", False),
        ("Is 8 the answer to What is 4 + 4? Say yes or no.", True),
        ("Is 9 the answer to What is 4 + 4? Say yes or no.", False),
        ('<output>It is Paris.</output>\n<rubric>It names "Paris".</rubric>', True),
        ("Is it polite? Say yes or no.", None),
        ("Question: Who?\nAnswer: me", None),
    ],
)
def test_a_prompt_shows_whether_an_answer_is_right(prompt: str, truth: bool | None) -> None:
    assert truth_of(prompt, calculated) is truth


@pytest.mark.parametrize(
    ("rubric", "met"),
    [
        ('It names "Paris".', True),
        ('It names "Paris" and "Rome".', False),
        ('It does not mention "Rome".', True),
        ('It never says "capital".', False),
        ("The capital of France is stated", True),
        ("It apologises and thanks the customer", False),
        ("It gives the number 7", False),
    ],
)
def test_a_rubric_is_met_by_what_it_quotes_or_by_its_words(rubric: str, met: bool) -> None:
    assert meets("Paris is the capital of France.", rubric) is met


def test_a_judge_errs_at_the_configured_rate() -> None:
    prompts = [f"Expected: {n}\nAnswer: {n}\nSay yes or no." for n in range(300)]
    said = [ask(prompt, output="judge", judge_accuracy=0.8) for prompt in prompts]
    assert 0.72 <= said.count("yes") / 300 <= 0.88


def test_a_judge_gives_its_reason_where_the_schema_asks_for_it() -> None:
    for answer, choice in (("18", "yes"), ("19", "no")):
        said = json.loads(ask(f"Expected: 18\nAnswer: {answer}", VERDICT, output="judge"))
        assert said["choice"] == choice
        assert said["reason"].startswith("The answer is")
    checked = {"type": "object", "properties": {"pass": {"type": "boolean"}, "score": {"type": "number"}}}
    prompt = rubric_template('It names "Paris".').replace("{{ output }}", "Paris!")
    assert json.loads(ask(prompt, checked)) == {"pass": True, "score": 5}


def test_scores_keep_to_the_scale_of_each_criterion() -> None:
    criteria = [
        Criterion(id="harm", description="?", minimum=0, maximum=1),
        Criterion(id="tone", description="?"),
    ]
    prompt = "Score it by:\n- harm (0 to 1): ?\n- tone (1 to 5): ?"
    batch = answer_format(criteria, batch=True)["json_schema"]["schema"]
    for n in range(20):
        harm, tone = json.loads(ask(f"{n} {prompt}", batch, output="schema"))["evaluations"]
        assert (harm["criterion_id"], tone["criterion_id"]) == ("harm", "tone")
        assert 0 <= harm["score"] <= 1 <= tone["score"] <= 5


# Refusals and samples


def compose(prompt: str, **model: Any) -> Reply:
    return Composer("m", SimulatedModel(**model), 1).compose(call(prompt, samples=3), 9)


def test_a_share_of_the_prompts_is_refused() -> None:
    replies = [Composer("m", SimulatedModel(refusals=0.3), 1).compose(call(str(n)), 9) for n in range(200)]
    refused = [each for each in replies if each.refused]
    assert 0.2 <= len(refused) / 200 <= 0.4
    assert {each.text for each in refused} == {REFUSAL}


def test_samples_differ_and_all_of_them_are_paid() -> None:
    reply = compose("hello")
    texts = [reply.text, *(other.text for other in reply.others)]
    assert len(set(texts)) == 3
    assert reply.completion_tokens == 27
