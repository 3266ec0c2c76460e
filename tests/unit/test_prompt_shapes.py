"""Templates that make JSON and paths: values keep their type, and whatever they hold stays data."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.core.errors import TemplateError
from fairlane.templates.shapes import MISSING, JsonTemplate, PathTemplate, Value, names_in

NAMES: dict[str, Any] = {
    "model": "m-1",
    "prompt": "hi",
    "messages": [{"role": "user", "content": "hi"}],
    "params": {"n": 3, "t": 0.5, "on": True, "none": None, "list": [1, "a"], "items": "own"},
}

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**50), 2**50) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


def rendered(document: Any, **names: Any) -> Any:
    return JsonTemplate("body", document).render({**NAMES, **names})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{{ params.n }}", 3),
        ("{{ params.t }}", 0.5),
        ("{{ params.on }}", True),
        ("{{ params.none }}", None),
        ("{{ params.list }}", [1, "a"]),
        ("{{ params.items }}", "own"),
        ("{{ messages }}", [{"role": "user", "content": "hi"}]),
        ("{{ messages[0].content }}", "hi"),
        ("{{- params.n -}}", 3),
        ("{{ -params.n }}", -3),
        ("{{ params.n + 1 }}", 4),
        ("{{ params.q | default(7) }}", 7),
        ("{{ 'a' if params.on else 'b' }}", "a"),
        ("{{ {'x': params.n} }}", {"x": 3}),
        ("n is {{ params.n }}", "n is 3"),
        (" {{ params.n }}", " 3"),
        ("{{ params.n }}{{ params.n }}", "33"),
        ("{% if params.on %}{{ params.n }}{% endif %}", "3"),
        ("plain", "plain"),
        ("", ""),
    ],
)
def test_an_expression_alone_keeps_its_type_and_all_else_is_text(text: str, value: Any) -> None:
    assert rendered(text) == value
    assert type(rendered(text)) is type(value)


def test_what_is_no_text_stays_as_it_is() -> None:
    document = {"a": 1, "b": [True, None, 2.5], "c": {"{{ params.n }}": "x"}}
    assert rendered(document) == document


def test_an_entry_whose_value_is_missing_is_left_out() -> None:
    document = {"a": "{{ params.q }}", "b": ["{{ params.q }}", "{{ params.n }}"], "c": "{{ params.q.r }}"}
    assert rendered(document) == {"b": [3]}
    assert rendered("{{ params.q }}") is MISSING


def test_a_text_around_a_missing_value_cannot_be_made() -> None:
    with pytest.raises(TemplateError, match=r"body\.a\[0\]"):
        rendered({"a": ["x {{ params.q }}"]})


@given(json_values)
def test_any_value_of_a_run_arrives_as_it_is(value: Any) -> None:
    assert rendered({"x": "{{ params.v }}"}, params={"v": value}) == {"x": value}


@given(st.text(max_size=50))
def test_markup_in_a_value_is_not_rendered(text: str) -> None:
    hostile = "{{ 7 * 7 }}{% for x in y %}" + text
    assert rendered({"x": "{{ prompt }}", "y": "say: {{ prompt }}"}, prompt=hostile) == {
        "x": hostile,
        "y": f"say: {hostile}",
    }
    assert json.loads(json.dumps(rendered(["{{ prompt }}"], prompt=hostile))) == [hostile]


@pytest.mark.parametrize(
    "text",
    [
        "{{ params.__class__ }}",
        "{{ params.n.__class__.__mro__ }}",
        "{{ messages.append }}",
        "{{ range(9) }}",
        "{{ self }}",
        "{{ config }}",
    ],
)
def test_an_expression_reaches_nothing_but_its_names(text: str) -> None:
    try:
        found = rendered({"x": text})
    except TemplateError:
        return
    assert found == {}


@pytest.mark.parametrize(
    "text", ["{{ params.n ", "{{ }}", "{{ 1 + }}", "{% include 'x' %}", "{{ x | nope }}"]
)
def test_what_does_not_compile_is_reported_with_its_place(text: str) -> None:
    with pytest.raises(TemplateError, match=r"^body\.a\[1\]"):
        JsonTemplate("body", {"a": ["x", text]})


def test_work_is_bounded() -> None:
    with pytest.raises(TemplateError):
        rendered("{{ 'x' * 1000000 * 1000 }}")


def test_a_document_is_only_so_deep() -> None:
    deep: Any = "x"
    for _ in range(60):
        deep = [deep]
    with pytest.raises(TemplateError, match="deep"):
        JsonTemplate("body", deep)


def test_a_value_that_is_several_things_is_none() -> None:
    with pytest.raises(TemplateError):
        Value("f", "{{ a }} b")


def test_names_are_those_of_all_templates() -> None:
    assert names_in({"a": ["{{ x }}", {"b": "t {{ y.z }}"}], "c": 1, "d": "{{ params.q }}"}) == {
        "x",
        "y",
        "params",
    }


# Paths


def path(text: str, **names: Any) -> str:
    return PathTemplate("path", text).render(names)


@pytest.mark.parametrize(
    ("text", "value", "expected"),
    [
        ("/m/{{ v }}/run", "a b", "/m/a%20b/run"),
        ("/m/{{ v }}", "a/b", "/m/a%2Fb"),
        ("/m/{{ v }}", "../../admin", "/m/..%2F..%2Fadmin"),
        ("/m/{{ v }}", "x\r\nHost: evil", "/m/x%0D%0AHost%3A%20evil"),
        ("/m/{{ v }}", "x?y=1#z", "/m/x%3Fy%3D1%23z"),
        ("/m/{{ v }}", "%2e%2e", "/m/%252e%252e"),
        ("/m?q={{ v }}&k=1", "a&k=2", "/m?q=a%26k%3D2&k=1"),
        ("/m/{{ v | upper }}", "a/b", "/m/A%2FB"),
        ("/m/{{ v }}", 7, "/m/7"),
        ("/m/{{ v }}", "{{ 7 * 7 }}", "/m/%7B%7B%207%20%2A%207%20%7D%7D"),
        ("/m/{{ v }}", "\ud800", "/m/%3F"),
        ("", "x", ""),
    ],
)
def test_a_value_in_a_path_is_percent_encoded(text: str, value: Any, expected: str) -> None:
    assert path(text, v=value) == expected


@given(st.text(max_size=30))
def test_no_value_adds_a_part_or_leads_out_of_a_path(value: str) -> None:
    try:
        made = path("/a/{{ v }}/b?q={{ v }}", v=value)
    except TemplateError:
        assert value in ("", ".", "..")
        return
    place, _, query = made.partition("?")
    first, second, third, fourth = place.split("/")
    assert (first, second, fourth) == ("", "a", "b")
    assert third not in (".", "..")
    assert unquote(third) == value
    assert query.startswith("q=")
    assert "&" not in query
    assert made.isascii()
    assert made.isprintable()
    assert not set(made) & set(" #\r\n")


@pytest.mark.parametrize("value", [".", "..", "", None, [1], {"a": 1}])
def test_a_path_refuses_what_would_change_its_parts(value: Any) -> None:
    with pytest.raises(TemplateError):
        path("/m/{{ v }}", v=value)
    with pytest.raises(TemplateError):
        path("/m/{{ missing }}")


def test_dots_that_come_from_two_pieces_are_refused() -> None:
    with pytest.raises(TemplateError):
        path("/m/.{{ v }}/x", v=".")


@pytest.mark.parametrize(
    "text",
    [
        "m",
        "/m x",
        "/m\n",
        "/m/{% if a %}",
        "/m/{{ v",
        "/m/../x",
        "/m#x",
        "/ü",
        "http://elsewhere/{{ v }}",
        "/m/{# c #}",
    ],
)
def test_a_path_that_is_none_is_reported(text: str) -> None:
    with pytest.raises(TemplateError, match=r"^path: "):
        PathTemplate("path", text)
