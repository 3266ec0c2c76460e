"""A simulated model answers JSON that follows the requested schema, or breaks it as configured."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest

from fairlane.core.clock import SystemClock
from fairlane.evaluators.agents import read_batch, read_opinion
from fairlane.evaluators.rubrics import answer_format
from fairlane.lab.simulator.model.replies import Composer
from fairlane.lab.simulator.model.served_model import ServedModel
from fairlane.lab.simulator.protocols.openai.chat import OpenAIChat
from fairlane.lab.simulator.wire.dialect import RequestError
from fairlane.model.evaluators import Criterion
from fairlane.testing import SimulatedModel

CRITERIA = tuple(Criterion(id=each, description="…") for each in ("a", "b", "c"))


def ask(form: Any, **model: Any) -> str:
    payload = {"model": "m", "messages": [{"role": "user", "content": "hello"}], "response_format": form}
    composer = Composer("m", SimulatedModel(output="schema", **model), 0)
    return composer.compose(OpenAIChat().parse(payload), 8).text


def test_a_batch_has_an_entry_for_every_value_of_its_enum() -> None:
    read = read_batch(ask(answer_format(CRITERIA, batch=True)), CRITERIA)
    assert (set(read.opinions), read.malformed) == ({"a", "b", "c"}, ())


def test_configured_entries_are_left_out_or_broken() -> None:
    answer = ask(answer_format(CRITERIA, batch=True), schema_omits=("a",), schema_breaks=("b",))
    read = read_batch(answer, CRITERIA)
    assert set(read.opinions) == {"c"}
    (broken,) = map(json.loads, read.malformed)
    assert (broken["criterion_id"], broken["score"]) == ("b", "high")


def test_a_single_object_is_whole_although_lists_leave_entries_out() -> None:
    answer = ask(answer_format(CRITERIA[:1], batch=False), schema_omits=("a",), schema_breaks=("a",))
    assert 1 <= read_opinion(answer, CRITERIA[0]).score <= 5


def test_types_are_kept_and_the_same_question_has_the_same_answer() -> None:
    properties = {
        "n": {"type": "integer", "minimum": 7, "maximum": 7},
        "yes": {"type": "boolean"},
        "one": {"enum": ["x", "y"]},
        "many": {"type": "array", "items": {"type": "string"}},
        "odd": {},
    }
    form = {
        "type": "json_schema",
        "json_schema": {"name": "n", "schema": {"type": "object", "properties": properties}},
    }
    answer = ask(form)
    value = json.loads(answer)
    assert (value["n"], value["one"] in "xy", value["odd"]) == (7, True, None)
    assert isinstance(value["yes"], bool)
    assert all(isinstance(each, str) for each in value["many"])
    assert ask(form) == answer


@pytest.mark.parametrize("form", [None, {"type": "text"}, {"type": "json_object"}])
def test_without_a_schema_the_answer_is_filler(form: Any) -> None:
    assert ask(form).startswith("sim-")


@pytest.mark.parametrize(
    "form",
    ["json", {}, {"type": "json_schema"}, {"type": "json_schema", "json_schema": {"schema": {}}}],
)
def test_an_invalid_response_format_is_rejected(form: Any) -> None:
    with pytest.raises(RequestError, match="response_format"):
        ask(form)


NINES = "9" * 400
PROMPTS = (
    "\ud83d alone",
    f"What is {NINES} / 7?",
    "- a (1.2.3 to .): x\nyes or no",
    f"Question: {NINES} / 7\nAnswer: 1",
)
SCHEMAS: tuple[Any, ...] = (
    {},
    {"enum": 5},
    {"type": "array", "items": True},
    {"type": "object", "properties": []},
    *(
        {"type": "object", "properties": {"a": each}}
        for each in (1, {"enum": []}, {"enum": 5}, {"type": "integer", "minimum": "x"})
    ),
)


@pytest.mark.parametrize("output", ["text", "echo", "judge", "schema", "assistant"])
@pytest.mark.parametrize("prompt", PROMPTS, ids=ascii)
def test_odd_prompts_and_schemas_are_answered_or_refused_in_words(output: Any, prompt: str) -> None:
    model = SimulatedModel(output=output, judge_accuracy=0.5)
    served = ServedModel("m", model, Composer("m", model, 0), 0, SystemClock())
    asked = {"model": "m", "messages": [{"role": "user", "content": prompt}]}
    for schema in SCHEMAS:
        form = {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}
        with suppress(RequestError):
            served.complete(served.arrive(OpenAIChat().parse({**asked, "response_format": form})))
    served.complete(served.arrive(OpenAIChat().parse(asked)))
