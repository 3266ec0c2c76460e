"""Datasets: every form reads as the same stream of rows, and what is wrong is told by row."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.datasets import decode_page, encode_page, pages, read_rows
from fairlane.datasets.pages import MAX_PAGE_BYTES, BrokenPage
from fairlane.errors import SubmissionError

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
KEYS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
ROWS = st.lists(st.dictionaries(KEYS, JSON, max_size=4), max_size=20)


def write(folder: Path, name: str, content: str | bytes) -> Path:
    path = folder / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def refused(dataset: Any) -> SubmissionError:
    with pytest.raises(SubmissionError) as caught:
        list(pages(read_rows(dataset), 10))
    assert caught.value.field == "dataset"
    return caught.value


@given(rows=ROWS, indent=st.sampled_from([None, 2]))
def test_a_json_array_reads_as_its_rows(tmp_path_factory: Any, rows: list[Any], indent: int | None) -> None:
    path = write(tmp_path_factory.mktemp("d"), "d.json", json.dumps(rows, indent=indent))
    assert list(read_rows(path)) == rows


@given(rows=ROWS)
def test_json_lines_read_as_their_rows(tmp_path_factory: Any, rows: list[Any]) -> None:
    text = "\n\n".join(json.dumps(row) for row in rows)
    assert list(read_rows(write(tmp_path_factory.mktemp("d"), "d.jsonl", text))) == rows


def test_an_array_larger_than_the_read_buffer_is_streamed(tmp_path: Path) -> None:
    rows = [{"n": n, "text": "x" * (n % 500)} for n in range(2000)]
    rows[7]["text"] = "y" * 300_000
    assert list(read_rows(write(tmp_path, "d.json", json.dumps(rows)))) == rows


def test_csv_cells_are_text_and_quotes_are_honoured(tmp_path: Path) -> None:
    path = write(tmp_path, "d.csv", 'q,a\n"1, 2\nand 3",7\n\nplain,8\n')
    assert list(read_rows(path)) == [{"q": "1, 2\nand 3", "a": "7"}, {"q": "plain", "a": "8"}]


def test_a_byte_order_mark_is_no_part_of_the_first_field(tmp_path: Path) -> None:
    assert list(read_rows(write(tmp_path, "d.csv", b"\xef\xbb\xbfq\n1\n"))) == [{"q": "1"}]


def test_an_iterable_is_read_as_it_is_asked_for() -> None:
    taken: list[int] = []

    def source() -> Any:
        for n in range(100):
            taken.append(n)
            yield {"n": n}

    first = next(pages(read_rows(source()), 10))
    assert len(first) == 10
    assert len(taken) == 10


@pytest.mark.parametrize(
    ("name", "content", "row", "told"),
    [
        ("d.jsonl", '{"a": 1}\n{"a": }\n', 2, "is not JSON"),
        ("d.jsonl", '{"a": 1}\n[1]\n', 2, "must be an object"),
        ("d.jsonl", '{"a": NaN}\n', 1, "is not JSON"),
        ("d.json", '{"a": 1}', None, "no JSON array"),
        ("d.json", '[{"a": 1} {"a": 2}]', 1, "separated by commas"),
        ("d.json", '[{"a": 1}, ]', 2, "is not JSON"),
        ("d.json", '[{"a": 1}', 1, "separated by commas"),
        ("d.json", "", None, "no JSON array"),
        ("d.csv", "a,b\n1,2\n3\n", 2, "has 1 cells, the header has 2"),
        ("d.csv", "a,a\n1,2\n", None, "two columns have one name"),
        ("d.jsonl", b'{"a": "\xff"}\n', None, "is not UTF-8"),
        ("d.txt", "a", None, ".txt is not read"),
    ],
)
def test_a_broken_file_is_told_by_row_and_cause(
    tmp_path: Path, name: str, content: str | bytes, row: int | None, told: str
) -> None:
    error = refused(write(tmp_path, name, content))
    assert error.row == row
    assert told in str(error)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    assert "there is no such file" in str(refused(tmp_path / "none.jsonl"))


@pytest.mark.parametrize("dataset", [{"a": 1}, 7, b"rows.jsonl", None])
def test_what_is_no_dataset_is_refused_with_the_forms_that_are(dataset: Any) -> None:
    assert ".jsonl" in str(refused(dataset))


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ({1: "a"}, "field name must be text"),
        ("text", "must be an object"),
        ({"a": object()}, "is not JSON"),
        ({"a": float("nan")}, "is not JSON"),
        ({"a": "\ud800"}, "is not JSON"),
        ({"a": "x" * 2_000_000}, "at most"),
    ],
)
def test_a_bad_row_of_an_iterable_is_told_by_its_number(row: Any, told: str) -> None:
    error = refused([{"fine": 1}, row])
    assert error.row == 2
    assert told in str(error)
    assert len(str(error)) < 1000


@given(rows=ROWS)
def test_a_page_reads_back_as_it_was_written(rows: list[Any]) -> None:
    assert decode_page(encode_page(rows)) == rows


@given(count=st.integers(0, 50), size=st.integers(1, 20))
def test_pages_are_full_but_for_the_last(count: int, size: int) -> None:
    made = list(pages(({"n": n} for n in range(count)), size))
    assert [row["n"] for page in made for row in page] == list(range(count))
    assert all(len(page) == size for page in made[:-1])


@pytest.mark.parametrize(
    "blob",
    [
        b"",
        b"no zlib",
        zlib.compress(b"[1]"),
        zlib.compress(b"{}"),
        zlib.compress(b"[{}"),
        encode_page([{"a": 1}])[:-3],
        zlib.compress(b"[" + b" " * (MAX_PAGE_BYTES + 1) + b"]"),
        zlib.compress(b"[" * 100_000),
    ],
)
def test_a_page_that_no_client_wrote_is_refused(blob: bytes) -> None:
    with pytest.raises(BrokenPage):
        decode_page(blob)
