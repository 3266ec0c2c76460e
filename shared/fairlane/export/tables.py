"""Records as tables: CSV (RFC 4180, but lines end in LF), Parquet with a row group a batch, DataFrames.

A text that a spreadsheet would run as a formula is quoted in CSV and Parquet.
"""

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any, BinaryIO, TextIO

from fairlane.export.extras import library
from fairlane.export.spool import Column, Kind, Spool
from fairlane.model.record import Record

# A number is no formula, and stays a number.
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")

# Full-width forms count, too: some spreadsheets treat them as the plain ones.
_FORMULA = re.compile(r"'*[=+\-@\t\r\n\uff1d\uff0b\uff0d\uff20]")

QUOTE = "'"


def quoted(text: str) -> str:
    """``text``, with ``'`` before it if a spreadsheet would run it. A quoted text gets one more quote."""
    if not _FORMULA.match(text) or _NUMBER.fullmatch(text):
        return text
    return QUOTE + text


def unquoted(cell: str) -> str:
    """The inverse of `quoted`."""
    return cell[1:] if cell.startswith(QUOTE) and _FORMULA.match(cell) else cell


_SPECIAL = re.compile(r'[,"\r\n]')


def write_csv(spool: Spool, out: TextIO, *, raw: bool = False) -> None:
    """Write rows. A gap is an empty cell; truth values and numbers are written as in JSON.

    Unless ``raw``, a text that a spreadsheet would run is `quoted`.
    """
    out.write(_line(column.name for column in spool.columns))
    for batch in spool.batches():
        out.writelines(_line(_text_of(value, raw=raw) for value in row) for row in batch)


def _line(cells: Iterable[str]) -> str:
    """A line of the file. Python's ``csv`` does not quote a lone CR, and its reader ends a line there."""
    return ",".join(_enclosed(cell) for cell in cells) + "\n"


def _enclosed(cell: str) -> str:
    return '"' + cell.replace('"', '""') + '"' if _SPECIAL.search(cell) else cell


def _text_of(value: Any, *, raw: bool) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        return json.dumps(value)
    return value if raw else quoted(value)


WHAT, EXTRA = "Parquet", "parquet"


def require_parquet() -> Any:
    """Load pyarrow. Raises `MissingExtra`."""
    library("pyarrow.parquet", WHAT, EXTRA)
    return library("pyarrow", WHAT, EXTRA)


def write_parquet(spool: Spool, out: BinaryIO, *, raw: bool = False) -> None:
    """Write records to ``out``; unless ``raw``, a text that a spreadsheet would run is `quoted`.

    Raises `MissingExtra` if pyarrow is not installed.
    """
    arrow = require_parquet()
    types = {
        Kind.BOOLEAN: arrow.bool_(),
        Kind.INTEGER: arrow.int64(),
        Kind.NUMBER: arrow.float64(),
    }
    columns = spool.columns
    schema = arrow.schema([(column.name, types.get(column.kind, arrow.string())) for column in columns])
    with arrow.parquet.ParquetWriter(out, schema, compression="zstd") as writer:
        for batch in spool.batches():
            arrays = [
                arrow.array([_cell(row[place], raw=raw) for row in batch], type=field.type)
                for place, field in enumerate(schema)
            ]
            writer.write_batch(arrow.record_batch(arrays, schema=schema))


def _cell(value: Any, *, raw: bool) -> Any:
    return quoted(value) if isinstance(value, str) and not raw else value


_TYPES = {Kind.BOOLEAN: "boolean", Kind.INTEGER: "Int64", Kind.NUMBER: "Float64"}


def to_frame(records: Iterable[Record]) -> Any:
    """A ``pandas.DataFrame`` with a row a record and the columns of a CSV or Parquet export.

    Beside the frame, a batch of rows is in memory. Raises `MissingExtra` before it reads a
    record, if pandas is not installed.
    """
    pandas = library("pandas", "to_pandas", "pandas")
    with Spool() as spool:
        spool.take(records)
        columns = spool.columns
        parts = [_part(pandas, columns, batch) for batch in spool.batches()] or [_part(pandas, columns, [])]
        return parts[0] if len(parts) == 1 else pandas.concat(parts, ignore_index=True)


def _part(pandas: Any, columns: Sequence[Column], batch: Sequence[Sequence[Any]]) -> Any:
    return pandas.DataFrame(
        {
            name: pandas.array([row[place] for row in batch], dtype=_TYPES.get(kind, "string"))
            for place, (name, kind) in enumerate(columns)
        }
    )


def to_polars_frame(records: Iterable[Record]) -> Any:
    """A ``polars.DataFrame`` with a row a record and the columns of a Parquet export.

    Beside the frame, a batch of rows is in memory. Raises `MissingExtra` before it reads a
    record, if polars is not installed.
    """
    polars = library("polars", "to_polars", "polars")
    types = {Kind.BOOLEAN: polars.Boolean, Kind.INTEGER: polars.Int64, Kind.NUMBER: polars.Float64}
    with Spool() as spool:
        spool.take(records)
        schema = {name: types.get(kind, polars.String) for name, kind in spool.columns}
        parts = [polars.DataFrame(batch, schema=schema, orient="row") for batch in spool.batches()]
        return polars.concat(parts) if parts else polars.DataFrame(schema=schema)
