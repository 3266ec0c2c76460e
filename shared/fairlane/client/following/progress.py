"""Live progress of a run: a bar for the whole and one for each lane, or plain lines now and then."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING

from fairlane.client.following.notebook import Bar, Cell
from fairlane.client.following.standstill import Standstill
from fairlane.core.clock import Clock
from fairlane.core.figures import counted, figure
from fairlane.core.terminal_text import visible_line
from fairlane.model.run import RunState
from fairlane.model.run_status import RunStatus

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.progress import BarColumn, Progress, TaskID

RATE_WINDOW_S = 10.0
CHANGES = 5
LINE_EVERY_S = 5.0
LONGEST_TITLE = 40
LEAST_BAR, WIDEST_BAR = 8, 30
BESIDE_BAR = 72
"""Columns of a terminal that are left to names and numbers; a narrower terminal has no bar."""

UNDRAWABLE = (OSError, ValueError, AttributeError)
"""What drawing raises on a stream that is closed, of a narrow encoding, or no real file."""

NUMBERS = ("{task.fields[share]}", "{task.fields[count]}")


@contextmanager
def open_progress(clock: Clock, console: Console | None = None) -> Iterator[FailSafeView]:
    """Progress on ``console`` (standard error): live in a terminal or notebook, else in plain lines.

    After the first drawing error it draws nothing more: progress must not end a wait or a program.
    """
    from rich.live import Live
    from rich.progress import Progress, TextColumn
    from rich.table import Column

    screen = _standard_error() if console is None else console
    if screen.is_jupyter:
        yield FailSafeView(NotebookProgress(clock, Cell(clock)))
        return
    if not screen.is_terminal or screen.is_dumb_terminal:
        yield FailSafeView(PlainProgress(clock, screen))
        return
    drawn = Bars(
        Progress(
            TextColumn("{task.description}", markup=False, table_column=Column(no_wrap=True)),
            *_bar_columns(screen.width),
            *(
                TextColumn(field, markup=False, table_column=Column(no_wrap=True, justify="right"))
                for field in NUMBERS
            ),
            TextColumn(" {task.fields[note]}", markup=False, table_column=Column(overflow="fold")),
            console=screen,
            auto_refresh=False,
        )
    )
    # Redrawn for each status: rich's refresh thread could outlive an interrupt.
    live = Live(drawn, console=screen, auto_refresh=False)
    with suppress(*UNDRAWABLE):
        live.start(refresh=True)
    try:
        bars = LiveProgress(clock, drawn, live.refresh, longest_title=min(LONGEST_TITLE, screen.width // 3))
        yield FailSafeView(bars)
    finally:
        with suppress(*UNDRAWABLE):
            live.stop()


def _bar_columns(width: int) -> Iterator[BarColumn]:
    from rich.progress import BarColumn
    from rich.table import Column

    if width >= BESIDE_BAR:
        drawn = max(LEAST_BAR, min(WIDEST_BAR, width - BESIDE_BAR))
        yield BarColumn(bar_width=drawn, table_column=Column(no_wrap=True))


def _standard_error() -> Console:
    """A console that goes silent once its pipe is closed, where rich's own would end the process."""
    from rich.console import Console

    screen = Console(stderr=True)

    def go_silent() -> None:
        screen.quiet = True

    screen.on_broken_pipe = go_silent  # type: ignore[method-assign]
    return screen


class FailSafeView:
    """Draws with ``view`` until that fails once: a stream may be closed, or lack characters or methods."""

    def __init__(self, view: LiveProgress | NotebookProgress | PlainProgress) -> None:
        self._view, self._failed = view, False

    def show(self, status: RunStatus, why: Sequence[str] = ()) -> None:
        """Draw ``status``; the last one is of a finished run, unless waiting ended before it.

        ``why``: sentences that say why nothing happens.
        """
        self._try(partial(self._view.show, status, why))

    def silent(self, seconds: float) -> None:
        """Show that Redis has not answered for ``seconds``; the client keeps asking."""
        self._try(partial(self._view.silent, seconds))

    def _try(self, draw: Callable[[], None]) -> None:
        if self._failed:
            return
        try:
            draw()
        except UNDRAWABLE:
            self._failed = True


