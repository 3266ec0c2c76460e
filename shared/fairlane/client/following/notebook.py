"""Live progress of a run in a notebook's cell: bars in HTML, redrawn in place, that stay when it is saved.

Uses the kernel's own display, without widgets, so JupyterLab, VS Code and Colab show it alike.
"""

from collections.abc import Callable, Mapping, Sequence
from html import escape
from importlib import import_module
from typing import Any, NamedTuple, TypeAlias

from fairlane.core.clock import Clock

REDRAWN_EVERY_MS = 200
"""A browser gets at most five redraws a second, and always the last state."""

Bundle: TypeAlias = Mapping[str, str]
"""An output by MIME type, as Jupyter's messages have it."""


class Bar(NamedTuple):
    """One line: a title, ``done`` of ``of`` items, and a text beside the bar."""

    title: str
    done: int
    of: int
    note: str
    part: bool = False

    @property
    def percent(self) -> int:
        """Rounded down: 100 only when nothing is left."""
        return 100 * self.done // self.of if self.of else 0


class Cell:
    """An output of the running cell, which is redrawn in place."""

    def __init__(self, clock: Clock, display: Callable[..., Any] | None = None) -> None:
        """``display``: by default IPython's, which every notebook has."""
        self._clock, self._display = clock, display or import_module("IPython.display").display
        self._handle: Any = None
        self._drawn: Bundle | None = None
        self._due_ms = 0

    def draw(self, bars: Sequence[Bar], why: Sequence[str] = (), *, at_once: bool = False) -> None:
        """Show these bars, and below them why the run waits. Skips it within 200 ms of the last redraw,
        unless ``at_once``.
        """
        now_ms = self._clock.monotonic_ms()
        bundle = {"text/html": html_of(bars, why), "text/plain": text_of(bars, why)}
        if bundle == self._drawn or (now_ms < self._due_ms and not at_once):
            return
        self._drawn, self._due_ms = bundle, now_ms + REDRAWN_EVERY_MS
        if self._handle is None:
            self._handle = self._display(bundle, raw=True, display_id=True)
        else:
            self._handle.update(bundle, raw=True)


def html_of(bars: Sequence[Bar], why: Sequence[str] = ()) -> str:
    """The bars as a table and why the run waits; colours are those of the notebook's theme, light or dark."""
    rows = "".join(_row(bar) for bar in bars)
    style = "border-collapse:collapse;font-variant-numeric:tabular-nums"
    sentences = "".join(f"<div>{escape(each)}</div>" for each in why)
    return f'<table style="{style}" aria-label="progress">{rows}</table>{sentences}'


def text_of(bars: Sequence[Bar], why: Sequence[str] = ()) -> str:
    """The same where no HTML is shown."""
    lines = [f"{bar.title}: {bar.done:,}/{bar.of:,}  {bar.note}".rstrip() for bar in bars]
    return "\n".join([*lines, *why])


def _row(bar: Bar) -> str:
    indent = "padding-left:1.5em;" if bar.part else "font-weight:bold;"
    right = "text-align:right;white-space:nowrap"
    return (
        f'<tr><td style="{indent}text-align:left">{escape(bar.title)}</td>'
        f'<td><progress value="{bar.done}" max="{max(1, bar.of)}" style="width:16em"></progress></td>'
        f'<td style="{right}">{bar.percent} %</td>'
        f'<td style="{right}">{bar.done:,}/{bar.of:,}</td>'
        f'<td style="text-align:left;white-space:nowrap">{escape(bar.note)}</td></tr>'
    )
