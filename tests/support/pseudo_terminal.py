"""A command in a terminal of its own: what it draws is read, keys are typed, and its size is changed."""

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

from fairlane.configuration.environment import process_environment

WITHIN_S = 60.0
_STYLE = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")


class PseudoTerminal:
    """The user's side. ``drawn`` is all that the command has written."""

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
        """How the terminal treats what is typed."""
        return termios.tcgetattr(self._side)

    def type(self, keys: str) -> None:
        """Press keys, and look at nothing that was drawn before."""
        self._seen = len(self.drawn)
        os.write(self._user, keys.encode())

    def resize(self, rows: int, columns: int) -> None:
        self._seen = len(self.drawn)
        self._set_size(rows, columns)
        os.kill(self.process.pid, signal.SIGWINCH)

    def wait_for(self, words: str) -> str:
        """Return what was drawn since the last key once these words are in it, without its styles."""
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
    """The command while it runs; it is ended with the block."""
    terminal = PseudoTerminal(list(command), env, rows, columns)
    try:
        yield terminal
    finally:
        terminal.close()