class Bars:
    """What a terminal shows: the bars, and below them why the run waits."""

    def __init__(self, bars: Progress) -> None:
        self.bars, self.why = bars, tuple[str, ...]()

    def __rich__(self) -> RenderableType:
        """The bars and the sentences, for rich."""
        from rich.console import Group
        from rich.text import Text

        return Group(self.bars.get_renderable(), *(Text(visible_line(each), "yellow") for each in self.why))


class LiveProgress:
    """Bars that are redrawn with every status."""

    def __init__(
        self, clock: Clock, drawn: Bars, refresh: Callable[[], None], longest_title: int = LONGEST_TITLE
    ) -> None:
        self._counts, self._drawn, self._refresh, self._longest = Counts(clock), drawn, refresh, longest_title
        self._bars = drawn.bars
        self._rows: dict[str, TaskID] = {}

    def show(self, status: RunStatus, why: Sequence[str] = ()) -> None:
        """Redraw the bars of the run and of its lanes."""
        whole, *lanes = self._counts.bars(status)
        self._draw("", whole.title, whole)
        for lane in lanes:
            self._draw(lane.title, f"  {lane.title}", lane)
        self._drawn.why = tuple(why)
        self._refresh()

    def silent(self, seconds: float) -> None:
        """Show beside the bar for how long Redis has not answered."""
        if "" in self._rows:
            self._bars.update(self._rows[""], note=_silence(seconds))
            self._refresh()

    def _draw(self, row: str, title: str, bar: Bar) -> None:
        if row not in self._rows:
            title = visible_line(title)
            shown = title if len(title) <= self._longest else f"{title[: self._longest - 1]}…"
            self._rows[row] = self._bars.add_task(shown, total=None, share="", count="", note="")
        share, count = f"{bar.percent} %", f"{bar.done:,}/{bar.of:,}"
        self._bars.update(
            self._rows[row], completed=bar.done, total=bar.of, share=share, count=count, note=bar.note
        )


class NotebookProgress:
    """Bars in the output of a notebook's cell."""

    def __init__(self, clock: Clock, cell: Cell) -> None:
        self._counts, self._cell = Counts(clock), cell
        self._bars: list[Bar] = []

    def show(self, status: RunStatus, why: Sequence[str] = ()) -> None:
        """Redraw the bars in the cell's output."""
        self._bars = self._counts.bars(status)
        self._cell.draw(self._bars, why, at_once=status.state.finished)

    def silent(self, seconds: float) -> None:
        """Show beside the bar for how long Redis has not answered."""
        silent = Bar("", 0, 0, _silence(seconds))
        self._cell.draw([first._replace(note=silent.note) for first in self._bars[:1]] or [silent])


class PlainProgress:
    """A line every `LINE_EVERY_S` seconds, and one at the end."""

    def __init__(self, clock: Clock, console: Console) -> None:
        self._clock, self._console = clock, console
        self._counts = Counts(clock)
        self._due_ms = 0
        self._why: tuple[str, ...] = ()
        self._printed: set[str] = set()

    def show(self, status: RunStatus, why: Sequence[str] = ()) -> None:
        """Print a line if one is due, if the run has finished, or if it begins to wait.

        A sentence is not repeated while it stays the same: a log of hours should stay short.
        """
        whole, *lanes = self._counts.bars(status)
        line = f"{whole.title}: {whole.percent} % {whole.done:,}/{whole.of:,}"
        parts = [whole.note, *(f"{lane.title} {lane.done:,}/{lane.of:,}" for lane in lanes)]
        news, begins = [each for each in why if each not in self._printed], bool(why) and not self._why
        said = "; ".join([", ".join([line, *filter(None, parts)]), *news])
        if self._print(said, at_once=status.state.finished or begins):
            self._printed = set(why)
        self._why = tuple(why)

    def silent(self, seconds: float) -> None:
        """Print for how long Redis has not answered, if a line is due."""
        self._print(_silence(seconds))

    def _print(self, line: str, *, at_once: bool = False) -> bool:
        """Whether it was printed."""
        now = self._clock.monotonic_ms()
        if not at_once and now < self._due_ms:
            return False
        self._due_ms = now + round(LINE_EVERY_S * 1000)
        self._console.print(visible_line(line), markup=False, highlight=False, soft_wrap=True)
        return True


