"""Prints messages on standard error and results on standard output, and formats times.

All output passes `visible`, so that no text of a team or a provider controls the terminal. A message also
passes `mask_text`: no error that quotes a URL shows its password.
"""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime, tzinfo
from typing import TYPE_CHECKING, Any, BinaryIO, TextIO, cast

from fairlane.core.clock import span, until
from fairlane.core.redaction import mask_text
from fairlane.core.terminal_text import visible, visible_json

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

UNBOUNDED_WIDTH = 10**9
"""Columns of output that goes to no terminal: each row is one line."""

_LAST_S = datetime(9999, 12, 31, tzinfo=UTC).timestamp()
"""Seconds since 1970; later times are shown as this one. A day later, Python's calendar may have ended."""


def say(message: str) -> None:
    """Print a message on standard error; standard output is for a command's result."""
    from rich.text import Text

    _print_message(Text(visible(mask_text(message))))


def complain(message: str) -> None:
    """Print an error message on standard error."""
    from rich.text import Text

    _print_message(Text.assemble(("error: ", "bold red"), visible(mask_text(message))))


def print_line(text: str) -> None:
    """One line on standard output, at once."""
    sys.stdout.write(f"{visible(text)}\n")
    sys.stdout.flush()


def print_json(data: Any) -> None:
    """One JSON document on standard output."""
    sys.stdout.write(visible_json(json.dumps(data, ensure_ascii=False, indent=2)) + "\n")


def fields_of(source: object, *names: str) -> dict[str, Any]:
    """Attributes of ``source`` as a part of a document, under their own names."""
    return {name: getattr(source, name) for name in names}


def emit(document: Any, show: Callable[[], None], *, as_json: bool) -> None:
    """Print a command's result on standard output: ``document`` as JSON, or what ``show`` prints."""
    if as_json:
        print_json(document)
    else:
        show()


def print_json_line(data: Any) -> None:
    """A JSON document on a line of its own, at once: one of several that follow each other in time."""
    sys.stdout.write(visible_json(json.dumps(data, ensure_ascii=False)) + "\n")
    sys.stdout.flush()


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, apart: bool = False) -> None:
    """Print a table on standard output, ``apart`` with an empty line before it.

    Columns whose title begins with ``>`` are aligned right; the others wrap in a narrow terminal.
    """
    from rich.table import Table

    if apart:
        print_line("")
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        right = column.startswith(">")
        table.add_column(
            column.removeprefix(">"), justify="right" if right else "left", no_wrap=right, overflow="fold"
        )
    for row in rows:
        table.add_row(*(cell_of(value) for value in row))
    _show(table)


def print_fields(fields: Iterable[tuple[str, object]]) -> None:
    """Print names and values on standard output, one pair a line; a value that is ``None`` is left out."""
    from rich.text import Text

    print_rows((Text(name, "bold"), value) for name, value in fields if value is not None)


def print_rows(rows: Iterable[Sequence[object]]) -> None:
    """Print rows without a header on standard output; the last column wraps in a narrow terminal."""
    from rich.table import Table

    table = Table(box=None, pad_edge=False, show_header=False)
    for row in rows:
        table.add_row(*(cell_of(value) for value in row))
    for column in table.columns:
        column.no_wrap, column.overflow = column is not table.columns[-1], "fold"
    _show(table)


class _LinesOut:
    """Standard output for JSON lines on a terminal."""

    def write(self, text: str) -> int:
        """Write some of them."""
        return sys.stdout.write(visible_json(text))


def lines_out() -> TextIO:
    """Standard output for JSON lines: byte for byte in a pipe, the same documents on a terminal."""
    return cast(TextIO, _LinesOut()) if sys.stdout.isatty() else sys.stdout


def bytes_out() -> BinaryIO:
    """Standard output for a file's content: exact in a pipe, made visible on a terminal."""
    sys.stdout.flush()
    return cast(BinaryIO, _VisibleOut()) if sys.stdout.isatty() else sys.stdout.buffer


class _VisibleOut(io.RawIOBase):
    """Standard output on a terminal."""

    def writable(self) -> bool:
        """Yes."""
        return True

    def write(self, data: Any) -> int:
        """Write whole lines or parts of them, in UTF-8."""
        text = bytes(data).decode("utf-8", "backslashreplace")
        sys.stdout.write(visible(text))
        return len(data)


def clip(text: str, most: int) -> str:
    """At most ``most`` characters of a text, the last of them "…" where some are missing."""
    return text if len(text) <= most else f"{text[: most - 1]}…"


def iso(at_ms: int | None) -> str | None:
    """``"2026-01-31T08:05:00.123Z"``; ``None`` for ``None``. Times after 9999 become its last day."""
    if at_ms is None:
        return None
    at = _moment(at_ms)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _moment(at_ms: float) -> datetime:
    """A time in milliseconds since 1970, `_LAST_S` at most."""
    return datetime.fromtimestamp(min(at_ms / 1000, _LAST_S), UTC)


def ago(at_ms: int | None, now_ms: int) -> str:
    """``"3 min ago"``; a dash for what has not happened."""
    if at_ms is None:
        return "–"
    return "just now" if now_ms - at_ms < 1000 else f"{span(now_ms - at_ms)} ago"


def when(at_ms: int, now_ms: int) -> str:
    """``"14:05:09, in 3 min"`` by this machine's clock."""
    return f"{at_local_time(at_ms, now_ms)}, {until(at_ms, now_ms)}"


def at_local_time(at_ms: int, now_ms: int, zone: tzinfo | None = None) -> str:
    """``"14:05:09"`` by this machine's clock (or in ``zone``), with its date where that is not today's."""
    at, now = (_moment(ms).astimezone(zone) for ms in (at_ms, now_ms))
    return f"{at:%H:%M:%S}" if at.date() == now.date() else f"{at:%Y-%m-%d %H:%M:%S}"


def cell_of(value: object, style: str = "") -> Text:
    """A value as a part of a table or a screen; a `Text` keeps its style."""
    from rich.text import Text

    if not isinstance(value, Text):
        return Text(visible(str(value)), style)
    shown = visible(value.plain)
    return value if shown == value.plain else Text(shown, value.style)


def _show(table: Table) -> None:
    from rich.console import Console

    console = Console(highlight=False, width=None if sys.stdout.isatty() else UNBOUNDED_WIDTH)
    with console.capture() as captured:
        console.print(table)
    # A table pads its last column; a pipe or a copied line has no use for that.
    sys.stdout.write("".join(f"{line.rstrip()}\n" for line in captured.get().splitlines()))
    sys.stdout.flush()


def _print_message(text: Text) -> None:
    """Print on standard error. A full disk there neither undoes what a command did nor loses its result."""
    from rich.console import Console

    # A new one each time: tests and pagers replace sys.stderr.
    with suppress(OSError):
        Console(stderr=True, highlight=False).print(text, soft_wrap=True)
