"""A named child process: starts under the guard, logs to a file, and ends within a time limit."""

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from itertools import groupby
from pathlib import Path
from typing import IO, Protocol, TypeAlias

from fairlane.config.environment import child_environment
from fairlane.core.errors import LocalStackError
from fairlane.embedded.guard import Guard
from fairlane.embedded.private import make_private

Checkpoint: TypeAlias = Callable[[], None]
"""Called repeatedly during a wait; its exception ends the wait."""

STOP_TIMEOUT_S = 10.0
INHERITED = -1  # the parent's umask
POLL_S = 0.02
TAIL_LINES = 10
TAIL_BYTES = 4096

# A child waits for one line before it becomes its program; the parent writes it once the guard knows its id.
# If the parent dies in between, the child reads end of file and exits. So the guard misses no child.
GATE = 'read -r go && exec "$0" "$@" </dev/null'


class Child(Protocol):
    """The parts of `subprocess.Popen` that `Process` needs."""

    pid: int
    stdin: IO[bytes] | None

    def poll(self) -> int | None:
        """Its return code, ``None`` while it runs."""
        ...

    def wait(self, timeout: float | None = None) -> int:
        """Its return code once it has ended. Raises `subprocess.TimeoutExpired`."""
        ...

    def send_signal(self, sig: int) -> None:
        """Send a signal; nothing happens if it has ended."""
        ...


Spawn: TypeAlias = Callable[..., Child]
"""Starts a child; takes what `subprocess.Popen` takes."""


def wait_until(predicate: Callable[[], bool], timeout: float, interval: float = 0.02) -> bool:
    """Call ``predicate`` every ``interval`` seconds until it is true or ``timeout`` passed; return which."""
    pause = threading.Event()
    deadline = time.monotonic() + timeout
    while not predicate():
        if time.monotonic() > deadline:
            return False
        pause.wait(interval)
    return True


def no_checkpoint() -> None:
    """A checkpoint that never raises."""


def describe_exit(code: int) -> str:
    """A return code in words: ``"exited with code 3"``, ``"was killed by SIGKILL"``."""
    if code >= 0:
        return f"exited with code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"


