"""Rows from tables, from records that are no dicts, and values that become JSON."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import json
from collections import OrderedDict
from collections.abc import AsyncIterator
from decimal import Decimal
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import parquet
from pydantic import BaseModel

from fairlane.core.errors import SubmissionError
from fairlane.datasets import tables
from fairlane.datasets.references import Reference, SourcePages, open_reference
from fairlane.datasets.rows import read_rows
from fairlane.datasets.values import MAX_DEPTH

ROWS = [{"q": "2 + 2?", "n": 4}, {"q": "3 + 3?", "n": 6}]


def refusal(dataset: Any) -> SubmissionError:
    with pytest.raises(SubmissionError) as caught:
        list(read_rows(dataset))
    assert (caught.value.field, bool(caught.value.remedy)) == ("dataset", True)
    return caught.value


class Colour(enum.Enum):
    RED = "red"


@dataclasses.dataclass
class Question:
    q: str
    n: int


class Asked(BaseModel):
    q: str
    n: int


class Named(NamedTuple):
    q: str
    n: int


@pytest.mark.parametrize("kind", [Question, Asked, Named, OrderedDict])
def test_records_of_each_kind_are_rows(kind: Any) -> None:
    assert list(read_rows(kind(**row) for row in ROWS)) == ROWS


@pytest.mark.parametrize(
    ("value", "taken"),
    [
        (np.int64(3), 3),
        (np.float32(0.5), 0.5),
        (np.float64(2), 2.0),
        (np.bool_(True), True),
        (np.str_("text"), "text"),
        (np.array([[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
        (np.array([1.0, np.nan]), [1.0, None]),
        (np.datetime64("2026-01-02T03:04:05.123456789"), "2026-01-02T03:04:05.123456789"),
        (np.array(["2026-01-02"], dtype="datetime64[D]"), ["2026-01-02"]),
        (dt.date(2026, 1, 2), "2026-01-02"),
        (dt.datetime(2026, 1, 2, 3, 4, tzinfo=dt.UTC), "2026-01-02T03:04:00+00:00"),
        (dt.time(3, 4), "03:04:00"),
        (pd.Timestamp("2026-01-02"), "2026-01-02T00:00:00"),
        (Decimal("12.50"), "12.50"),
        (Colour.RED, "red"),
        (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (PurePosixPath("a/b"), "a/b"),
        ([np.int64(1), {"deep": Decimal(2)}], [1, {"deep": "2"}]),
        (Question("a", 1), {"q": "a", "n": 1}),
        ([Asked(q="a", n=1)], [{"q": "a", "n": 1}]),
        ([1.0, float("nan")], [1.0, None]),
    ],
)
def test_a_value_becomes_the_json_that_it_means(value: Any, taken: Any) -> None:
    ((row),) = read_rows([{"a": value, "b": 1}])
    assert row == {"a": taken, "b": 1}
    assert type(row["a"]) is type(taken) or isinstance(row["a"], str | float)


@pytest.mark.parametrize(
    "gap",
    [float("nan"), np.nan, np.float32("nan"), pd.NA, pd.NaT, np.datetime64("NaT", "s"), Decimal("nan")],
    ids=repr,
)
def test_a_gap_of_a_table_is_a_field_that_the_row_does_not_have(gap: Any) -> None:
    assert list(read_rows([{"a": gap, "b": {"c": gap}, "d": None}])) == [{"b": {}, "d": None}]


@pytest.mark.parametrize(
    ("value", "problem", "remedy"),
    [
        (b"\x00", "field image: a bytes", "decode"),
        ({1, 2}, "field image: a set", "sorted(value)"),
        ([np.float64("inf")], "field image[0]: JSON has no such number", "finite"),
        ("a\ud800b", "field image: the text holds half a surrogate pair", '.decode("utf-16", "replace")'),
        (dt.timedelta(1), "field image: a timedelta", "total_seconds()"),
        (np.array([object()], dtype=object), "field image[0]: a object", "finite numbers"),
    ],
)
def test_what_cannot_be_taken_is_refused_by_row_field_value_and_remedy(
    value: Any, problem: str, remedy: str
) -> None:
    error = refusal([{"q": "a"}, {"q": "b", "image": value}])
    assert error.row == 2
    assert problem in str(error)
    assert remedy in error.remedy


def test_depth_is_bounded_for_records_too() -> None:
    deep: Any = np.int64(1)
    for _ in range(2 * MAX_DEPTH):
        deep = [deep]
    assert "nested deeper" in str(refusal([{"a": deep}]))


def test_a_pandas_frame_is_read_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "ROWS_AT_ONCE", 2)
    frame = pd.DataFrame(
        {"q": list("abcde"), "n": [1, 2, None, 4, 5], "at": [pd.Timestamp("2026-01-02")] * 5}
    )
    rows = list(read_rows(frame))
    assert [row["q"] for row in rows] == list("abcde")
    assert rows[2] == {"q": "c", "at": "2026-01-02T00:00:00"}
    assert rows[0]["n"] == 1.0


@pytest.mark.parametrize(
    ("frame", "shown"),
    [
        (pd.DataFrame([[1, 2]]), "the column 0 is no text"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "two columns are named 'a'"),
        (pd.Series([1], name="a"), "to_frame"),
    ],
    ids=["numbers", "twice", "series"],
)
def test_a_frame_without_names_for_its_columns_is_refused_at_once(frame: Any, shown: str) -> None:
    with pytest.raises(SubmissionError) as caught:
        read_rows(frame)
    assert shown in f"{caught.value} {caught.value.remedy}"


@pytest.mark.parametrize("form", ["table", "batch", "reader"])
def test_arrow_is_read_in_portions(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "ROWS_AT_ONCE", 2)
    rows = [{"q": f"q{n}", "n": n, "d": dt.date(2026, 1, 1)} for n in range(5)]
    table = pa.Table.from_pylist(rows)
    given = {"table": table, "batch": table.to_batches()[0], "reader": table.to_reader()}[form]
    assert list(read_rows(given)) == [{**row, "d": "2026-01-01"} for row in rows]


def polars(kind: str, **members: Any) -> Any:
    """A stand-in with the methods of polars that are used."""
    module = ModuleType("polars")
    made = type(kind, (), members)
    made.__module__ = f"{module.__name__}.frame"
    return made()


def test_a_polars_frame_is_read_by_its_named_rows() -> None:
    frame = polars("DataFrame", iter_rows=lambda _self, *, named: iter(ROWS if named else []))
    assert list(read_rows(frame)) == ROWS


def test_a_lazy_polars_frame_is_refused_with_the_way_out() -> None:
    error = refusal(polars("LazyFrame", collect=lambda _self: None))
    assert "collect()" in error.remedy


def test_a_dictionary_of_splits_is_refused_with_their_names() -> None:
    error = refusal(type("DatasetDict", (dict,), {})(train=ROWS, test=ROWS))
    assert "['test', 'train']" in str(error)
    assert error.remedy == "Name one: dataset['train']."


def test_rows_of_an_async_iterator_are_for_an_open_run() -> None:
    async def rows() -> AsyncIterator[dict[str, Any]]:
        yield {}

    assert "AsyncClient.open" in refusal(rows()).remedy


def test_a_parquet_file_is_read_by_the_client_and_by_reference(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    at = dt.datetime(2026, 1, 2, tzinfo=dt.UTC)
    parquet.write_table(pa.Table.from_pylist([{**row, "at": at} for row in ROWS]), path)
    expected = [{**row, "at": "2026-01-02T00:00:00+00:00"} for row in ROWS]
    assert list(read_rows(path)) == expected
    assert list(open_reference(Reference(path).source)) == expected


def test_a_file_that_is_no_parquet_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    path.write_text("q,n\n")
    assert "no Parquet" in str(refusal(path))


def test_parquet_without_pyarrow_names_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rows.parquet").write_bytes(b"PAR1")

    def missing(_name: str) -> None:
        raise ModuleNotFoundError

    monkeypatch.setattr(tables, "import_module", missing)
    assert "fairlane[parquet]" in refusal(tmp_path / "rows.parquet").remedy
    assert "fairlane[parquet]" in refusal(pa.Table.from_pylist(ROWS)).remedy


def test_tabs_separate_the_cells_of_a_tsv_file(tmp_path: Path) -> None:
    path = tmp_path / "rows.tsv"
    path.write_text('q\tn\n2, 2?\t4\n"a\tb"\t6\n')
    assert list(read_rows(path)) == [{"q": "2, 2?", "n": "4"}, {"q": "a\tb", "n": "6"}]
    assert list(open_reference(Reference(path).source)) == list(read_rows(path))
    path.write_text("q\tn\n1\n")
    assert "Quote cells that hold tabs" in refusal(path).remedy


def test_a_referenced_row_that_was_admitted_is_read_however_large_it_is(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"image": "%s"}' % ("x" * 1_500_000))
    assert len(SourcePages(Reference(path).source, 10, lambda _: None).page(0)[0]["image"]) == 1_500_000


MAPS = st.none() | st.dictionaries(st.text(max_size=4), st.integers(-9, 9) | st.none(), max_size=4)


@given(values=st.lists(MAPS, min_size=1, max_size=6))
def test_a_map_is_an_object_wherever_it_stands(values: list[dict[str, int | None] | None]) -> None:
    of_map = pa.map_(pa.string(), pa.int64())
    of_struct = pa.struct([("m", of_map), ("n", pa.int8())])
    table = pa.table(
        {
            "m": pa.array(values, of_map),
            "l": pa.array([[value, value] for value in values], pa.list_(of_map)),
            "s": pa.array([{"m": value, "n": 1} for value in values], of_struct),
            "mm": pa.array([{"k": value} for value in values], pa.map_(pa.string(), of_map)),
        }
    )
    assert list(read_rows(table)) == [
        {"m": value, "l": [value, value], "s": {"m": value, "n": 1}, "mm": {"k": value}} for value in values
    ]


def test_a_map_that_no_object_holds_stays_pairs() -> None:
    twice = pa.array([[("k", 1), ("k", 2)]], pa.map_(pa.string(), pa.int64()))
    numbers = pa.array([[(1, 2)]], pa.map_(pa.int64(), pa.int64()))
    (row,) = read_rows(pa.table({"twice": twice, "numbers": numbers}))
    assert json.loads(json.dumps(row)) == {"twice": [["k", 1], ["k", 2]], "numbers": [[1, 2]]}
