"""Known questions are found anywhere in a prompt, and answers are compared by their last number."""

import json
from pathlib import Path

import pytest

from fairlane.core.errors import ConfigurationError
from fairlane.lab.simulator.model.answers import AnswerBook, Known, answer_agrees, last_number
from fairlane.lab.simulator.model.replies import Composer
from fairlane.lab.simulator.wire.dialect import Call
from fairlane.testing import SimulatedModel

DUCKS = "Janet's ducks lay 16 eggs per day.  She eats three. How many are left?"
ROBES = "A robe takes 2 bolts of blue fiber and half that much white fiber. How many bolts in total?"
ROWS = [
    {"question": DUCKS, "answer": "16 - 3 = <<16-3=13>>13\n#### 13"},
    {"question": ROBES, "answer": "2 and 1\n#### 3"},
    {"question": "How much is the house?", "answer": "A lot.\n#### 2,125"},
]


@pytest.fixture
def answers_file(tmp_path: Path) -> Path:
    path = tmp_path / "answers.jsonl"
    path.write_text("\n".join(json.dumps(row, ensure_ascii=False) for row in ROWS) + "\n", encoding="utf-8")
    return path


def call(question: str, max_tokens: int | None = None) -> Call:
    return Call("solver", question, question, max_tokens, stream=False, include_usage=False)


@pytest.mark.parametrize(
    "prompt",
    [
        DUCKS,
        f"Q: {DUCKS}\nA:",
        f"Solve this.\n\n{DUCKS}\n\nGive the number.",
        f"Q:{DUCKS}",
        f"Q: {ROBES}\nA: 3\n\nQ: {DUCKS}\nA:",
        DUCKS.replace(". ", ".\n"),
    ],
    ids=["alone", "prefixed", "in the middle", "glued", "after an example", "re-wrapped"],
)
def test_a_question_is_found_anywhere_in_a_prompt(answers_file: Path, prompt: str) -> None:
    found = AnswerBook.from_jsonl(answers_file).find(prompt)
    assert found is not None
    assert found.answer == "13"


@pytest.mark.parametrize("prompt", ["", "Hello", DUCKS[:40], DUCKS.replace("three", "four")])
def test_a_prompt_without_a_known_question_finds_none(answers_file: Path, prompt: str) -> None:
    assert AnswerBook.from_jsonl(answers_file).find(prompt) is None


def test_questions_with_the_same_beginning_are_distinguished() -> None:
    beginning = "A train leaves the station at noon and "
    book = AnswerBook([Known(f"{beginning}{end}", end) for end in ("stops.", "goes on.", "goes on. Far.")])
    found = book.find(f"Q: {beginning}goes on.")
    assert found is not None
    assert found.answer == "goes on."


@pytest.mark.parametrize(
    "line", ["{", "[1]", '{"question": "Why?"}', '{"question": "Why?", "answer": "####"}']
)
def test_a_row_without_question_and_answer_is_named_by_its_line(tmp_path: Path, line: str) -> None:
    path = tmp_path / "answers.jsonl"
    path.write_text(f"{json.dumps(ROWS[0])}\n{line}\n", encoding="utf-8")
    with pytest.raises(ConfigurationError, match="line 2"):
        AnswerBook.from_jsonl(path)


@pytest.mark.parametrize("text", [None, "", "\n\n"])
def test_a_missing_or_empty_file_is_rejected(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "answers.jsonl"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigurationError, match="answers_file"):
        AnswerBook.from_jsonl(path)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("#### 18", 18),
        ("it is 2,125.", 2125),
        ("from 16-3 to -4.5", -4.5),
        ("10-5", 5),
        ("x = 3.0\n", 3),
        ("none", None),
    ],
)
def test_the_last_number_of_a_text_is_its_value(text: str, number: float | None) -> None:
    assert last_number(text) == number


@pytest.mark.parametrize(
    ("prompt", "agrees"),
    [
        ("Expected: 18\nAnswer: it is 18", True),
        ("Expected: 2,125\nAnswer: 2125.0", True),
        ("Expected: 18\nAnswer: 19", False),
        ("Answer: 18\nExpected: 18\n\nReply 1 for yes and 0 for no.", True),
        (
            "Question: Why 3?\nExpected: 16 - 3\n= 13\n#### 13\nAnswer: well\nso #### 13\nReply with 1 word.",
            True,
        ),
        ("Expected: Paris\nAnswer:  paris ", True),
        ("Expected: Paris\nAnswer: 4", False),
        ("Expected: 18", False),
        ("Is it right?", False),
    ],
)
def test_an_answer_agrees_if_its_last_number_is_the_expected_one(prompt: str, agrees: bool) -> None:
    assert answer_agrees(prompt) is agrees


@pytest.mark.parametrize(("style", "ending"), [("worked", "#### 2,125"), ("plain", "2,125")])
def test_a_correct_answer_ends_like_the_solution(answers_file: Path, style: str, ending: str) -> None:
    model = SimulatedModel.model_validate(
        {"output": "answers", "answers_file": answers_file, "answer_style": style, "output_tokens": 30}
    )
    reply = Composer("solver", model, seed=0).compose(call("Q: How much is the house?"), 30)
    assert reply.text.endswith(ending)
    assert (reply.text == ending) == (style == "plain")
    assert reply.completion_tokens == (30 if style == "worked" else 2)


def test_a_short_limit_shortens_the_filler_and_keeps_the_answer(answers_file: Path) -> None:
    model = SimulatedModel(output="answers", answers_file=answers_file)
    reply = Composer("solver", model, seed=0).compose(call(ROBES, max_tokens=4), 200)
    assert reply.text.endswith("#### 3")
    assert reply.completion_tokens <= 4
    assert not reply.truncated


def test_accuracy_is_the_share_of_correct_answers_and_always_the_same_ones(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    questions = [f"Question number {n} of the book, how much is it?" for n in range(1000)]
    path.write_text(
        "".join(json.dumps({"question": q, "answer": f"#### {n}"}) + "\n" for n, q in enumerate(questions))
    )
    model = SimulatedModel(output="answers", answers_file=path, accuracy=0.8)

    def right(seed: int) -> list[bool]:
        composer = Composer("solver", model, seed)
        return [last_number(composer.compose(call(q), 9).text) == n for n, q in enumerate(questions)]

    assert 0.76 < sum(right(1)) / 1000 < 0.84
    assert right(1) == right(1)
    assert right(1) != right(2)


def test_an_unknown_question_gets_filler(answers_file: Path) -> None:
    model = SimulatedModel(output="answers", answers_file=answers_file)
    assert Composer("solver", model, 0).compose(call("Who are you?"), 9).text.startswith("sim-")


@pytest.mark.parametrize("accuracy", [1.0, 0.0])
def test_a_judge_is_correct_as_often_as_configured(accuracy: float) -> None:
    composer = Composer("judge", SimulatedModel(output="judge", judge_accuracy=accuracy), 0)
    verdicts = [composer.compose(call(f"Expected: 3\nAnswer: {n}"), 1).text for n in (3, 4)]
    assert verdicts == (["yes", "no"] if accuracy else ["no", "yes"])
