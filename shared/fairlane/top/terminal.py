"""Reads a terminal key by key, and restores it at the end of the block."""

from __future__ import annotations

import os
import re
import select
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

from fairlane.cli.failures import Interrupted
from fairlane.core.errors import NoTerminal

READ_AT_ONCE = 1024
PARTIAL_S = 0.05
"""Seconds for the rest of an escape sequence; after them it was the key Esc."""

NAMED: Final = {
    b"\x1b[A": "up",
    b"\x1b[B": "down",
    b"\x1b[C": "right",
    b"\x1b[D": "left",
    b"\x1bOA": "up",
    b"\x1bOB": "down",
    b"\x1bOC": "right",
    b"\x1bOD": "left",
    b"\x1b[5~": "page up",
    b"\x1b[6~": "page down",
    b"\x1b[H": "home",
    b"\x1b[F": "end",
    b"\x1b[1~": "home",
    b"\x1b[4~": "end",
    b"\x1b[Z": "back tab",
    b"\x1b": "escape",
    b"\t": "tab",
    b"\r": "enter",
    b"\n": "enter",
    b" ": "space",
}
"""The sequences of terminals for other keys than letters (ECMA-48 and xterm)."""

_KEY = re.compile(r"\x1b[\[O][^@-~]*[@-~]?|.", re.DOTALL)
"""An escape sequence, which may be incomplete, or a character."""

_RESIZED, _STOPPED = signal.SIGWINCH, signal.SIGTSTP


def keys_in(data: bytes) -> Iterator[str]:
    """The keys in a terminal's bytes: names of `NAMED`, or characters; skips other sequences."""
    for key in _KEY.findall(data.decode(errors="surrogateescape")):
        name = NAMED.get(key.encode(errors="surrogateescape")) or key
        if name.isprintable():
            yield name


class Terminal:
    """Keys and signals of a terminal. Use it inside `opened`."""

    def __init__(self, enter: Callable[[], None], leave: Callable[[], None]) -> None:
        """``enter`` sets up the screen and ``leave`` restores it, also around Ctrl-Z."""
        import termios  # imported here, so that the rest of the command line works on Windows
        import tty

        self._termios, self._tty, self._enter, self._leave = termios, tty, enter, leave
        self._input = sys.stdin.fileno()
        self._before = termios.tcgetattr(self._input)
        self._woken, self._wake = os.pipe()
        self._signals: list[int] = []

    @classmethod
    @contextmanager
    def opened(cls, enter: Callable[[], None], leave: Callable[[], None]) -> Iterator[Terminal]:
        """Set the terminal to read keys, and restore it after the block. Raises `NoTerminal`."""
        if not (sys.stdin.isatty() and sys.stdout.isatty()) or sys.platform == "win32":
            raise NoTerminal
        made = cls(enter, leave)
        handled = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, _RESIZED, _STOPPED)
        before = {number: signal.signal(number, made._on_signal) for number in handled}
        made._set_up()
        try:
            yield made
        finally:
            made._restore()
            for number, handler in before.items():
                signal.signal(number, handler)
            os.close(made._woken)
            os.close(made._wake)

    def keys(self, seconds: float) -> list[str] | None:
        """The next keys, within ``seconds``; ``None`` if the size has changed. Raises `Interrupted` for
        SIGINT, SIGQUIT, SIGTERM and SIGHUP, and if the terminal is closed.
        """
        ready, _, _ = select.select([self._input, self._woken], [], [], max(0.0, seconds))
        if self._woken in ready:
            os.read(self._woken, READ_AT_ONCE)
            return self._answer_signals()
        return list(keys_in(self._read())) if self._input in ready else []

    def _read(self) -> bytes:
        data = os.read(self._input, READ_AT_ONCE)
        if not data:
            raise Interrupted(signal.SIGHUP)
        while (
            data.endswith((b"\x1b", b"\x1b[", b"\x1bO"))
            and select.select([self._input], [], [], PARTIAL_S)[0]
        ):
            data += os.read(self._input, READ_AT_ONCE)
        return data

    def _answer_signals(self) -> list[str] | None:
        resized = False
        while self._signals:
            number = self._signals.pop(0)
            if number == _STOPPED:
                self._stop()
                resized = True
            elif number == _RESIZED:
                resized = True
            else:
                raise Interrupted(number)
        return None if resized else []

    def _stop(self) -> None:
        """Handle Ctrl-Z: restore the shell's terminal, and resume when the shell resumes the process."""
        self._restore()
        handler = signal.signal(_STOPPED, signal.SIG_DFL)
        signal.raise_signal(_STOPPED)
        signal.signal(_STOPPED, handler)
        self._set_up()

    def _set_up(self) -> None:
        self._tty.setcbreak(self._input, self._termios.TCSADRAIN)
        self._enter()

    def _restore(self) -> None:
        try:
            self._leave()
        finally:
            self._termios.tcsetattr(self._input, self._termios.TCSADRAIN, self._before)

    def _on_signal(self, number: int, _: FrameType | None) -> None:
        self._signals.append(number)
        os.write(self._wake, b"!")
