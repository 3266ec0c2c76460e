"""One reader finds the JSON of an answer, whatever a model writes around it, and says why it finds none."""

from __future__ import annotations

import json
import time
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from fairlane import criterion, json_valid
from fairlane.core.json_answers import Found, JsonProblem, find_json, json_in, without_objects
from fairlane.core.reasoning import without_reasoning
from fairlane.evaluators.agents import Opinion, flaw, read_batch, read_opinion
from fairlane.evaluators.scorers import score
from fairlane.export.parsed import parse_outputs
from tests.support.records import make_record

WHOLE = '{"score": 4, "argument": "x"}'
AROUND = [
    "{}",
    "\ufeff{}\n",
    "```json\n{}\n```",
    "```JSON\n{}\n```",
    "```\n{}```",
    "```json5\n{}\n```\nLet me know!",
    "Here is my evaluation:\n```json\n{}\n```",
    "Sure! {}",
    "Here it is: {}\n\nI hope this helps.",
    "{}\n\nI hope this helps.",
    "The set {{1, 2}} and \\frac{{1}}{{2}} count.\n{}",
    '<think>\nIs it {{"score": 1}}?\n</think>\n\n{}',
    "It is a 1, or no:\n</think>\n{}",
]
CLARITY = criterion("clarity", "Is it clear?", minimum=1, maximum=5)


class Scored(BaseModel):
    score: int
    argument: str


@pytest.mark.parametrize("around", AROUND)
def test_every_reader_finds_the_same_json(around: str) -> None:
    answer = around.format(WHOLE)
    assert json_in(answer) == json.loads(WHOLE)
    assert read_opinion(answer, CLARITY) == Opinion(4, "x")
    (parsed,) = parse_outputs([make_record(output=answer)], Scored)
    assert parsed.value == Scored(score=4, argument="x")
    assert score(json_valid(fenced=True), answer, {}).value == 1.0


@pytest.mark.parametrize(
    ("answer", "value"),
    [
        ('{"a": "one\ntwo"}', {"a": "one\ntwo"}),
        (r'{"a": "the set \{1\} and \(x\)"}', {"a": r"the set \{1\} and \(x\)"}),
        (r'Here: {"a": "\sum \\ \u00e4"}', {"a": r"\sum \ ä"}),
        ('{"a":\u00a0"b\u00a0c"}', {"a": "b\u00a0c"}),
        ('{"a": "it wrote </think> twice"}', {"a": "it wrote </think> twice"}),
        ('{"a": "use ```x```"}', {"a": "use ```x```"}),
        ('Here:\n```json\n{"a": "use ```x```"}\n```', {"a": "use ```x```"}),
        ('{"a": 1, "a": 1}', {"a": 1}),
        ('{"a": 1}\n\n{"a": 1}', {"a": 1}),
        ("It is:\n```\n[1, 2]\n```", [1, 2]),
        ("4", 4),
    ],
)
def test_json_is_read_as_it_is_meant(answer: str, value: Any) -> None:
    assert json_in(answer) == value


@pytest.mark.parametrize(
    ("answer", "problem", "torn"),
    [
        ("", "no JSON", False),
        ("four", "no JSON", False),
        ('The output {"score": 1} is wrong.', "part of a sentence", False),
        ('{"score": 1} is what it wrote', "part of a sentence", False),
        ('It wrote {"score": 1}, so:\n{"score": 4}', "differ", False),
        ('{"a": 1}\n{"a": true}', "differ", False),
        ('{"a": 1, "a": 2}', "two values of 'a'", True),
        ('{"a": {"b": 1, "b": true}}', "two values of 'b'", True),
        ('{"a": "so', "breaks off", True),
        ('```json\n{"a": [1, 2', "breaks off", True),
        ('Here:\n{"a": "so: 1', "breaks off", True),
        ('{"a": 1,}', "cannot be read", True),
        ("{'a': 1}", "cannot be read", True),
    ],
)
def test_an_answer_without_json_of_its_own_says_why(answer: str, problem: str, torn: bool) -> None:
    with pytest.raises(JsonProblem, match=problem) as raised:
        json_in(answer)
    assert raised.value.torn is torn
    assert ("breaks off" in str(raised.value)) == ("breaks off" in problem)


def test_exact_json_takes_no_liberties() -> None:
    for answer in ('{"a": "one\ntwo"}', r'{"a": "\("}', '{"a": NaN}', '```\n{"a":\u00a01}\n```'):
        assert score(json_valid(fenced=True), answer, {}).value == 0.0
    assert score(json_valid(fenced=True, required=["a"]), '```\n{"a": 1}\n```', {}).value == 1.0
    assert score(json_valid(), '```\n{"a": 1}\n```', {}).value == 0.0


values = st.dictionaries(
    st.text(max_size=8), st.text(max_size=12) | st.integers() | st.booleans(), min_size=1
)
prose = st.lists(st.sampled_from(["So", "be it", "x < 3", "{1, 2}", "\\{", "[1]", "**", "a\nb", "…"])).map(
    " ".join
)


