"""A simulated model that is asked for JSON of a schema says such JSON, or breaks it where it is told to."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fairlane.evaluators.agents import answer_format, read_batch, read_opinion
from fairlane.evaluators.spec import Criterion
from fairlane.testing import SimulatedModel
from fairlane.testing.provider.dialect import RequestError
from fairlane.testing.provider.protocols.openai_chat import OpenAIChat
from fairlane.testing.provider.replies import Composer

CRITERIA = tuple(Criterion(id=each, description="…") for each in ("a", "b", "c"))


def ask(form: Any, **model: Any) -> str:
    payload = {"model": "m", "messages": [{"role": "user", "content": "hello"}], "response_format": form}
    composer = Composer("m", SimulatedModel(output="schema", **model), 0)
    return composer.compose(OpenAIChat().parse(payload), 8).text


def test_a_batch_has_an_entry_for_every_value_of_its_enum() -> None:
    read = read_batch(ask(answer_format(CRITERIA, batch=True)), CRITERIA)
    assert (set(read.opinions), read.malformed) == ({"a", "b", "c"}, ())


def test_entries_are_left_out_and_broken_where_the_model_is_told_to() -> None:
    said = ask(answer_format(CRITERIA, batch=True), schema_omits=("a",), schema_breaks=("b",))
    read = read_batch(said, CRITERIA)
    assert set(read.opinions) == {"c"}
    (broken,) = map(json.loads, read.malformed)
    assert (broken["criterion_id"], broken["score"]) == ("b", "high")


def test_a_single_object_is_whole_whatever_lists_leave_out() -> None:
    said = ask(answer_format(CRITERIA[:1], batch=False), schema_omits=("a",), schema_breaks=("a",))
    assert 1 <= read_opinion(said, CRITERIA[0]).score <= 5


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
    said = ask(form)
    value = json.loads(said)
    assert (value["n"], value["one"] in "xy", value["odd"]) == (7, True, None)
    assert isinstance(value["yes"], bool)
    assert all(isinstance(each, str) for each in value["many"])
    assert ask(form) == said


@pytest.mark.parametrize("form", [None, {"type": "text"}, {"type": "json_object"}])
def test_without_a_schema_it_says_filler(form: Any) -> None:
    assert ask(form).startswith("sim-")


@pytest.mark.parametrize(
    "form",
    ["json", {}, {"type": "json_schema"}, {"type": "json_schema", "json_schema": {"schema": {}}}],
)
def test_a_response_format_that_is_none_is_refused(form: Any) -> None:
    with pytest.raises(RequestError, match="response_format"):
        ask(form)
