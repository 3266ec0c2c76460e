"""What commands print: news for people on standard error, results on standard output."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text


def say(message: str) -> None:
    """One line of news. Standard output stays free for what a command is asked for."""
    _errors().print(Text(message), soft_wrap=True)


def complain(message: str) -> None:
    """Say what is wrong, marked as an error."""
    _errors().print(Text.assemble(("error: ", "bold red"), message), soft_wrap=True)


def print_json(data: Any) -> None:
    """One JSON document on standard output."""
    sys.stdout.write(json.dumps(data, ensure_ascii=False, indent=2) + "\n")


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table on standard output; columns that begin with ``>`` are aligned right."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column.removeprefix(">"), justify="right" if column.startswith(">") else "left")
    for row in rows:
        table.add_row(*(Text(str(cell)) for cell in row))
    Console(highlight=False).print(table)


def _errors() -> Console:
    # Made anew each time, so that it follows sys.stderr wherever a test or a pager has led that.
    return Console(stderr=True, highlight=False)
