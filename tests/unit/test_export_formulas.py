"""No cell of a table starts anything in a spreadsheet, and what was quoted can be read back."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.export.formats import export_records, write_records
from fairlane.export.tables import quoted, unquoted
from tests.support.records import make_record

DANGEROUS = ["=HYPERLINK(1)", "+1+cmd", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "\uff1d1+1"]
HARMLESS = ["", "a=b", "-5", "+3.25", "-1e-9", ".5", "'quoted'", " =1", "日本"]

TEXTS = st.text(st.sampled_from("'=+-@\t\r\n\uff1da1.e "), max_size=8) | st.text()


@pytest.mark.parametrize("text", DANGEROUS)
def test_what_a_spreadsheet_would_run_is_quoted(text: str) -> None:
    assert quoted(text) == f"'{text}"


@pytest.mark.parametrize("text", HARMLESS)
def test_other_texts_and_numbers_stay(text: str) -> None:
    assert quoted(text) == text


@given(TEXTS)
def test_every_text_can_be_read_back(text: str) -> None:
    assert unquoted(quoted(text)) == text


@given(st.lists(TEXTS, min_size=1, max_size=4))
def test_a_file_holds_the_texts_that_were_written(texts: list[str]) -> None:
    out = io.BytesIO()
    write_records([make_record(n, output=text) for n, text in enumerate(texts)], out, "csv", raw=True)
    read = csv.DictReader(io.StringIO(out.getvalue().decode(), newline=""))
    assert [row["output"] for row in read] == [text.encode(errors="replace").decode() for text in texts]


@given(TEXTS)
def test_no_formula_is_left(text: str) -> None:
    cell = quoted(text)
    if cell[:1] in tuple("=+-@\t\r\n\uff1d\uff0b\uff0d\uff20"):
        float(cell)


def cells(path: Path) -> list[str]:
    with path.open(encoding="utf-8", newline="") as file:
        return [row["output"] for row in csv.DictReader(file)]


def test_a_csv_quotes_unless_it_is_raw(tmp_path: Path) -> None:
    records = [make_record(n, output=text) for n, text in enumerate([*DANGEROUS, *HARMLESS])]
    export_records(records, tmp_path / "safe.csv")
    export_records(records, tmp_path / "raw.csv", raw=True)
    export_records(records, tmp_path / "exact.jsonl")
    assert cells(tmp_path / "safe.csv") == [quoted(text) for text in [*DANGEROUS, *HARMLESS]]
    assert cells(tmp_path / "raw.csv") == [*DANGEROUS, *HARMLESS]
    lines = (tmp_path / "exact.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["output"] for line in lines] == [*DANGEROUS, *HARMLESS]


def test_a_parquet_file_quotes_unless_it_is_raw(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    records = [make_record(n, output=text) for n, text in enumerate(DANGEROUS)]
    export_records(records, tmp_path / "safe.parquet")
    export_records(records, tmp_path / "raw.parquet", raw=True)
    read = {name: parquet.read_table(tmp_path / f"{name}.parquet") for name in ("safe", "raw")}
    assert read["safe"].column("output").to_pylist() == [f"'{text}" for text in DANGEROUS]
    assert read["raw"].column("output").to_pylist() == DANGEROUS
