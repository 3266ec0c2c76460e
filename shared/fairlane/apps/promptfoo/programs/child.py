"""A child process that calls a team's functions one by one, within a time, a memory and an output limit."""

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from fairlane.core.figures import whole
from fairlane.sandbox.process import spawn

CALL_S = 60.0
"""Seconds that one call may take; importing its file counts."""

MEMORY_MB = {"node": 1024, "python": 8192}
"""Heap of Node; address space of Python, of which numerical libraries reserve more than they use."""

MOST_REPLY_BYTES = 32 * 1024 * 1024
"""Bytes of a reply."""

_READ = 1 << 16


class ProgramError(Exception):
    """A program failed, or went past a limit; the message says how."""


class Child:
    """One child process. It starts at the first call, and again after a call that was killed."""

    def __init__(
        self, command: Sequence[str], environment: Mapping[str, str], call_s: float = CALL_S
    ) -> None:
        self._command, self._environment, self._call_s = list(command), dict(environment), call_s
        self._process: subprocess.Popen[bytes] | None = None
        self._replies = -1

    def call(self, request: Mapping[str, Any]) -> Any:
        """The value that the function returns. Raises `ProgramError`."""
        process = self._process or self._start()
        line = json.dumps(request, ensure_ascii=True).encode() + b"\n"
        try:
            assert process.stdin is not None  # noqa: S101  it was opened as a pipe
            process.stdin.write(line)
            process.stdin.flush()
            reply = self._reply()
        except (BrokenPipeError, TimeoutError, OverflowError, EOFError) as error:
            self.close()
            raise ProgramError(_ended(error, self._call_s)) from None
        except BaseException:
            self.close()  # an unread reply would answer the next call
            raise
        if "error" in reply:
            raise ProgramError(str(reply["error"]))
        return reply.get("value")

    def close(self) -> None:
        """End the child and all that it started."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(BrokenPipeError):
            assert process.stdin is not None  # noqa: S101  it was opened as a pipe
            process.stdin.close()
        process.wait()
        os.close(self._replies)

    def _start(self) -> subprocess.Popen[bytes]:
        shown = sys.__stderr__.fileno() if sys.__stderr__ is not None else subprocess.DEVNULL
        self._process, self._replies = spawn(self._command, self._environment, shown)
        return self._process

    def _reply(self) -> dict[str, Any]:
        pieces, size, until = list[bytes](), 0, time.monotonic() + self._call_s
        while not pieces or not pieces[-1].endswith(b"\n"):
            left = until - time.monotonic()
            if left <= 0 or not select.select([self._replies], [], [], left)[0]:
                raise TimeoutError
            piece = os.read(self._replies, _READ)
            size += len(piece)
            if not piece:
                raise EOFError
            if size > MOST_REPLY_BYTES:
                raise OverflowError
            pieces.append(piece)
        found: dict[str, Any] = json.loads(b"".join(pieces), parse_float=whole)
        return found


def _ended(error: Exception, call_s: float) -> str:
    match error:
        case TimeoutError():
            return f"it ran longer than {call_s:g} s, and was ended"
        case OverflowError():
            return f"it returned more than {MOST_REPLY_BYTES >> 20} MiB"
    return "it ended its process; it may have needed more memory than a program may have"
