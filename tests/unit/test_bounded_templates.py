"""A template's text methods take linear time and its whole numbers stay short, with the results of Python."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.core.errors import TemplateError
from fairlane.templates import operations, vocabulary
from fairlane.templates.template import Template

TEXTS = st.text(st.sampled_from("ab, "), max_size=20)
PLACES = st.none() | st.integers(-25, 25)


@given(text=TEXTS, wanted=st.text(st.sampled_from("ab, "), max_size=3), start=PLACES, end=PLACES)
def test_rfind_and_rindex_are_those_of_python(
    text: str, wanted: str, start: int | None, end: int | None
) -> None:
    found = text.rfind(wanted, start, end)
    assert operations.rfind(text, wanted, start, end) == found
    if found < 0:
        with pytest.raises(ValueError, match="not found"):
            operations.rindex(text, wanted, start, end)
    else:
        assert operations.rindex(text, wanted, start, end) == found


@given(
    text=TEXTS, separator=st.text(st.sampled_from("ab, "), min_size=1, max_size=3), most=st.integers(-1, 5)
)
def test_rpartition_and_rsplit_are_those_of_python(text: str, separator: str, most: int) -> None:
    assert operations.rpartition(text, separator) == text.rpartition(separator)
    assert operations.rsplit(text, separator, most) == text.rsplit(separator, most)
    assert operations.rsplit(text, None, most) == text.rsplit(None, most)


@pytest.mark.parametrize("name", ["rfind", "rindex", "rpartition", "rsplit"])
def test_no_template_reaches_a_search_from_the_right_of_python(name: str) -> None:
    assert vocabulary.METHODS[str][name] is getattr(operations, name)


def render(template: str, **row: Any) -> str:
    return Template("prompt", template).render(row)


def test_a_long_search_from_the_right_ends() -> None:
    text, wanted = "a" * 600_000, "ab" + "a" * 300_000
    assert render("{{ s.rfind(p) }}", s=text, p=wanted) == "-1"


@pytest.mark.parametrize(
    "template",
    [
        "{{ x // 3 }}",
        "{{ x - 1 }}",
        "{{ x % 7 }}",
        "{{ 5 // x }}",
        "{{ 5 % x }}",
        "{{ x / 3 }}",
        "{{ t|int(0, 36) }}",
    ],
)
def test_whole_numbers_are_bounded_where_they_are_computed_with(template: str) -> None:
    with pytest.raises(TemplateError, match="bits is larger"):
        render(template, x=1 << 5000, t="z" * 1000)


@pytest.mark.parametrize(
    ("template", "shown"),
    [
        ("{{ 7 // 2 }}", "3"),
        ("{{ 7 - 9 }}", "-2"),
        ("{{ 7 % 4 }}", "3"),
        ("{{ 7 / 2 }}", "3.5"),
        ("{{ '12'|int }}", "12"),
    ],
)
def test_usual_numbers_are_those_of_python(template: str, shown: str) -> None:
    assert render(template) == shown


def test_many_divisions_of_long_numbers_use_the_allowance_up() -> None:
    loop = "{% for a in r %}{% for b in r %}{% if x is divisibleby y %}{% endif %}{% endfor %}{% endfor %}"
    with pytest.raises(TemplateError, match="too much work"):
        render(loop, r=list(range(100)), x=1 << 13_000, y=(1 << 6000) + 1)


@given(text=st.text(alphabet="ab \n\u00a0é"), chars=st.none() | st.text(alphabet="ab \né", max_size=4))
def test_strip_lstrip_and_rstrip_are_those_of_python(text: str, chars: str | None) -> None:
    assert operations.strip(text, chars) == text.strip(chars)
    assert operations.lstrip(text, chars) == text.lstrip(chars)
    assert operations.rstrip(text, chars) == text.rstrip(chars)


@pytest.mark.parametrize(
    "template", ["{{ s.strip(p) }}", "{{ s.lstrip(p) }}", "{{ s.rstrip(p) }}", "{{ s|trim(p) }}"]
)
def test_stripping_takes_no_product_of_lengths(template: str) -> None:
    row = {"s": "\u0161" * 60_000, "p": "\u0261" * 60_000 + "\u0161"}
    began = time.process_time()
    assert Template("prompt", template).render(row) == ""
    assert time.process_time() - began < 0.5, "Python looks through all signs for each character"
