"""A name that stands twice in a row is refused, whatever the format: a row would hold one of two values."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet

from fairlane.apps.batchfile.reading import BatchFileError, check_batch
from fairlane.core.errors import SubmissionError
from fairlane.datasets.lines import MalformedFile, unique_keys
from fairlane.datasets.rows import read_rows

TWICE = pa.Table.from_arrays([pa.array([1, 2]), pa.array([3, 4])], names=["a", "a"])
STRUCT = pa.struct([("x", pa.int64()), ("x", pa.int64())])
NESTED = pa.table({"ok": [1], "b": pa.array([None], type=pa.list_(STRUCT))})
UNIQUE = pa.table({"a": [1], "b": pa.array([[{"x": 1, "y": {"x": 2}}]]), "x": [[{"x": 3}]]})


def refusal(dataset: Any) -> SubmissionError:
    with pytest.raises(SubmissionError) as caught:
        list(read_rows(dataset))
    return caught.value


class Relation:
    """What has Arrow's stream interface and nothing else, as a relation of DuckDB."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        return self._table.__arrow_c_stream__(requested_schema)


@pytest.mark.parametrize(
    ("table", "problem"),
    [(TWICE, "two columns are named 'a'"), (NESTED, "two fields in the column 'b' are named 'x'")],
)
def test_two_columns_of_one_name_are_refused(tmp_path: Path, table: pa.Table, problem: str) -> None:
    path = tmp_path / "rows.parquet"
    parquet.write_table(table, path)
    for dataset in (path, table, table.to_reader(), Relation(table)):
        assert problem in str(refusal(dataset))


def test_one_name_at_different_places_is_allowed(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    parquet.write_table(UNIQUE, path)
    assert list(read_rows(path)) == list(read_rows(UNIQUE)) == UNIQUE.to_pylist()


@pytest.mark.parametrize("row", ['{"a": 1, "a": 2}', '{"b": [{"a": 1, "c": 3, "a": 1}]}'])
def test_two_keys_of_one_name_are_refused(tmp_path: Path, row: str) -> None:
    lines, array = tmp_path / "rows.jsonl", tmp_path / "rows.json"
    lines.write_text(f'{{"a": 1}}\n\n{row}\n')
    array.write_text(f'[{{"a": 1}},\n\n{row}]')
    for path in (lines, array):
        shown = str(refusal(path))
        assert "line 3" in shown
        assert "the key 'a' stands twice in an object" in shown


def test_two_keys_of_one_name_in_a_batch_file_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    path.write_text('{"custom_id": "a", "custom_id": "b", "method": "POST"}\n')
    with pytest.raises(BatchFileError, match="the key 'custom_id' stands twice"):
        check_batch(path, own_models=False)


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers()), max_size=6))
def test_an_object_is_read_whole_or_refused(pairs: list[tuple[str, int]]) -> None:
    text = "{" + ", ".join(f"{json.dumps(name)}: {value}" for name, value in pairs) + "}"
    try:
        read = json.loads(text, object_pairs_hook=unique_keys)
    except MalformedFile:
        assert len({name for name, _ in pairs}) < len(pairs)
    else:
        assert list(read.items()) == pairs


@pytest.mark.parametrize("suffix", [".jsonl", ".json"])
def test_nan_is_absent_from_a_row_of_json(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"rows{suffix}"
    text = '{"a": NaN, "b": [NaN, 1], "c": {"d": NaN, "e": 2}}'
    path.write_text(f"[{text}]" if suffix == ".json" else text)
    assert list(read_rows(path)) == [{"b": [None, 1], "c": {"e": 2}}]


@pytest.mark.parametrize("number", ["Infinity", "-Infinity", "1e999"])
@pytest.mark.parametrize("suffix", [".jsonl", ".json"])
def test_infinity_is_no_number_of_json(tmp_path: Path, suffix: str, number: str) -> None:
    path = tmp_path / f"rows{suffix}"
    text = f'{{"a": {number}}}'
    path.write_text(f"[{text}]" if suffix == ".json" else text)
    assert "JSON has no such number" in str(refusal(path))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("rows.csv", "a,b\r1,2\r3,4\r"),
        ("rows.csv", "a,b\n1,2\r3,4\n"),
        ("rows.tsv", "a\tb\r1\t2"),
        ("rows.jsonl", '{"a": 1}\r{"a": 2}\r'),
        ("rows.csv", "a,b\r" + "1,2\r" * (1 << 22)),
    ],
)
def test_lone_carriage_returns_are_named(tmp_path: Path, name: str, text: str) -> None:
    path = tmp_path / name
    path.write_bytes(text.encode())
    assert "Save it with LF or CRLF line ends." in str(refusal(path))


def test_a_carriage_return_inside_a_quoted_cell_is_text(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_bytes(b'a,b\r\n"1\r2",3\r\n')
    assert list(read_rows(path)) == [{"a": "1\r2", "b": "3"}]
