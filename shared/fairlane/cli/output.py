"""What commands print: news for people on standard error, results on standard output."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

UNBOUNDED_WIDTH = 1000
"""Columns where nobody watches: what reads a pipe gets every row on one line."""


def say(message: str) -> None:
    """One line of news. Standard output stays free for what a command is asked for."""
    _errors().print(Text(message), soft_wrap=True)


def complain(message: str) -> None:
    """Say what is wrong, marked as an error."""
    _errors().print(Text.assemble(("error: ", "bold red"), message), soft_wrap=True)


def print_line(text: str) -> None:
    """One line on standard output, as it is and at once."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def print_json(data: Any) -> None:
    """One JSON document on standard output."""
    sys.stdout.write(json.dumps(data, ensure_ascii=False, indent=2) + "\n")


def print_json_line(data: Any) -> None:
    """A JSON document on a line of its own, at once: one of several that follow each other in time."""
    sys.stdout.write(json.dumps(data, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """A table on standard output.

    Columns that begin with ``>`` are aligned right and never broken; others are, where a terminal is narrow.
    """
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        right = column.startswith(">")
        table.add_column(
            column.removeprefix(">"),
            justify="right" if right else "left",
            no_wrap=right,
            overflow="fold",
        )
    for row in rows:
        table.add_row(*(_cell(value) for value in row))
    _show(table)


def print_fields(fields: Iterable[tuple[str, object]]) -> None:
    """Names and values on standard output, one under the other."""
    print_rows((Text(name, "bold"), value) for name, value in fields)


def print_rows(rows: Iterable[Sequence[object]]) -> None:
    """Rows without a header on standard output; the last column is broken where a terminal is narrow."""
    table = Table(box=None, pad_edge=False, show_header=False)
    for number, row in enumerate(rows):
        if number == 0:
            for place in range(len(row)):
                last = place == len(row) - 1
                table.add_column(no_wrap=not last, overflow="fold")
        table.add_row(*(_cell(value) for value in row))
    _show(table)


def clip(text: str, most: int) -> str:
    """At most that many characters of a text, and a sign where some are missing."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def _cell(value: object) -> Text:
    return value if isinstance(value, Text) else Text(str(value))


def _show(table: Table) -> None:
    console = Console(highlight=False, width=None if sys.stdout.isatty() else UNBOUNDED_WIDTH)
    with console.capture() as captured:
        console.print(table)
    # A table pads its last column; a pipe or a copied line has no use for that.
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))
    sys.stdout.flush()


def _errors() -> Console:
    # Made anew each time, so that it follows sys.stderr wherever a test or a pager has led that.
    return Console(stderr=True, highlight=False)
