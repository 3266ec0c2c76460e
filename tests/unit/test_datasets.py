"""Rows from files and iterables, what is refused on the way, and the pages they travel in."""

from __future__ import annotations

import json
import tracemalloc
import zlib
from collections.abc import Iterator
from contextlib import suppress
from enum import Enum, StrEnum
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.core.errors import BrokenPage, FairlaneError, SubmissionError
from fairlane.datasets.rows import (
    MAX_PAGE_BYTES,
    Paging,
    check_row,
    decode_page,
    encode_page,
    read_rows,
)

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
ROWS = st.lists(st.dictionaries(TEXT, JSON, max_size=4), max_size=6)


def written(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def refusal(dataset: Any) -> SubmissionError:
    with pytest.raises(SubmissionError) as caught:
        list(read_rows(dataset))
    assert caught.value.field == "dataset"
    assert caught.value.remedy
    return caught.value


class Colour(StrEnum):
    RED = "red"


@pytest.mark.parametrize(
    ("dataset", "words"),
    [
        (["What is 2 + 2?"], '{"text": each} for each in dataset'),
        ([[{"role": "user", "content": "What is 2 + 2?"}]], 'request="chat"'),
        ([[]], "Each row is a dict that names its fields"),
    ],
)
def test_a_script_s_list_of_prompts_or_chats_is_told_its_form(dataset: list[Any], words: str) -> None:
    assert words in refusal(dataset).remedy


@pytest.mark.parametrize("suffix", [".jsonl", ".JSONL", ".ndjson"])
def test_a_line_of_jsonl_is_a_row_and_blank_lines_are_none(tmp_path: Path, suffix: str) -> None:
    path = written(tmp_path / f"rows{suffix}", '\n{"a": 1}\r\n\n  \n{"a": "zwölf"}')
    assert list(read_rows(path)) == [{"a": 1}, {"a": "zwölf"}]
    assert list(read_rows(str(path))) == [{"a": 1}, {"a": "zwölf"}]


def test_a_line_separator_inside_a_text_ends_no_row(tmp_path: Path) -> None:
    path = written(tmp_path / "rows.jsonl", '{"a": "one\u2028two"}\n')
    assert list(read_rows(path)) == [{"a": "one\u2028two"}]


@pytest.mark.parametrize(
    ("name", "content"),
    [("r.jsonl", '{"a": "1"}\n'), ("r.json", '[{"a": "1"}]'), ("r.csv", "a\n1\n")],
)
def test_a_byte_order_mark_is_no_part_of_a_row(tmp_path: Path, name: str, content: str) -> None:
    assert list(read_rows(written(tmp_path / name, "\ufeff" + content))) == [{"a": "1"}]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("r.jsonl", ""),
        ("r.jsonl", "\n\n"),
        ("r.jsonl", "\ufeff"),
        ("r.json", " [ ] \n"),
        ("r.csv", ""),
        ("r.csv", "a,b\n"),
        ("r.csv", 'a,b\n,\n, \n"",""\n,,,\n\n'),
        ("r.tsv", "a\tb\n\t\n"),
    ],
)
def test_a_file_without_rows_is_an_empty_dataset(tmp_path: Path, name: str, content: str) -> None:
    assert list(read_rows(written(tmp_path / name, content))) == []


def test_csv_cells_are_text_under_the_headers_names(tmp_path: Path) -> None:
    path = written(tmp_path / "rows.csv", 'q,n\r\n"a, ""b""\nc",1\r\n\r\n,2\r\n')
    assert list(read_rows(path)) == [{"q": 'a, "b"\nc', "n": "1"}, {"q": "", "n": "2"}]


def test_a_line_of_empty_cells_is_no_row(tmp_path: Path) -> None:
    path = written(tmp_path / "rows.csv", "q,a\nhello,1\n,\n,2\n,,,,\n")
    assert list(read_rows(path)) == [{"q": "hello", "a": "1"}, {"q": "", "a": "2"}]


@pytest.mark.parametrize("source", [list, tuple, iter])
def test_an_iterable_of_dicts_is_a_dataset(source: Any) -> None:
    rows = [{"a": [1, {"b": None}]}, {"c": Colour.RED, "d": (1, 2)}]
    assert list(read_rows(source(rows))) == rows


