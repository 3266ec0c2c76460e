"""Ensures that no child outlives this process, even after kill -9: a watchdog ends the children."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

from fairlane.core.errors import LocalStackError

REAPER = Path(__file__).with_name("reaper.py")


class Guard:
    """Reports child process groups to a watchdog, which starts with the first `watch` and ends by `close`."""

    def __init__(self) -> None:
        self._reaper: subprocess.Popen[bytes] | None = None
        self._watched: set[int] = set()

    @property
    def pid(self) -> int | None:
        """The watchdog's process id, once it runs."""
        return self._reaper.pid if self._reaper else None

    def watch(self, pid: int) -> None:
        """End the group led by ``pid`` when this process ends. Raises `LocalStackError`."""
        if self._reaper is None:
            self._start()
        self._watched.add(pid)
        if self._send("watch", pid):
            return
        # The watchdog was killed: a new one gets all watched groups.
        self._close_pipe()
        self._start()
        if not all(self._send("watch", known) for known in self._watched):
            raise LocalStackError("guard", "the watchdog process ends as soon as it starts")

    def forget(self, pid: int) -> None:
        """Stop watching a process that has ended: the system may reuse its id."""
        if pid in self._watched:
            self._watched.discard(pid)
            self._send("forget", pid)

    def __contains__(self, pid: int) -> bool:
        return pid in self._watched

    def close(self, timeout: float = 5.0) -> None:
        """End all watched groups and the watchdog, within about ``timeout`` seconds."""
        if self._reaper is None:
            return
        self._close_pipe()
        try:
            self._reaper.wait(timeout)
        except subprocess.TimeoutExpired:
            self._reaper.kill()
            self._reaper.wait()
        self._reaper = None

    def __enter__(self) -> Guard:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _start(self) -> None:
        self._reaper = subprocess.Popen(
            [sys.executable, "-I", "-S", str(REAPER), str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            bufsize=0,
        )

    def _send(self, verb: str, pid: int) -> bool:
        if self._reaper is None or self._reaper.stdin is None:
            return False
        try:
            self._reaper.stdin.write(f"{verb} {pid}\n".encode())
        except BrokenPipeError:
            return False
        return True

    def _close_pipe(self) -> None:
        if self._reaper is None or self._reaper.stdin is None:
            return
        with contextlib.suppress(BrokenPipeError):
            self._reaper.stdin.close()
        if self._reaper.poll() is not None:
            self._reaper.wait()
