"""Records as a pandas DataFrame."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fairlane.export.columns import Columns, Kind, fitted
from fairlane.export.extras import library
from fairlane.model.results import Record

_TYPES = {Kind.BOOLEAN: "boolean", Kind.INTEGER: "Int64", Kind.NUMBER: "Float64"}


def to_frame(records: Iterable[Record]) -> Any:
    """A ``pandas.DataFrame`` with a row a record and the columns of a CSV or Parquet export; all in memory.

    Raises `MissingExtra` before it reads a record, if pandas is not installed.
    """
    pandas = library("pandas", "to_pandas", "pandas")
    columns = Columns()
    rows = [columns.learn(record) for record in records]
    return pandas.DataFrame(
        {
            name: pandas.array(
                [fitted(row.get(name), kind) for row in rows], dtype=_TYPES.get(kind, "string")
            )
            for name, kind in columns.all()
        }
    )