@dataclass(eq=False, repr=False)
class Process:
    """A named child. Its output goes to ``log``; children with one ``role`` (default: the name) stop
    together. It leads its own process group, so that Ctrl-C in a terminal reaches only the parent, which
    decides the order of the ends. `start` removes ``ready_file``, which the program writes, and calls
    ``spawn``.
    """

    name: str
    argv: Sequence[str]
    _: KW_ONLY
    log: Path
    guard: Guard
    role: str = ""
    env: Mapping[str, str | None] = field(default_factory=dict)
    ready_file: Path | None = None
    keep_open: Sequence[int] = ()
    checkpoint: Checkpoint = no_checkpoint
    umask: int = INHERITED
    spawn: Spawn = subprocess.Popen
    _popen: Child | None = field(default=None, init=False)
    _log_start: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.role = self.role or self.name

    @property
    def pid(self) -> int:
        """Its current or last process id. Raises `LocalStackError` if it was never started."""
        if self._popen is None:
            raise LocalStackError(self.name, "has not been started")
        return self._popen.pid

    @property
    def is_running(self) -> bool:
        """Whether the process was started and has not ended."""
        return self._popen is not None and self.returncode is None

    @property
    def returncode(self) -> int | None:
        """Its return code (``-9`` for SIGKILL); ``None`` while it runs or before it was started."""
        if self._popen is None:
            return None
        code = self._popen.poll()
        if code is not None:
            self._release_group()
        return code

    def start(self) -> None:
        """Start it; it need not be ready yet. Raises `LocalStackError` if it runs already."""
        if self.is_running:
            raise LocalStackError(self.name, f"is running already, with pid {self.pid}")
        if self.ready_file is not None:
            self.ready_file.unlink(missing_ok=True)
        make_private(self.log.parent)
        with self.log.open("ab") as sink:
            self._log_start = sink.tell()
            self._popen = self.spawn(
                ["/bin/sh", "-c", GATE, *self.argv],
                stdin=subprocess.PIPE,
                stdout=sink,
                stderr=subprocess.STDOUT,
                env=child_environment(self.env),
                pass_fds=self.keep_open,
                start_new_session=True,
                umask=self.umask,
                bufsize=0,
            )
        self.guard.watch(self._popen.pid)
        self._open_gate(self._popen)

    def wait_ready(self, timeout: float, probe: Callable[[], bool] | None = None) -> None:
        """Return once its ready file exists and ``probe``, if any, returns true.

        Raises `LocalStackError` with the end of its log if it dies first, or takes over ``timeout`` seconds.
        """
        deadline = time.monotonic() + timeout
        while not self._looks_ready(probe):
            if not self.is_running:
                raise self._not_up(f"{describe_exit(self.returncode or 0)} before it was ready")
            if time.monotonic() > deadline:
                raise self._not_up(f"was not ready after {timeout:g} s")
            self.join(POLL_S)

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send a signal to the process itself; nothing happens if it has ended."""
        if self._popen is not None:
            self._popen.send_signal(number)

    def ask_to_stop(self) -> None:
        """Send SIGTERM, and SIGCONT in case it was stopped."""
        self.kill(signal.SIGTERM)
        self.kill(signal.SIGCONT)

    def join(self, timeout: float) -> bool:
        """Wait for its end for at most ``timeout`` seconds; true if it has ended."""
        deadline = time.monotonic() + timeout
        while self._popen is not None and self.returncode is None:
            self.checkpoint()
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._popen.wait(min(left, POLL_S))
        return True

    def stop(self, timeout: float = STOP_TIMEOUT_S) -> int | None:
        """Ask it to stop, and end its whole group by force after ``timeout`` seconds; its return code."""
        if self.is_running:
            self.ask_to_stop()
            if not self.join(timeout):
                self.end_by_force()
        return self.returncode

    def end_by_force(self) -> None:
        """Send SIGKILL to its group, and wait for its end."""
        if self._popen is not None and self.is_running:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._popen.pid, signal.SIGKILL)
            self._popen.wait()
        self._release_group()

    def log_tail(self, lines: int = TAIL_LINES) -> str:
        """The last lines it wrote since it was started."""
        try:
            with self.log.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(self._log_start, size - TAIL_BYTES))
                text = file.read().decode(errors="replace")
        except FileNotFoundError:
            return ""
        return "\n".join(text.strip().splitlines()[-lines:])

    def _open_gate(self, popen: Child) -> None:
        if popen.stdin is not None:
            with popen.stdin, contextlib.suppress(BrokenPipeError):
                popen.stdin.write(b"go\n")

    def _looks_ready(self, probe: Callable[[], bool] | None) -> bool:
        if self.ready_file is not None and not self.ready_file.exists():
            return False
        return self.is_running and (probe is None or probe())

    def _not_up(self, problem: str) -> LocalStackError:
        tail = self.log_tail()
        return LocalStackError(self.name, problem + (f":\n{tail}\n" if tail else ""), str(self.log))

    def _release_group(self) -> None:
        """After its end, kill the rest of its group and stop watching its id, which the system may reuse."""
        if self._popen is not None and self._popen.pid in self.guard:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._popen.pid, signal.SIGKILL)
            self.guard.forget(self._popen.pid)


def stop_all(
    processes: Sequence[Process],
    timeout: float = STOP_TIMEOUT_S,
    report: Callable[[str], None] = lambda _: None,
) -> None:
    """Stop in reverse order, neighbours of one role together, each role within ``timeout`` seconds.

    An interrupt kills all that still run before it is raised again.
    """
    try:
        for role, group in groupby(reversed(processes), key=lambda process: process.role):
            running = [process for process in group if process.is_running]
            if running:
                report(f"stopping {role}" + (f" ({len(running)})" if len(running) > 1 else ""))
                _stop_together(running, timeout, report)
    except BaseException:
        for process in processes:
            process.end_by_force()
        raise


def _stop_together(processes: Sequence[Process], timeout: float, report: Callable[[str], None]) -> None:
    for process in processes:
        process.ask_to_stop()
    deadline = time.monotonic() + timeout
    for process in processes:
        if not process.join(deadline - time.monotonic()):
            report(f"{process.name} did not stop within {timeout:g} s; ending it by force")
            process.end_by_force()
