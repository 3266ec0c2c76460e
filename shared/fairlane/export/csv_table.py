"""Records as CSV (RFC 4180, but lines end in LF): a header, then a line a record."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import Any, TextIO

from fairlane.export.formulas import quoted
from fairlane.export.spool import Spool

_SPECIAL = re.compile(r'[,"\r\n]')


def write_csv(spool: Spool, out: TextIO, *, raw: bool = False) -> None:
    """Write rows. A gap is an empty cell; truth values and numbers are written as in JSON.

    Unless ``raw``, a text that a spreadsheet would run is `quoted`.
    """
    out.write(_line(column.name for column in spool.columns))
    for batch in spool.batches():
        out.writelines(_line(_cell(value, raw=raw) for value in row) for row in batch)


def _line(cells: Iterable[str]) -> str:
    """A line of the file. Python's own writer leaves a lone CR bare, and its reader ends a line there."""
    return ",".join(_enclosed(cell) for cell in cells) + "\n"


def _enclosed(cell: str) -> str:
    return '"' + cell.replace('"', '""') + '"' if _SPECIAL.search(cell) else cell


def _cell(value: Any, *, raw: bool) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        return json.dumps(value)
    return value if raw else quoted(value)
