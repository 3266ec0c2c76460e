"""Records as CSV (RFC 4180, but lines end in LF): a header, then a line a record."""

from __future__ import annotations

import csv
import json
from typing import Any, TextIO

from fairlane.export.spool import Spool


def write_csv(spool: Spool, out: TextIO) -> None:
    """A gap is an empty cell; truth values and numbers are written as in JSON."""
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow([column.name for column in spool.columns])
    for batch in spool.batches():
        writer.writerows([_cell(value) for value in row] for row in batch)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value)
