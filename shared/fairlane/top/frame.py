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
from fairlane.top.panes import PANES, Column
from fairlane.top.reading import Snapshot

HEADER, FOOTER, GAP = 3, 2, 2
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
        yield _fitted(cell_of(visible_line(self.message), "bold yellow" if self.urgent else "yellow"), width)
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
        table = Table(box=None, pad_edge=False, header_style="bold", expand=False)
        columns = self._fitting(some, width)
        for column, title, wide in columns:
            table.add_column(
                title,
                justify="right" if column.number else "left",
                no_wrap=True,
                overflow="ellipsis",
                max_width=wide,
            )
        for number, line in enumerate(some, start=first):
            table.add_row(
                *(_cell(column, line, self.snapshot.now_ms) for column, _, _ in columns),
                style="reverse" if number == self.chosen else "",
            )
        options = console.options.update(width=width, height=None)
        for segments in console.render_lines(table, options, pad=False):
            yield Text.assemble(*((segment.text, segment.style or "") for segment in segments), no_wrap=True)

    def _fitting(self, lines: Sequence[Any], width: int) -> list[tuple[Column[Any], str, int]]:
        """The columns that fit side by side, with titles and widths; spare ones are left out first.

        A long text is cut, so that it takes no other column's place. The first column has what is left over.
        """
        found, most = list(enumerate(PANES[self.pane].columns)), max(LEAST[0] // 2, width // 4)
        titles, widths = {}, {}
        for place, column in found:
            mark = "" if place != self.column else ("▲" if column.number is self.reverse else "▼")
            titles[place] = f"{column.title}{mark}"
            cells = (_cell(column, line, self.snapshot.now_ms).cell_len for line in lines)
            widths[place] = min(most, max(len(titles[place]), *cells))
        # Rich before 14 gives the first column a cell more than it may have.
        while (left := width - 1 + GAP - sum(widths[place] + GAP for place, _ in found)) < 0:
            found.remove(max(found, key=lambda each: (each[1].spare, each[0])))
        widths[0] += left
        return [(column, titles[place], widths[place]) for place, column in found]


def _cell(column: Column[Any], line: Any, now_ms: int) -> Text:
    value = column.cell(line, now_ms)
    return cell_of(value if isinstance(value, Text) else visible_line(value))


def _fitted(text: Text, width: int, *, fill: bool = False) -> Text:
    text.truncate(width, overflow="ellipsis", pad=fill)
    text.no_wrap = True
    return text
