"""Records as a polars DataFrame."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fairlane.export.columns import Kind
from fairlane.export.extras import library
from fairlane.export.spool import Spool
from fairlane.model.results import Record


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
