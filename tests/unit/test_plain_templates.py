"""Templates that only insert names read as Jinja reads them, in time linear in their size."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.core.errors import TemplateError
from fairlane.templates.meter import MAX_CHARS
from fairlane.templates.template import Template, plain_template

SIGNS = st.sampled_from(
    [
        *(
            "{{ q }}",
            "{{q}}",
            "{{\n q\r\n}}",
            "{{ n }}",
            "{{ missing }}",
            "{{ self }}",
            "{{ loop }}",
            "{{ not }}",
        ),
        *("{{ q|upper }}", "{{ q.x }}", "{{- q -}}", "{{{ q }}}", "{ {q} }", "{% raw %}{{ q }}{% endraw %}"),
        *(
            "{# q #}",
            "{",
            "}",
            "}}",
            "%}",
            "#}",
            "{{",
            "{%",
            "\r\n",
            "\r",
            "\n",
            " ",
            "text",
            "\\",
            "'",
            "é",
            "##",
        ),
        *("{{ True }}", "{{ none }}", "{{ if }}", "{{ q }}}", "{{ 1 }}", "{{ _q }}"),
        *("{{ é }}", "{{+ q }}"),
    ]
)
VALUES = st.one_of(
    st.text(max_size=20),
    st.sampled_from(["{{ n }}", "{% if %}", "\r\n", "\x00"]),
    st.integers(),
    st.floats(),
    st.none(),
    st.booleans(),
    st.lists(st.integers(), max_size=3),
)


def rendered(template: Template, names: dict[str, object], *, by_jinja: bool) -> tuple[str, str | None]:
    if by_jinja:
        template._plain = None
    try:
        return template.render_variables(dict(names)), None
    except TemplateError as error:
        return str(error), error.variable


@given(st.lists(SIGNS, max_size=8).map("".join), VALUES, VALUES)
def test_a_plain_template_renders_as_jinja_does(text: str, q: object, n: object) -> None:
    names = {"q": q, "n": n}
    if plain_template(text) is None:
        return
    assert rendered(Template("prompt", text), names, by_jinja=False) == rendered(
        Template("prompt", text), names, by_jinja=True
    )


@given(st.lists(SIGNS, max_size=8).map("".join), VALUES, VALUES)
def test_a_linear_template_stays_within_its_bound(text: str, q: object, n: object) -> None:
    try:
        template = Template("prompt", text)
    except TemplateError:
        return
    chars = template.chars({"q": q, "n": n})
    if chars is not None:
        assert len(template.render_variables({"q": q, "n": n})) <= chars


@pytest.mark.parametrize(
    "text",
    [
        *(
            "{{ s.rfind(p) }}",
            "{{ q|upper }}",
            "{% for c in q %}{{ c }}{% endfor %}",
            "{{ q + q }}",
            "{{ q[0] }}",
        ),
        *(
            "{{ q * 9 }}",
            "{{ q ~ q }}",
            "{{ [q] }}",
            "{{ 'q' }}",
            "{% set a = q %}",
            "{{ q if q }}",
            "{{ q() }}",
        ),
    ],
)
def test_expressions_are_not_plain(text: str) -> None:
    assert plain_template(text) is None
    assert Template("prompt", text).chars(json.loads('{"q": "a", "s": "b", "p": "c"}')) is None


def test_lists_and_missing_names_are_left_to_jinja() -> None:
    template = Template("prompt", "{{ q }}")
    assert template.chars({"q": []}) is None
    assert template.chars({}) is None
    assert template.render({"q": [1, "a"]}) == '[1, "a"]'


def test_a_plain_template_renders_no_more_than_any_other() -> None:
    with pytest.raises(TemplateError, match="renders to more than"):
        Template("prompt", "{{ q }}{{ q }}").render({"q": "a" * (MAX_CHARS // 2 + 1)})


def test_a_checked_template_is_compiled_when_it_renders() -> None:
    template = Template("prompt", "{{ q|upper }}", checked=True)
    assert template._body is None
    assert template.render({"q": "a"}) == "A"
    with pytest.raises(TemplateError, match="there is no filter 'nothing'"):
        Template("prompt", "{{ q|nothing }}", checked=True).render({"q": "a"})
