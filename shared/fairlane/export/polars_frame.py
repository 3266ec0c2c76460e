"""Records as a polars DataFrame."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fairlane.export.columns import Columns, Kind, fitted
from fairlane.export.extras import library
from fairlane.model.results import Record


def to_polars_frame(records: Iterable[Record]) -> Any:
    """A ``polars.DataFrame`` with a row a record and the columns of a Parquet export; all in memory.

    Raises `MissingExtra` before it reads a record, if polars is not installed.
    """
    polars = library("polars", "to_polars", "polars")
    types = {Kind.BOOLEAN: polars.Boolean, Kind.INTEGER: polars.Int64, Kind.NUMBER: polars.Float64}
    columns = Columns()
    rows = [columns.learn(record) for record in records]
    return polars.DataFrame(
        [
            polars.Series(
                name, [fitted(row.get(name), kind) for row in rows], dtype=types.get(kind, polars.String)
            )
            for name, kind in columns.all()
        ]
    )
