"""`spawn`: like `subprocess.Popen`, but a scheduler or worker is forked from the preloader."""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import json
import os
import select
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO, Any

from fairlane.config.environment import process_environment
from fairlane.embedded.processes import Child

ROLE = ("-P", "-m")
ROLES = ("fairlane_scheduler", "fairlane_workers")
SUBREAPER = 36  # PR_SET_CHILD_SUBREAPER of <linux/prctl.h>
SERVER = Path(__file__).with_name("server.py")


def spawn(command: Sequence[str], *, env: Mapping[str, str], stdout: IO[bytes], **options: Any) -> Child:
    """Start a command that waits at a gate (see `fairlane.embedded.processes`).

    It is forked if it is a role of this version, and started as usual otherwise.
    """
    program = command[command.index(sys.executable) :] if sys.executable in command else []
    if sys.platform != "linux" or not _is_role(program) or _python(env) != _python(process_environment()):
        return subprocess.Popen(command, env=env, stdout=stdout, **options)
    read, write = os.pipe()
    with os.fdopen(read, "rb"), contextlib.ExitStack() as undo:
        gate = os.fdopen(write, "wb", buffering=0)
        undo.callback(gate.close)
        pid = _preloader().fork(program[len(ROLE) + 1 :], env, stdout.fileno(), read)
        undo.pop_all()
    return _Forked(pid, gate)


def _is_role(program: Sequence[str]) -> bool:
    return tuple(program[1:3]) == ROLE and program[3] in ROLES


def _python(env: Mapping[str, str]) -> dict[str, str]:
    """What an interpreter reads when it starts."""
    return {name: value for name, value in env.items() if name.startswith("PYTHON")}


class _Forked:
    """A process that the preloader forked and that was handed to this one."""

    def __init__(self, pid: int, gate: IO[bytes]) -> None:
        self.pid = pid
        self.stdin: IO[bytes] | None = gate
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        while (code := self.poll()) is None:
            ended = os.pidfd_open(self.pid)
            try:
                if not select.select([ended], [], [], timeout)[0]:
                    raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
            finally:
                os.close(ended)
        return code

    def send_signal(self, sig: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, sig)


class _Preloader:
    """The server's process and the socket to it."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-P", str(SERVER)], stdin=theirs.fileno(), start_new_session=True
            )
        atexit.register(self.close)

    def fork(self, arguments: Sequence[str], env: Mapping[str, str], output: int, gate: int) -> int:
        """Fork a role; its process id. It is a child of this process, as if we had started it."""
        order = {"module": arguments[0], "arguments": arguments[1:], "env": dict(env), "cwd": str(Path.cwd())}
        text = json.dumps(order).encode()
        _adopt_orphans(True)
        try:
            socket.send_fds(self._socket, [len(text).to_bytes(4, "big")], [output, gate])
            self._socket.sendall(text)
            reply = self._socket.recv(4)
        finally:
            _adopt_orphans(False)
        if len(reply) < 4:
            raise RuntimeError("the preloader has ended: see its traceback above")
        return int.from_bytes(reply, "big")

    def close(self) -> None:
        self._socket.close()
        self._process.wait()


@cache
def _preloader() -> _Preloader:
    return _Preloader()


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _adopt_orphans(adopt: bool) -> None:
    """Whether a process below this one whose parent has ended becomes a child of this one."""
    if _libc().prctl(SUBREAPER, int(adopt), 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl failed")