def test_an_iterable_is_taken_row_by_row() -> None:
    taken: list[int] = []

    def endless() -> Iterator[dict[str, Any]]:
        while True:
            taken.append(1)
            yield {"n": len(taken)}

    rows = read_rows(endless())
    assert [next(rows), next(rows)] == [{"n": 1}, {"n": 2}]
    assert len(taken) == 2


def test_a_json_array_is_read_with_bounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "rows.json"
    with path.open("w") as file:
        file.write("[")
        file.writelines(f'{{"n": {n}, "text": "{"x" * 1000}"}},\n' for n in range(5000))
        file.write('{"n": 5000}]')
    tracemalloc.start()
    try:
        total = sum(row["n"] for row in read_rows(path))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert total == sum(range(5001))
    assert peak < 1_000_000 < path.stat().st_size


@given(rows=ROWS, indent=st.sampled_from([None, 0, 3]), pad=st.integers(0, 70_000))
@pytest.mark.slow
def test_a_json_array_is_read_whole_wherever_the_chunks_end(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]], indent: int | None, pad: int
) -> None:
    rows = [{"pad": "ä" * pad}, *rows]
    path = tmp_path_factory.mktemp("array") / "rows.json"
    path.write_text(json.dumps(rows, indent=indent, ensure_ascii=False), encoding="utf-8")
    assert list(read_rows(path)) == rows


@pytest.mark.parametrize("row", [1, "text", None, [1], b"{}"])
def test_a_row_that_is_no_object_is_refused_by_its_number(row: Any, tmp_path: Path) -> None:
    assert refusal([{"a": 1}, row]).row == 2
    if not isinstance(row, bytes):
        lines = f'{{"a": 1}}\n\n{json.dumps(row)}\n'
        assert refusal(written(tmp_path / "r.jsonl", lines)).row == 2
        assert refusal(written(tmp_path / "r.json", f'[{{"a": 1}}, {json.dumps(row)}]')).row == 2


@pytest.mark.parametrize(
    ("value", "where"),
    [
        ({"b": [0, float("inf")]}, "field a.b[1]"),
        ({1: "one"}, "field a"),
        (object(), "field a"),
        ({1, 2}, "field a"),
        (b"bytes", "field a"),
        ("half \ud800", "field a"),
        pytest.param(10**5000, "field a", id="huge"),
    ],
)
def test_a_value_that_is_no_json_is_refused_by_its_place(value: object, where: str) -> None:
    error = refusal([{"a": 1}, {"a": value}])
    assert error.row == 2
    assert where in str(error)


def test_a_key_that_is_no_text_is_refused() -> None:
    assert refusal([{"a": 1}, {2: "b"}]).row == 2
    assert refusal([{"half \udc00": 1}]).row == 1


def test_a_row_that_holds_itself_is_refused() -> None:
    row: dict[str, Any] = {}
    row["self"] = row
    assert "nested deeper" in str(refusal([row]))


@pytest.mark.parametrize("number", ["-Infinity", "1e999"])
def test_a_number_that_json_lacks_is_refused_in_a_file(tmp_path: Path, number: str) -> None:
    assert refusal(written(tmp_path / "r.jsonl", f'{{"a": {number}}}\n')).row == 1


@pytest.mark.parametrize(
    ("name", "content", "row", "shown"),
    [
        ("r.jsonl", '{"a": 1}\n\n{"a": \n', 2, "line 3, column 7"),
        ("r.jsonl", '{"a": 1} {"a": 2}\n', 1, "Extra data"),
        ("r.jsonl", f'{{"a": {"9" * 5000}}}\n', 1, "digits"),
        ("r.jsonl", '{"a": ' + "[" * 100_000, 1, "line 1"),
        ("r.jsonl", b'{"a": 1}\n{"a": "\xff"}\n', 2, "line 2, byte 8"),
        ("r.jsonl", '{"a": 1}'.encode("utf-16"), 1, "UTF-8"),
        ("r.json", '[{"a": 1},\n{"a": }]', 2, "line 2"),
        ("r.json", '[{"a": 1},\n{"a": 2', 2, "line 2"),
        ("r.json", '[{"a": 1},]', 2, "no object"),
        ("r.json", '[{"a": 1} {"a": 2}]', 2, "missing"),
        ("r.json", '[{"a": 1}', 2, "missing"),
        ("r.json", '[{"a": 1}] x', 2, "follows"),
        ("r.json", "[", 1, "not closed"),
        ("r.json", "", 1, "no JSON array"),
        ("r.json", '{"rows": []}', 1, "no JSON array"),
        ("r.json", b'[{"a": "\xff"}]', 1, "UTF-8"),
        ("r.csv", "a,b\n1,2\n3\n", 2, "line 3 has 1 cell, the header has 2"),
        ("r.csv", "a,b\n1,2,3\n", 1, "3 cells"),
        ("r.csv", "a,a\n1,2\n", 1, "two columns"),
        ("r.csv", "a,\n1,2\n", 1, "column 2"),
        ("r.csv", 'a\n"1\n', 1, "no CSV"),
        ("r.csv", f"a\n{'x' * 200_000}\n", 1, "use .jsonl"),
        ("r.csv", b"a\n1\n\xe9\n", 2, "line 3, byte 1"),
    ],
)
def test_a_broken_file_is_refused_at_its_row_and_line(
    tmp_path: Path, name: str, content: str | bytes, row: int, shown: str
) -> None:
    error = refusal(written(tmp_path / name, content))
    assert error.row == row
    assert shown in f"{error} {error.remedy}"


