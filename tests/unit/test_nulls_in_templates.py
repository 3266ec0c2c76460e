"""A null that a template prints is a missing field, from whatever kind of dataset it comes."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pandas
import pyarrow
import pyarrow.parquet as parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.core.errors import TemplateError
from fairlane.datasets.rows import read_rows
from fairlane.templates.template import Template

ROWS = [{"q": "a", "n": 1.5}, {"q": None, "n": None}]


def _parquet(folder: Path) -> Any:
    parquet.write_table(pyarrow.Table.from_pylist(ROWS), folder / "rows.parquet")
    return folder / "rows.parquet"


def _jsonl(folder: Path) -> Any:
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return folder / "rows.jsonl"


def _json(folder: Path) -> Any:
    (folder / "rows.json").write_text(json.dumps(ROWS))
    return folder / "rows.json"


@pytest.mark.parametrize(
    "dataset",
    [
        *(_parquet, _jsonl, _json),
        lambda _: pandas.DataFrame(ROWS),
        lambda _: pyarrow.Table.from_pylist(ROWS),
        lambda _: ROWS,
    ],
)
@pytest.mark.parametrize("text", ["Q: {{ n }}", "Q: {{ n | string }}", "{% if true %}{{ n }}{% endif %}"])
def test_every_kind_of_dataset_has_the_same_gaps(
    tmp_path: Path, dataset: Callable[[Path], Any], text: str
) -> None:
    first, second = read_rows(dataset(tmp_path))
    template = Template("prompt", text)
    assert template.render(first).endswith("1.5")
    with pytest.raises(TemplateError, match=r"the row(?: has no field 'n'|'s field 'n' is null)") as missing:
        template.render(second)
    assert missing.value.variable == "n"


@pytest.mark.parametrize(
    "text",
    [
        *(
            "{{ q }}",
            "{{- q -}}",
            "{{ q | trim }}",
            "{{ q | upper | trim }}",
            "{{ 'x' ~ q }}",
            "{{ q ~ 'x' }}",
        ),
        *(
            "{{ '%s' % q }}",
            "{{ '%s' | format(q) }}",
            "{{ q | replace('a', 'b') }}",
            "{{ q | default('x') }}",
        ),
        *(
            "{{ q if true else 'x' }}",
            "{{ q or q }}",
            "{% set x = q | trim %}{{ x }}",
            "{{ q | truncate(5) }}",
        ),
        *("{{ 'a' and q }}", "{{ 1 and q | trim }}", "{{ q and 1 }}"),
        *("{% if 1 %}{{ q }}{% endif %}", "{{ '%s %s' % (q, 1) }}", "{{ q | safe }}", "{{ q|e }}"),
    ],
)
def test_a_null_that_becomes_text_is_a_missing_field(text: str) -> None:
    for row in ({"q": None}, {}):
        if "default" in text and not row:
            continue
        words = "the row's field 'q' is null" if row else "the row has no field 'q'"
        with pytest.raises(TemplateError, match=words) as missing:
            Template("prompt", text).render(row)
        assert missing.value.variable == "q"


@pytest.mark.parametrize(
    "text",
    [
        *("{{ q | trim | length }}", "{{ (q | trim).upper() }}", "{{ 'a' + q|trim }}"),
        *("{{ (q | string)[:9] }}", "{{ (1 or 2) and (q | upper)[0] }}"),
    ],
)
def test_work_on_the_text_of_a_null_fails(text: str) -> None:
    with pytest.raises(TemplateError):
        Template("prompt", text).render({"q": None})


@pytest.mark.parametrize(
    "text",
    [
        *("{{ row.q }}", "{{ row['q'] }}", "{{ user.q }}", "{{ row.get('q') }}", "{{ row.get('q') | trim }}"),
        "{% for each in list %}{{ each }}{% endfor %}",
        *("{{ list | join(', ') }}", "{{ list[0] }}", "{{ q ~ n }}", "{{ none }}"),
    ],
)
def test_any_other_null_is_explained(text: str) -> None:
    with pytest.raises(TemplateError, match="a value that it prints is null") as missing:
        Template("prompt", text).render({"q": None, "n": None, "list": [None], "user": {"q": None}})
    assert missing.value.variable is None


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("{% if q %}{{ q }}{% else %}-{% endif %}", "-"),
        ("{{ q or '…' }}", "…"),
        ("{{ q | default('…', true) }}", "…"),
        ("{{ q | default('…', true) | upper }}", "…"),
        ("{{ (q or 'x') | trim }}", "x"),
        ("{{ q | trim or 'x' }}", "x"),
        ("{{ q | trim | upper | default('x', true) }}", "x"),
        ("{{ row.q | trim or 'x' }}", "x"),
        ("{{ 'a' ~ (q or 'x') }}", "ax"),
        ("{{ q if q else '…' }}", "…"),
        ("{{ '' if q is none else q }}", ""),
        ("{{ q is none }}", "true"),
        ("{{ q == none }}", "true"),
        ("{{ q | tojson }}", "null"),
        ("{{ row | tojson }}", '{"q": null}'),
        ("{{ row }}", '{"q": null}'),
        ("{% set x = q %}{{ x or '…' }}", "…"),
        ("{% if q | lower == 'x' %}{% else %}-{% endif %}", "-"),
    ],
)
def test_a_null_may_be_asked_for(text: str, shown: str) -> None:
    assert Template("prompt", text).render({"q": None}) == shown


def test_looking_for_nulls_takes_nothing_of_a_templates_allowance() -> None:
    text = "{% for a in q %}{% for b in q %}{{ a|upper }}{% endfor %}{% endfor %}"
    assert len(Template("prompt", text).render({"q": "a" * 330})) == 330 * 330


EXPRESSIONS = st.recursive(
    st.sampled_from(["q", "row.q", "row['q']", "'a'", "1"]),
    lambda inner: st.one_of(
        st.builds(
            "({} | {})".format, inner, st.sampled_from(["trim", "upper", "string", "default('b')", "e"])
        ),
        st.builds("({} ~ {})".format, inner, inner),
        st.builds("({} or {})".format, inner, inner),
        st.builds("({} and {})".format, inner, inner),
        st.builds("({} if {} else {})".format, inner, inner, inner),
        st.builds("('%s' % {})".format, inner),
        st.builds("({} | default('b', true))".format, inner),
        st.builds("({} | string)[:9]".format, inner),
        st.builds("('a' + ({} | string))".format, inner),
    ),
    max_leaves=6,
)


@given(st.lists(st.builds("{{{{ {} }}}}".format, EXPRESSIONS), min_size=1, max_size=3).map(" ".join))
def test_no_expression_prints_none(text: str) -> None:
    template = Template("prompt", text)
    with suppress(TemplateError):
        assert "none" not in template.render({"q": None}).casefold()
    template.render({"q": "b"})
