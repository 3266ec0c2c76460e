"""A page of rows is bounded before its values are made: a small blob costs no reader much."""

from __future__ import annotations

import json
import zlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.core.errors import BrokenPage
from fairlane.datasets import array as module
from fairlane.datasets import rows as of_rows
from fairlane.datasets.rows import MAX_PAGE_ROWS, bounded_rows, decode_page, encode_page
from fairlane.model.run import RunSpec

BOMBS = {
    "rows": b"[" + b"{}," * 20_000_000 + b"{}]",
    "numbers": b"[" + b"1," * 30_000_000 + b"1]",
    "lists in a row": b'[{"a":[' + b"[]," * 20_000_000 + b"[]]}]",
    "open brackets": b"[" * 30_000_000,
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_before_a_value_is_made(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_decode_at", lambda *_: pytest.fail("a value was made"))
    blob = zlib.compress(BOMBS[name], 1)
    for read in (decode_page, lambda each: bounded_rows(each, 1 << 20)):
        with pytest.raises(BrokenPage, match="more than 4,000,000 values"):
            read(blob)


def test_no_more_rows_are_read_than_a_page_may_have(monkeypatch: pytest.MonkeyPatch) -> None:
    made, decode = 0, module._decode_at

    def counted(document: str, at: int) -> Any:
        nonlocal made
        made += 1
        return decode(document, at)

    monkeypatch.setattr(module, "_decode_at", counted)
    with pytest.raises(BrokenPage, match="more than 10,000 rows"):
        decode_page(zlib.compress(b"[" + b"{}," * 1_000_000 + b"{}]"))
    assert made == MAX_PAGE_ROWS + 1


def test_a_page_may_have_as_many_rows_as_a_run_may_ask_for() -> None:
    assert RunSpec.model_fields["page_rows"].metadata[1].le == MAX_PAGE_ROWS
    assert len(decode_page(encode_page([{}] * MAX_PAGE_ROWS))) == MAX_PAGE_ROWS


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(
    rows=st.lists(st.dictionaries(st.text(max_size=5), JSON, max_size=3), max_size=5),
    indent=st.none() | st.integers(0, 2),
)
def test_rows_are_those_that_were_written(rows: list[dict[str, Any]], indent: int | None) -> None:
    text = json.dumps(rows, indent=indent)
    assert decode_page(zlib.compress(f" {text}\n".encode())) == rows
    assert decode_page(encode_page(rows)) == rows


@pytest.mark.parametrize("few", [0, 100_000])
@given(text=st.text(st.sampled_from('[]{},": 1a\n'), max_size=20))
def test_a_text_is_read_exactly_where_it_is_a_list_of_objects(text: str, few: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(of_rows, "_FEW_VALUES", few)
        check_reading(text)


def check_reading(text: str) -> None:
    """A page of ``text`` is read as JSON reads it, or refused."""
    wanted: Any = None
    try:
        wanted = json.loads(text)
        fits = isinstance(wanted, list) and all(isinstance(row, dict) for row in wanted)
    except ValueError:
        fits = False
    if fits:
        assert decode_page(zlib.compress(text.encode())) == wanted
    else:
        with pytest.raises(BrokenPage):
            decode_page(zlib.compress(text.encode()))