@given(values, prose, st.sampled_from(["{}\n{}", "{}\n```json\n{}\n```\n", "{}:\n\n{}\n\nThank you."]))
def test_an_object_is_found_in_any_prose_without_another(
    value: dict[str, Any], before: str, around: str
) -> None:
    found = find_json(around.replace("{}", before, 1).replace("{}", json.dumps(value), 1))
    assert found.value == value


@given(values, values)
def test_two_objects_that_differ_are_none(one: dict[str, Any], other: dict[str, Any]) -> None:
    texts = json.dumps(one, sort_keys=True), json.dumps(other, sort_keys=True)
    if texts[0] != texts[1]:
        with pytest.raises(JsonProblem):
            find_json("\n\n".join(texts))


@given(values, st.data())
def test_json_that_breaks_off_is_never_read(value: dict[str, Any], data: st.DataObject) -> None:
    text = json.dumps(value)
    cut = text[: data.draw(st.integers(1, len(text) - 1))]
    with pytest.raises(JsonProblem):
        find_json(f"Here:\n{cut}")


@given(st.text(alphabet=st.sampled_from('{}[]":,\\`\n 1atrue<think>/')))
def test_any_text_is_read_or_has_a_problem(text: str) -> None:
    assert len(without_objects(text)) <= len(text)
    with suppress(JsonProblem):
        assert isinstance(find_json(text), Found)


@pytest.mark.parametrize(
    "piece",
    ['{"', '{"a":', "{}", '{"a":1} ', "```", "```x\n", '\\"', "[{", '" ', "<think>", "</think>", "[", "{ "],
)
def test_a_hostile_answer_is_read_in_moderate_time(piece: str) -> None:
    start = time.process_time()
    for before in ("", '{"a":"', "x\n"):
        text = before + (piece * 300_000)[:300_000]
        without_objects(text)
        try:
            find_json(text)
        except JsonProblem:
            continue
    assert time.process_time() - start < 5


@pytest.mark.parametrize(
    ("text", "rest"),
    [
        ("<think>It is 4.</think>\n\n4", "4"),
        ("\n<think>\n\n</think>\n\n4\n", "4\n"),
        ("<think>a</think><think>b</think> 4", "4"),
        ("<think>It is 4, or", ""),
        ("So it is 4.\n</think>\n\n4", "4"),
        ("<think> and </think> are tags", "are tags"),
        ("The tags <think> and </think> enclose it", "The tags <think> and </think> enclose it"),
        ("Close it with `</think>`.", "Close it with `</think>`."),
        ("```\na</think>\n```", "```\na</think>\n```"),
        ('{"a": "</think>"}', '{"a": "</think>"}'),
        ('"The </think> tag"', '"The </think> tag"'),
        ("  4 ", "  4 "),
    ],
)
def test_reasoning_is_taken_out_where_a_text_begins_with_it(text: str, rest: str) -> None:
    assert without_reasoning(text) == rest


@given(st.text().filter(lambda text: "</think>" not in text), st.text(alphabet='ab{}" \n<>'))
def test_an_answer_after_reasoning_is_what_is_left(reasoning: str, answer: str) -> None:
    assert without_reasoning(f"<think>{reasoning}</think>\n\n{answer}") == answer.lstrip(" \n")
    assert without_reasoning(f"<think>{reasoning}") == ""


@pytest.mark.parametrize("score", ["true", "false", "null", '"true"', "[4]", "NaN"])
def test_an_agents_score_is_a_number(score: str) -> None:
    answer = f'{{"score": {score}, "argument": "so"}}'
    assert flaw(answer, CLARITY)
    entry = f'{{"criterion_id": "clarity", "score": {score}}}'
    assert read_batch(f'{{"evaluations": [{entry}]}}', [CLARITY]).opinions == {}


def test_an_agent_may_give_no_argument() -> None:
    assert read_opinion('{"score": 4, "argument": null}', CLARITY) == Opinion(4, "")


def test_entries_that_agree_count_once() -> None:
    entries = [{"criterion_id": "clarity", "score": score, "argument": "so"} for score in (4, "4", 4.0)]
    read = read_batch(json.dumps(entries), [CLARITY])
    assert (read.opinions, read.malformed) == ({"clarity": Opinion(4, "so")}, ())


@pytest.mark.parametrize(
    "answer",
    [
        "`{}`",
        "**{}**",
        "__{}__",
        "{}.",
        "{}</s>",
        "{}<|im_end|>",
        "<answer>{}</answer>",
        "<answer>\n{}\n</answer>",
        "**Answer:** {}",
        "Here it is: `{}`",
        "**`{}`**.",
        "My answer:\n**{}**</s>",
    ],
)
def test_what_is_wrapped_around_an_object_is_no_prose(answer: str) -> None:
    written = '{"score": 4, "argument": "it `is` so"}'
    assert json_in(answer.replace("{}", written)) == {"score": 4, "argument": "it `is` so"}


@pytest.mark.parametrize("answer", ["I would not say {} of it", "`{} of it", "<a>{}</b>", "is {}. Not so"])
def test_an_object_within_a_sentence_does_not_count_and_the_error_says_why(answer: str) -> None:
    with pytest.raises(JsonProblem, match="its JSON is part of a sentence"):
        json_in(answer.replace("{}", '{"score": 4}'))