class Rate:
    """How fast a count grows, over the last `RATE_WINDOW_S` seconds, or over `CHANGES` changes if these take
    longer: a job that ends every 20 s is 0.05 a second, not 0 and 0.1 in turn.
    """

    def __init__(self) -> None:
        self._seen: deque[tuple[int, int]] = deque()
        self._changed: deque[int] = deque(maxlen=CHANGES + 2)

    def count(self, now_ms: int, done: int) -> None:
        """Record the current count."""
        if self._seen and done != self._seen[-1][1]:
            self._changed.append(now_ms)
        self._seen.append((now_ms, done))
        few = len(self._changed) < CHANGES + 2  # the last change may end a standstill
        window_ms = now_ms if few else max(RATE_WINDOW_S * 1000, self._changed[-2] - self._changed[0])
        while len(self._seen) > 2 and self._seen[1][0] <= now_ms - window_ms:
            self._seen.popleft()

    @property
    def per_second(self) -> float | None:
        """``None`` until two moments have been seen."""
        (first_ms, first), (last_ms, last) = self._seen[0], self._seen[-1]
        return (last - first) * 1000 / (last_ms - first_ms) if last_ms > first_ms else None


class Counts:
    """The finished jobs of a run and of its lanes, and their rates."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._rates = clock, defaultdict[str, Rate](Rate)

    def bars(self, status: RunStatus) -> list[Bar]:
        """The bar of the run, and behind it one for each of its lanes."""
        paused = status.paused is not None
        bars = [self._bar("", status.name, *_whole(status), _mishaps(status), paused=paused)]
        for lane in status.lanes:
            bar = self._bar(lane.lane, lane.lane, lane.done, lane.known, "", paused=paused)
            bars.append(bar._replace(part=True))
        return bars

    def _bar(self, row: str, title: str, done: int, of: int, note: str, *, paused: bool) -> Bar:
        """A bar with ``note``, and with rate and time left unless the run is paused."""
        self._rates[row].count(self._clock.monotonic_ms(), done)
        pace = "" if paused else _pace(self._rates[row], of - done)
        return Bar(title, done, of, ", ".join(filter(None, (pace, note))))


def _whole(status: RunStatus) -> tuple[int, int]:
    """Finished jobs, and all jobs; of a run without jobs, its items.

    A run without items counts as one item, which ends with the run.
    """
    if status.jobs:
        return status.jobs_done, status.jobs
    return (status.items_done, status.items) if status.items else (int(status.state.finished), 1)


def rate_in_words(per_second: float) -> str:
    """``"77.1"``; below 1 with two digits that count, ``"0.033"``."""
    return figure(per_second, 2) if 0 < per_second < 1 else f"{per_second:.1f}"


def _pace(rate: Rate, left: int) -> str:
    per_second = rate.per_second
    if per_second is None:
        return ""
    pace = f"{rate_in_words(per_second)}/s"
    if left <= 0 or per_second <= 0:
        return pace
    minutes, seconds = divmod(round(left / per_second), 60)
    hours, minutes = divmod(minutes, 60)
    clock = f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"
    return f"{pace}, {clock} left"


def _mishaps(status: RunStatus) -> str:
    """Rejections, retries and failures, and the run's state where it is not running or completed."""
    parts = [
        f"{status.rate_limits:,} × 429" if status.rate_limits else "",
        counted(status.retries, "retry", "retries") if status.retries else "",
        f"{status.failed:,} failed" if status.failed else "",
    ]
    if status.state in (RunState.SUBMITTED, RunState.CANCELLED, RunState.REFUSED):
        parts.append(str(status.state))
    if status.paused is not None:
        parts.append(f"paused by {visible_line(status.paused.by)}" if status.paused.by else "paused")
    return ", ".join(filter(None, parts))


def _silence(seconds: float) -> str:
    if seconds < 1:
        return "Redis does not answer; trying again"
    return f"Redis has not answered for {seconds:.0f} s; trying again"


def draw(view: FailSafeView, status: RunStatus | None, silence_s: float, standstill: Standstill) -> None:
    """Show the status, and why nothing happens; or for how long Redis has been silent."""
    if status is None:
        view.silent(silence_s)
    else:
        view.show(status, standstill.words(status))
