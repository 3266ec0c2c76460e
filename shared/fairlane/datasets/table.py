"""Reads CSV with a header: one dict of texts a record."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from typing import BinaryIO

from fairlane.datasets.lines import Broken, numbered_lines


def read_table(file: BinaryIO) -> Iterator[object]:
    """Records under the header's names; cells are text, never numbers. Raises `Broken`."""
    reader = csv.reader((line for _, line in numbered_lines(file)), strict=True)
    try:
        header: list[str] | None = None
        for cells in reader:
            if not cells:
                continue
            if header is None:
                header = _header(cells)
                continue
            if len(cells) != len(header):
                problem = f"line {reader.line_num} has {len(cells)} cells, the header has {len(header)}"
                raise Broken(problem, 'Quote cells that hold commas or line ends: "a, b".')
            yield dict(zip(header, cells, strict=True))
    except csv.Error as error:
        limit = f"A cell has at most {csv.field_size_limit():,} characters; use .jsonl for longer texts."
        remedy = limit if "limit" in str(error) else 'Quote cells with ", and double a quote inside them.'
        raise Broken(f"line {reader.line_num} is no CSV: {error}", remedy) from None


def _header(cells: list[str]) -> list[str]:
    for column, name in enumerate(cells, start=1):
        if not name.strip():
            raise Broken(f"column {column} has no name", "Name every column in the first line.")
        if name in cells[: column - 1]:
            raise Broken(f"two columns are named {name!r}", "Give every column a name of its own.")
    return cells
