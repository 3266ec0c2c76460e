"""A row's objects, lists and truth values become JSON where a text is needed: in prompts and as outputs."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from redis import Redis

from fairlane.core.errors import TemplateError
from fairlane.evaluators.scorers import as_text
from fairlane.model.evaluators import ExactMatch, JsonValid
from fairlane.store.read.reading import RecordReader
from fairlane.templates.template import Template
from tests.support.scheduler_parts import Parts

SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
)
JSON_VALUES = st.recursive(
    SCALARS,
    lambda part: st.lists(part, max_size=4) | st.dictionaries(st.text(), part, max_size=4),
    max_leaves=12,
)


def rendered(text: str, value: Any) -> str:
    return Template("prompt", text).render({"q": value})


@given(JSON_VALUES.filter(lambda value: isinstance(value, dict | list | bool)))
@pytest.mark.parametrize(
    "text",
    ["{{ q }}", "{{ q|string }}", "{{ '' ~ q }}", "{{ [q]|join }}", "{% set p = q %}{{ p }}", "{{ row.q }}"],
)
def test_what_a_template_prints_is_the_json_of_the_value(text: str, value: Any) -> None:
    printed = rendered(text, value)
    assert json.loads(printed) == value
    assert printed == rendered("{{ q|tojson }}", value)


@given(st.text() | st.integers() | st.floats(allow_nan=False))
@pytest.mark.parametrize("text", ["{{ q }}", "{{ q|string }}", "{{ '' ~ q }}"])
def test_texts_and_numbers_are_printed_as_they_are(text: str, value: Any) -> None:
    assert rendered(text, value) == str(value)


def test_letters_are_printed_and_not_escaped() -> None:
    assert rendered("{{ q }}", {"a": "é <b>"}) == '{"a": "é <b>"}'


@pytest.mark.parametrize(
    "text", ["{{ [none, q] }}", "{{ [q.items()] }}", "{{ {(1, 2): q} }}", "{{ [[q.missing]] }}"]
)
def test_a_value_that_json_has_not_is_an_error_of_the_template(text: str) -> None:
    if "none" in text:
        assert rendered(text, True) == "[null, true]"
    else:
        with pytest.raises(TemplateError):
            rendered(text, {"a": 1})


def test_a_value_nested_too_deeply_is_an_error_of_the_template() -> None:
    deep: Any = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(TemplateError):
        rendered("{{ q }}", deep)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"k": 1, "t": True}, {"t": True, "k": 1}),
        (True, True),
        (1.0, 1),
        (["x"], ["x"]),
        ("x", "x"),
        (1e300, 1e300),
    ],
)
def test_an_output_that_a_row_gives_equals_the_same_value(
    fake_redis: Redis, value: Any, expected: Any
) -> None:
    parts = Parts(fake_redis)
    evaluators = (ExactMatch(name="same", expected="a"), JsonValid(name="json"))
    run = parts.admit(
        [{"out": value, "a": expected}], prompts=(), models=(), output_field="out", evaluators=evaluators
    )
    parts.feed_all()
    (record,) = RecordReader(parts.redis, parts.keys, run.plan.spec).records([0])
    assert record.output == as_text(value)
    assert record.scores == {"same": 1.0, "json": float(value != "x")}
