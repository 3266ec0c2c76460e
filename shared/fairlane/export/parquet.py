"""Records as Parquet: a typed column for each path, a row group for each batch."""

from __future__ import annotations

from typing import Any, BinaryIO

from fairlane.export.columns import Kind
from fairlane.export.extras import library
from fairlane.export.formulas import quoted
from fairlane.export.spool import Spool

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
