"""Records as CSV, Parquet and data frames: every column is there, typed, and nothing is held but a batch."""

from __future__ import annotations

import csv
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.core.errors import MissingExtra, UnknownFormat
from fairlane.export import spool as spool_module
from fairlane.export.formats import (
    export_records,
    format_of,
)
from fairlane.export.lines import record_line
from fairlane.export.spool import Column, Columns, Kind, Spool, fitted, kind_of
from fairlane.export.tables import to_frame
from fairlane.model.job import JobState
from fairlane.model.record import Record
from fairlane.model.tokens import Usage
from tests.support.records import make_record

GOOD = make_record(
    0,
    row={"question": "Größe?", "n": 1, "tags": ["a", "b"]},
    scores={"judge": 1.0},
    usage=Usage(10, 5),
    eval_usage={"judge": Usage(7, 1)},
)
BAD = make_record(
    1,
    row={"question": 'a,b\n"c"', "n": 2.5, "extra": True},
    state=JobState.FAILED,
    output=None,
    scores={"judge": None},
    score_errors={"judge": "no output"},
    usage=Usage(),
    error="400: refused",
)


def no_records() -> Iterator[Record]:
    pytest.fail("must not be asked for")
    yield GOOD


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_a_csv_has_a_column_for_each_path_of_the_json(tmp_path: Path) -> None:
    path = tmp_path / "out.csv"
    assert export_records([GOOD, BAD], path) == 2
    good, bad = rows_of(path)
    assert list(good)[:5] == ["item", "row.question", "row.n", "row.tags", "row.extra"]
    assert (good["row.question"], good["row.n"], good["row.tags"]) == ("Größe?", "1.0", '["a", "b"]')
    assert (bad["row.question"], bad["row.n"], bad["row.extra"]) == ('a,b\n"c"', "2.5", "true")
    assert (good["scores.judge"], bad["scores.judge"], bad["score_errors.judge"]) == ("1.0", "", "no output")
    assert (good["usage.input_tokens"], bad["usage.input_tokens"]) == ("10", "")
    assert (good["eval_usage.judge.input_tokens"], bad["eval_usage.judge.input_tokens"]) == ("7", "")
    assert (good["state"], bad["state"], bad["output"], bad["error"]) == (
        "succeeded",
        "failed",
        "",
        "400: refused",
    )


def test_a_parquet_file_has_the_columns_of_a_csv_with_their_types(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    export_records([GOOD, BAD], tmp_path / "out.parquet")
    export_records([GOOD, BAD], tmp_path / "out.csv")
    table = parquet.read_table(tmp_path / "out.parquet")
    assert table.column_names == list(rows_of(tmp_path / "out.csv")[0])
    types = {field.name: str(field.type) for field in table.schema}
    assert (types["item"], types["row.n"], types["row.extra"]) == ("int64", "double", "bool")
    assert (types["row.tags"], types["scores.judge"], types["latency_ms"]) == ("string", "double", "int64")
    good, bad = table.to_pylist()
    assert (good["row.n"], good["row.extra"], json.loads(good["row.tags"])) == (1.0, None, ["a", "b"])
    assert (bad["scores.judge"], bad["output"], bad["cached"]) == (None, None, False)


def test_a_frame_has_the_same_columns_and_its_gaps_are_missing_values() -> None:
    frame = to_frame([GOOD, BAD])
    assert list(frame["item"]) == [0, 1]
    assert frame["scores.judge"].mean() == 1.0
    assert list(frame["usage.input_tokens"].isna()) == [False, True]
    assert str(frame["latency_ms"].dtype) == "Int64"
    assert frame["row.question"][0] == "Größe?"


@pytest.mark.parametrize("name", ["out.csv", "out.parquet", "out.jsonl"])
def test_a_run_without_items_makes_a_file_without_rows(tmp_path: Path, name: str) -> None:
    assert export_records([], tmp_path / name) == 0
    assert (tmp_path / name).exists()
    if name == "out.csv":
        header = (tmp_path / name).read_text().strip().split(",")
        assert {"item", "model", "state", "output", "error", "latency_ms", "cached"} <= set(header)


def test_json_lines_are_the_lines_of_records(tmp_path: Path) -> None:
    assert export_records([GOOD, BAD], tmp_path / "out.ndjson") == 2
    assert (tmp_path / "out.ndjson").read_text(encoding="utf-8") == record_line(GOOD) + record_line(BAD)


@pytest.mark.parametrize("name", ["out.csv", "out.parquet", "out.jsonl"])
def test_a_lone_surrogate_stops_no_export(tmp_path: Path, name: str) -> None:
    record = make_record(output="half \ud83d", row={"q": "\ud83d"}, error="\ud83d")
    assert export_records([record], tmp_path / name) == 1
    if name == "out.jsonl":
        assert json.loads((tmp_path / name).read_text())["output"] == "half \ud83d"


def test_a_format_that_is_stated_wins_over_the_suffix(tmp_path: Path) -> None:
    export_records([GOOD], tmp_path / "out.txt", "csv")
    assert rows_of(tmp_path / "out.txt")[0]["item"] == "0"
    assert format_of(Path("out.CSV")) == "csv"


@pytest.mark.parametrize(("name", "stated"), [("out.xlsx", None), ("out", None), ("out.csv", "excel")])
def test_an_unknown_format_is_refused_before_a_record_is_asked_for(
    tmp_path: Path, name: str, stated: str | None
) -> None:
    with pytest.raises(UnknownFormat, match="jsonl, csv, parquet"):
        export_records(no_records(), tmp_path / name, stated)
    assert list(tmp_path.iterdir()) == []


def test_a_library_that_is_missing_is_named_with_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("pyarrow", "pyarrow.parquet", "pandas"):
        monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtra, match=r"pip install 'fairlane\[parquet\]'"):
        export_records(no_records(), tmp_path / "out.parquet")
    with pytest.raises(MissingExtra, match=r"pandas.*pip install 'fairlane\[pandas\]'"):
        to_frame(no_records())
    assert list(tmp_path.iterdir()) == []