def test_rows_before_a_broken_one_are_read(tmp_path: Path) -> None:
    rows = read_rows(written(tmp_path / "r.jsonl", '{"a": 1}\noops\n'))
    assert next(rows) == {"a": 1}
    with pytest.raises(SubmissionError):
        next(rows)


@pytest.mark.parametrize(
    ("dataset", "shown"),
    [
        ("missing.jsonl", "no such file"),
        ("rows.xlsx", r"ends in .xlsx.*Save the sheet as .csv, or pass pandas.read_excel\(path\)"),
        ("What is 2 + 2?", "no path"),
        ("", "no path"),
        ("nul\0.jsonl", "cannot be read"),
        ({"question": "a"}, "a dict is one row"),
        (b"rows.jsonl", "bytes"),
        (None, "NoneType"),
        (7, "int"),
    ],
)
def test_what_is_no_dataset_is_refused_before_a_row_is_asked_for(dataset: Any, shown: str) -> None:
    with pytest.raises(SubmissionError, match=shown) as caught:
        read_rows(dataset)
    assert caught.value.remedy
    assert caught.value.row is None


def test_a_folder_is_no_dataset(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").mkdir()
    with pytest.raises(SubmissionError, match="cannot be read"):
        read_rows(tmp_path / "rows.jsonl")


@given(ROWS)
def test_a_page_comes_back_as_it_was(rows: list[dict[str, Any]]) -> None:
    assert decode_page(encode_page(rows)) == rows


def told_apart(value: Any) -> Any:
    """A value in which 1, 1.0 and true differ, as do 0.0 and -0.0."""
    return json.dumps(value, sort_keys=True)


@given(ROWS, st.integers(1, 4))
def test_a_page_holds_the_json_of_its_rows_as_the_encoder_of_any_list_writes_it(
    rows: list[dict[str, Any]], size: int
) -> None:
    for page in Paging(rows, size):
        assert type(page) is not list
        assert [told_apart(row) for row in decode_page(encode_page(page))] == [told_apart(r) for r in page]
        assert decode_page(encode_page(page)) == decode_page(encode_page(list(page)))


class Labelled(int, Enum):
    """Its value is a label; as JSON it is a number."""

    ONE = 1

    def __new__(cls, number: int) -> Labelled:
        made = int.__new__(cls, number)
        made._value_ = f"number {number}"
        return made


def test_a_number_with_a_label_stays_a_number() -> None:
    (page,) = Paging([{"a": Labelled.ONE, "b": Colour.RED, "c": [Colour.RED]}], 2)
    assert decode_page(encode_page(page)) == [{"a": 1, "b": "red", "c": ["red"]}]


@pytest.mark.parametrize("most", [2**63, 2**64 - 1, 2**64, 10**4000])
def test_large_numbers_keep_their_digits(most: int) -> None:
    rows = [{"a": most, "b": -most, "c": 1e16, "d": -0.0, "e": 5e-324}]
    assert told_apart(decode_page(encode_page(next(iter(Paging(rows, 1)))))) == told_apart(rows)


@given(ROWS, st.integers(1, 4))
def test_pages_hold_all_rows_in_order(rows: list[dict[str, Any]], size: int) -> None:
    made = list(Paging(rows, size))
    assert [row for page in made for row in page] == rows
    assert all(len(page) == size for page in made[:-1])
    assert all(0 < len(page) <= size for page in made)


def test_a_page_is_made_before_the_next_row_is_taken() -> None:
    rows = iter([{"n": 1}, {"n": 2}, {"n": 3}])
    assert next(iter(Paging(rows, 2))) == [{"n": 1}, {"n": 2}]
    assert next(rows) == {"n": 3}


def test_a_row_larger_than_allowed_is_refused_by_its_number() -> None:
    assert list(Paging([{"a": "x" * 92}], 10, 100))
    with pytest.raises(SubmissionError, match="101 bytes") as caught:
        list(Paging([{"a": "x"}, {"a": "x" * 93}], 10, 100))
    assert caught.value.row == 2
    assert "scheduler.limits.row_bytes" in caught.value.remedy


def test_a_rows_size_is_counted_in_bytes_not_characters() -> None:
    with pytest.raises(SubmissionError, match="bytes"):
        list(Paging([{"a": "ä" * 60}], 10, 100))


def test_a_page_that_nobody_could_read_is_not_made() -> None:
    wide = {"a": "x" * 1_000_000}
    with pytest.raises(SubmissionError) as caught:
        list(Paging((wide for _ in range(100)), 500, fixed=True))
    assert caught.value.row == MAX_PAGE_BYTES // 1_000_000 + 1


@pytest.mark.parametrize("value", [float("nan"), object(), pytest.param(10**5000, id="huge"), "half \ud800"])
def test_a_row_that_is_no_json_never_reaches_a_page(value: object) -> None:
    with pytest.raises(SubmissionError) as caught:
        list(Paging([{"a": 1}, {"a": value}], 10))
    assert caught.value.row == 2


def bomb() -> bytes:
    packer = zlib.compressobj(9)
    return b"".join(
        [packer.compress(b'[{"a": "'), *(packer.compress(b" " * 2**20) for _ in range(65)), packer.flush()]
    )


@pytest.mark.parametrize(
    "blob",
    [
        b"",
        b"no zlib",
        encode_page([{"a": 1}])[:-3],
        zlib.compress(b"no json"),
        zlib.compress(b'{"a": 1}'),
        zlib.compress(b"[1]"),
        zlib.compress(b'[{"a": NaN}]'),
        zlib.compress(b'[{"a": "\xff"}]'),
        zlib.compress(b'[{"a": "\\ud800"}]'),
        zlib.compress(b"[" * 100_000),
    ],
)
def test_a_page_that_no_client_writes_is_refused(blob: bytes) -> None:
    with pytest.raises(BrokenPage) as caught:
        decode_page(blob)
    assert isinstance(caught.value, FairlaneError)


def test_a_small_blob_that_inflates_without_end_is_refused() -> None:
    blob = bomb()
    assert len(blob) < 100_000
    with pytest.raises(BrokenPage, match="larger"):
        decode_page(blob)


@given(st.binary(max_size=200))
def test_any_bytes_are_a_page_or_refused(blob: bytes) -> None:
    for each in (blob, zlib.compress(blob)):
        with suppress(BrokenPage):
            assert isinstance(decode_page(each), list)


HOSTILE = st.recursive(
    st.sampled_from(
        ["1e999", "-1e999", "NaN", "Infinity", '"\\ud800"', '"\\u0000"', "9" * 4290, "[" * 120 + "]" * 120]
    )
    | JSON.map(json.dumps),
    lambda inner: (
        st.lists(inner, max_size=3).map(lambda each: f"[{', '.join(each)}]")
        | st.dictionaries(TEXT, inner, max_size=3).map(
            lambda each: "{" + ",".join(f"{json.dumps(name)}:{value}" for name, value in each.items()) + "}"
        )
    ),
    max_leaves=8,
)


@given(HOSTILE, st.sampled_from(["utf-8", "utf-16", "utf-8-sig"]))
def test_a_page_has_the_rows_that_pythons_parser_and_a_look_at_each_find(text: str, encoding: str) -> None:
    blob = zlib.compress(text.encode(encoding))
    try:
        found = json.loads(text)
        expected = [check_row(row, 1) for row in found] if isinstance(found, list) else None
    except (ValueError, RecursionError, SubmissionError):
        expected = None
    if expected is None:
        with pytest.raises(BrokenPage):
            decode_page(blob)
    else:
        assert decode_page(blob) == expected
