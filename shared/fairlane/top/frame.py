"""One frame of ``fairlane top``: a header, a pane, a question or message, and the keys."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import Any

from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table
from rich.text import Text

from fairlane.cli.output import at_local_time, cell_of
from fairlane.core.terminal_text import visible, visible_line
from fairlane.top.panes import PANES, Column, Pane
from fairlane.top.reading import Snapshot

HEADER, FOOTER = 3, 2
LEAST = (30, 8)
KEYS = {
    "1-4, Tab": "another pane",
    "↑ ↓ PgUp PgDn": "choose a line",
    "← →, s": "sort by another column",
    "r": "sort the other way round",
    "e, Enter": "why the lane or run waits",
    "p": "pause the lane or run, or let it go on",
    "Space": "stand still",
    "h, ?": "this help",
    "q, Ctrl-C": "leave",
}
_SHORT = " 1-4 pane  ↑↓ choose  ←→ sort  e explain  p pause  h help  q leave"


@dataclass(frozen=True, slots=True)
class Shown:
    """The contents of a frame, which is drawn to fit the terminal. ``lines`` are all of the pane's, in order;
    ``chosen`` is the index of the selected one. ``message`` is for the last line but one; ``details`` replace
    the table.
    """

    snapshot: Snapshot
    pane: int
    lines: Sequence[Any]
    chosen: int
    column: int
    reverse: bool
    message: str = ""
    urgent: bool = False
    details: Sequence[tuple[str, str]] = ()
    still: bool = False

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width, height = options.max_width, options.height or options.max_height
        if width < LEAST[0] or height < LEAST[1]:
            yield Text(f"{LEAST[0]} × {LEAST[1]} are needed, here are {width} × {height}", overflow="fold")
            return
        yield from self._header(width)
        room = height - HEADER - FOOTER
        body = list(self._detail_lines(width) if self.details else self._table(console, width, room - 1))
        yield from body[:room]
        for _ in range(room - len(body)):
            yield Text("")
        yield _fitted(cell_of(self.message, "bold yellow" if self.urgent else "yellow"), width)
        yield _fitted(Text(_SHORT, "reverse"), width, fill=True)

    def _header(self, width: int) -> Iterator[Text]:
        snapshot = self.snapshot
        leader = f"led by {snapshot.leader.identity}" if snapshot.leader else "nobody leads"
        if "workers" in snapshot.hidden:
            leader = "seen as a team"
        busy = sum(line.beat.info.busy for line in snapshot.workers)
        slots = sum(line.beat.info.slots for line in snapshot.workers)
        in_flight = sum(line.report.view.in_flight for line in snapshot.lanes)
        parts = [
            at_local_time(snapshot.now_ms, snapshot.now_ms),
            leader,
            f"{busy:,}/{slots:,} slots",
            f"{in_flight:,} in flight",
            f"{snapshot.active:,} active",
        ]
        yield _fitted(
            Text.assemble(
                ("fairlane top ", "bold"),
                (f"{visible_line(snapshot.deployment)}  ", ""),
                ("paused view  " if self.still else "", "reverse"),
                visible_line(" · ".join(parts)),
            ),
            width,
        )
        tabs = Text()
        for number, pane in enumerate(PANES):
            style = "bold reverse" if number == self.pane else ""
            tabs.append(f" {number + 1} {pane.name} ({len(pane.lines(snapshot)):,}) ", style)
        yield _fitted(tabs, width)
        yield Text("")

    def _detail_lines(self, width: int) -> Iterator[Text]:
        details = [(visible_line(name), visible(words)) for name, words in self.details]
        wide = max(len(name) for name, _ in details) + 2
        for name, words in details:
            lines = wrap(" ".join(words.split()), max(10, width - wide - 1), break_on_hyphens=False)
            for number, line in enumerate(lines or [""]):
                yield Text.assemble((name.ljust(wide) if number == 0 else " " * wide, "bold"), line)

    def _table(self, console: Console, width: int, room: int) -> Iterator[Text]:
        """The pane's header and as many lines as fit, including the selected one."""
        pane = PANES[self.pane]
        if not self.lines:
            yield Text(pane.empty, "dim")
            return
        first = max(0, min(self.chosen - room // 2, len(self.lines) - room))
        some = self.lines[first : first + room]
        columns = _fitting(pane, some, self.snapshot.now_ms, width)
        table = Table(box=None, pad_edge=False, header_style="bold", expand=False)
        for place, column in columns:
            mark = "" if place != self.column else ("▲" if column.number is self.reverse else "▼")
            table.add_column(
                f"{column.title}{mark}",
                justify="right" if column.number else "left",
                no_wrap=True,
                overflow="ellipsis",
            )
        for number, line in enumerate(some, start=first):
            cells = (column.cell(line, self.snapshot.now_ms) for _, column in columns)
            table.add_row(
                *(cell_of(cell) for cell in cells),
                style="reverse" if number == self.chosen else "",
            )
        options = console.options.update(width=width, height=None)
        for segments in console.render_lines(table, options, pad=False):
            yield Text.assemble(*((segment.text, segment.style or "") for segment in segments), no_wrap=True)


def _fitting(pane: Pane[Any], lines: Sequence[Any], now_ms: int, width: int) -> list[tuple[int, Column[Any]]]:
    """The columns that fit; drops those of the highest ``spare`` first."""
    found = list(enumerate(pane.columns))
    widths = {
        place: max(len(column.title) + 1, *(len(column.cell(line, now_ms)) for line in lines))
        for place, column in found
    }
    while sum(widths[place] + 1 for place, _ in found) > width + 1:
        spare = max(found, key=lambda each: each[1].spare)
        if spare[1].spare == 0:
            break
        found.remove(spare)
    return found


def _fitted(text: Text, width: int, *, fill: bool = False) -> Text:
    text.truncate(width, overflow="ellipsis", pad=fill)
    text.no_wrap = True
    return text
