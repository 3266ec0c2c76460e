"""Records as a DataFrame of pandas or of polars."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from fairlane.export.columns import Column, Kind
from fairlane.export.extras import library
from fairlane.export.spool import Spool
from fairlane.model.record import Record

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
