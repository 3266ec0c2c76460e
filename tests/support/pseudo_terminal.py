"""Runs a command in a pseudo-terminal: tests read its screen, type keys, and change the terminal's size."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from fairlane.config.environment import process_environment

WITHIN_S = 60.0
_STYLE = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")


class PseudoTerminal:
    """The user's side of the terminal. ``drawn`` is everything that the command has written."""

    def __init__(self, command: list[str], env: Mapping[str, str], rows: int, columns: int) -> None:
        self._user, self._side = pty.openpty()
        self._set_size(rows, columns)
        self.before = self.mode()
        self.drawn = b""
        self._seen = 0
        self.process = subprocess.Popen(
            [sys.executable, "-m", "fairlane.cli", *command],
            stdin=self._side,
            stdout=self._side,
            stderr=self._side,
            env={**process_environment(), **env, "TERM": "xterm-256color"},
            start_new_session=True,
        )

    def mode(self) -> list[Any]:
        """The terminal's input settings."""
        return termios.tcgetattr(self._side)

    def type(self, keys: str) -> None:
        """Press keys. `wait_for` then ignores what was drawn earlier."""
        self._seen = len(self.drawn)
        os.write(self._user, keys.encode())

    def resize(self, rows: int, columns: int) -> None:
        self._seen = len(self.drawn)
        self._set_size(rows, columns)
        os.kill(self.process.pid, signal.SIGWINCH)

    def wait_for(self, words: str) -> str:
        """Wait until these words are drawn. Returns the text since the last key, without styles."""
        return self._until(lambda text: words in text, words)

    def wait_for_end(self) -> int:
        """The exit code."""
        self._until(lambda _: self.process.poll() is not None, "its end")
        return int(self.process.returncode)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._user)
        os.close(self._side)

    def _until(self, done: Any, wanted: str) -> str:
        deadline = time.monotonic() + WITHIN_S
        while not done(text := self._text()):
            if time.monotonic() > deadline:
                raise AssertionError(f"no {wanted!r} within {WITHIN_S:g} s; drawn since: {text[-4000:]}")
            if select.select([self._user], [], [], 0.05)[0]:
                self.drawn += os.read(self._user, 65536)
        return text

    def _text(self) -> str:
        return _STYLE.sub(b"", self.drawn[self._seen :]).decode(errors="replace")

    def _set_size(self, rows: int, columns: int) -> None:
        fcntl.ioctl(self._side, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


@contextmanager
def in_terminal(
    *command: str, env: Mapping[str, str], rows: int = 24, columns: int = 80
) -> Iterator[PseudoTerminal]:
    """Run a command during the block, and end it then."""
    terminal = PseudoTerminal(list(command), env, rows, columns)
    try:
        yield terminal
    finally:
        terminal.close()