def test_an_export_that_is_broken_off_leaves_nothing(tmp_path: Path) -> None:
    def broken() -> Iterator[Record]:
        yield GOOD
        raise KeyboardInterrupt

    for name in ("out.csv", "out.jsonl", "out.parquet"):
        with pytest.raises(KeyboardInterrupt):
            export_records(broken(), tmp_path / name)
    assert list(tmp_path.iterdir()) == []


def test_a_table_is_written_a_bounded_batch_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool_module, "BATCH_ROWS", 4)
    with Spool() as spool:
        spool.take(make_record(n) for n in range(10))
        assert [len(batch) for batch in spool.batches()] == [4, 4, 2]
        monkeypatch.setattr(spool_module, "BATCH_BYTES", 1)
        assert [len(batch) for batch in spool.batches()] == [1] * 10


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([1, None, 2], Kind.INTEGER),
        ([1, 2.5], Kind.NUMBER),
        ([True, None], Kind.BOOLEAN),
        ([True, 1], Kind.MIXED),
        (["a", 1], Kind.MIXED),
        ([{"a": 1}], Kind.MIXED),
        ([2**63], Kind.MIXED),
        ([-(2**63)], Kind.INTEGER),
        ([1, 2**53 + 1, None], Kind.INTEGER),
        ([2**53, 0.5], Kind.NUMBER),
        ([0.5, 2**53 + 1], Kind.MIXED),
        ([None], Kind.TEXT),
    ],
)
def test_a_columns_kind_fits_all_its_values(values: list[Any], kind: Kind) -> None:
    columns = Columns()
    for value in values:
        columns.learn(make_record(row={"x": value}))
    assert Column("row.x", kind) in columns.all()


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False),
    st.text(),
    st.lists(st.integers()),
)


@given(st.lists(st.dictionaries(st.text(max_size=3), VALUES, max_size=4), max_size=8))
def test_rows_of_any_values_fit_their_columns(rows: list[dict[str, Any]]) -> None:
    records = [make_record(n, row=row) for n, row in enumerate(rows)]
    with Spool() as spool:
        spool.take(records)
        columns = spool.columns
        found = [
            dict(zip((c.name for c in columns), values, strict=True)) for b in spool.batches() for values in b
        ]
    kinds = {column.name: column.kind for column in columns}
    for row, read in zip(rows, found, strict=True):
        for name, value in row.items():
            assert read[f"row.{name}"] == fitted(value, kinds[f"row.{name}"])
            assert kind_of(read[f"row.{name}"]) in {kinds[f"row.{name}"], Kind.TEXT, Kind.EMPTY}


@given(st.lists(st.integers(2**53, 2**64) | st.integers(-9, 9) | st.floats(-10, 10), min_size=1, max_size=6))
def test_no_number_of_a_row_is_rounded_in_a_table(values: list[float]) -> None:
    with Spool() as spool:
        spool.take(make_record(n, row={"x": value}) for n, value in enumerate(values))
        place = [column.name for column in spool.columns].index("row.x")
        found = [row[place] for batch in spool.batches() for row in batch]
    assert [json.loads(each) if isinstance(each, str) else each for each in found] == values


def test_a_csv_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    texts = ["", " ", "a\r\nb", 'quote "', "tab\t", "ünï", "=1+1"]
    export_records(
        [make_record(n, output=text) for n, text in enumerate(texts)], tmp_path / "out.csv", raw=True
    )
    assert [row["output"] for row in rows_of(tmp_path / "out.csv")] == texts
