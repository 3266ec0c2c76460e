"""Tables of HTML for notebooks. Every text is escaped; colours are those of the notebook's theme."""

from collections.abc import Callable, Iterable, Sequence
from html import escape
from typing import TypeAlias

from fairlane.core.errors import FairlaneError
from fairlane.core.figures import percent
from fairlane.model.run_status import RunStatus

Cell: TypeAlias = str | int | float | None

MOST_ROWS = 100
"""Rows of a table; a notebook keeps its outputs in its file."""

_STYLE = "border-collapse:collapse;font-variant-numeric:tabular-nums;margin:0.5em 0"


def table(caption: str, columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> str:
    """A table with a caption; numbers are at the right, with separators of thousands."""
    listed = list(rows)
    head = "".join(f'<th style="text-align:left" scope="col">{escape(name)}</th>' for name in columns)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in listed[:MOST_ROWS])
    more = f"<p>and {len(listed) - MOST_ROWS:,} more</p>" if len(listed) > MOST_ROWS else ""
    title = f'<caption style="text-align:left;font-weight:bold">{escape(caption)}</caption>'
    return f'<table style="{_STYLE}">{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}'


def note(text: str) -> str:
    """A line below a table."""
    return f"<p>{escape(text)}</p>"


def _cell(value: Cell) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return f'<td style="text-align:left">{escape("–" if value is None else str(value))}</td>'
    text = f"{value:,}" if isinstance(value, int) else f"{value:,.1f}"
    return f'<td style="text-align:right">{text}</td>'


def run_html(title: str, read: Callable[[], RunStatus]) -> str:
    """A run as it stands now; its title alone where ``read`` finds no status."""
    try:
        status = read()
    except FairlaneError as error:
        return table(title, ["status"], [[str(error)]])
    cells: dict[str, Cell] = {
        "state": str(status.state),
        "done": f"{percent(status.progress)} %",
        "jobs": status.jobs,
        "items": status.items,
        "in flight": status.in_flight,
        "failed": status.failed,
        "retries": status.retries,
    }
    shown = table(title, list(cells), [list(cells.values())])
    return shown + (note(status.reason) if status.reason else "")
