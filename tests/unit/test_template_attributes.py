"""What a template does not read of a list's entries makes no difference to what it renders."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlane.core.errors import TemplateError
from fairlane.templates.attributes import attributes_read
from fairlane.templates.template import Template

LIST = "_conversation"


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("{{ q }}", set()),
        ("{% for t in _conversation %}{{ loop.index }}{{ t.output }}{% endfor %}", {"output"}),
        (
            "{% for t in _conversation[-3:] | reverse if t.input %}{{ t['output'] }}{% endfor %}",
            {"input", "output"},
        ),
        ("{{ _conversation[-1].prompt[0].content }}{{ _conversation | length }}", {"prompt"}),
        ("{% set last = _conversation | last %}{% if last %}{{ last.output }}{% endif %}", {"output"}),
        ("{{ row._conversation[0].prompt }}{{ row['_conversation'][0].input }}", {"prompt", "input"}),
        ("{{ q[_conversation[0].output] }}", {"output"}),
        *(
            (text, None)
            for text in (
                "{{ _conversation }}",
                "{{ _conversation | tojson }}",
                "{{ _conversation[0] }}",
                "{{ _conversation == other }}",
                "{% for t in _conversation %}{{ t[q] }}{% endfor %}",
                "{% for t in _conversation %}{{ (t or q).prompt }}{% endfor %}",
                "{% for t in _conversation %}{{ loop.previtem.prompt }}{% endfor %}",
                "{% for t in _conversation recursive %}{{ loop(q) }}{% endfor %}",
                "{% for a, b in _conversation %}{% endfor %}",
                "{% macro m(t) %}{{ t.prompt }}{% endmacro %}{{ m(_conversation[0]) }}",
                "{% with c = _conversation %}{{ c[0].prompt }}{% endwith %}",
                "{% set ns.c = _conversation %}{{ ns.c[0].prompt }}",
                "{% set r = row %}{{ r._conversation[0].prompt }}",
                "{{ row.items() }}",
                "{{ row[q] }}",
                "{{ [_conversation][0][0].prompt }}",
                "{% broken",
            )
        ),
    ],
)
def test_what_is_read_of_entries(text: str, read: set[str] | None) -> None:
    assert attributes_read(text, LIST) == read


LISTS = st.sampled_from(["_conversation", "row._conversation", "row['_conversation']", "x"])
LISTS = st.recursive(
    LISTS,
    lambda inner: inner.flatmap(
        lambda each: st.sampled_from(
            [f"{each}[1:]", f"({each} | reverse)", f"({each} | list)", f"({each} or [])"]
        )
    ),
    max_leaves=3,
)
ENTRIES = st.one_of(
    st.sampled_from(["t", "u", "x", "loop.previtem", "(t if t else u)", "[t][0]"]),
    LISTS.flatmap(lambda each: st.sampled_from([f"{each}[0]", f"{each}[-1]", f"({each} | last)"])),
)
VALUES = st.one_of(
    st.tuples(
        ENTRIES, st.sampled_from([".prompt", ".output", "['input']", "[key]", "", "|length", ".keys()"])
    ).map("".join),
    LISTS.flatmap(
        lambda each: st.sampled_from(
            [each, f"{each}|length", f"{each}|tojson", f"{each}|map(attribute='prompt')|join"]
        )
    ),
    st.tuples(ENTRIES, ENTRIES).map(lambda both: f"{both[0]} == {both[1]}"),
    st.sampled_from(
        ["row", "row | length", "row.values()", "row[key]", "t in _conversation", "m(t)", "loop.index"]
    ),
)
PIECES = st.recursive(
    VALUES.map(lambda each: f"{{{{ {each} }}}}"),
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(LISTS, inner).map(lambda e: f"{{% for t in {e[0]} %}}{e[1]}{{% endfor %}}"),
        st.tuples(ENTRIES, inner).map(lambda e: f"{{% set u = {e[0]} %}}{e[1]}"),
        st.tuples(LISTS, inner).map(lambda e: f"{{% set x = {e[0]} %}}{e[1]}"),
        st.tuples(VALUES, inner).map(lambda e: f"{{% if {e[0]} %}}{e[1]}{{% endif %}}"),
        st.tuples(ENTRIES, inner).map(lambda e: f"{{% with t = {e[0]} %}}{e[1]}{{% endwith %}}"),
        inner.map(lambda each: f"{{% macro m(t) %}}{each}{{% endmacro %}}{{{{ m(u) }}}}"),
    ),
    max_leaves=6,
)


def rendered(text: str, entries: list[dict[str, Any]]) -> str:
    try:
        return Template("t", text).render({LIST: entries, "key": "prompt", "q": "a"})
    except TemplateError as error:
        return str(error)


@settings(max_examples=600)
@given(text=PIECES)
def test_entries_with_what_is_read_render_as_whole_ones(text: str) -> None:
    read = attributes_read(text, LIST)
    names = ("prompt", "input", "output")
    if read is None or not read <= set(names):
        return
    whole = [{"prompt": f"p{n}", "input": f"i{n}", "output": f"o{n}"} for n in range(3)]
    kept = [{name: each[name] for name in names if name in read or name == "output"} for each in whole]
    assert rendered(text, kept) == rendered(text, whole)
