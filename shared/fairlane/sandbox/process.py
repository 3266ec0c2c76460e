"""The parent's side of one child process: sends batches, reads replies, and enforces the limits."""

import json
import os
import pickle  # noqa: TID251  written for a child, never read from one
import select
import signal
import subprocess
import sys
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from fairlane.core.errors import CutOff, FairlaneError, NoChild, TemplateError, WorkRaised
from fairlane.model.run import Plan
from fairlane.sandbox.pieces import Piece

START_S: Final = 60.0
"""Seconds that a child may take to start: usually less than one, but many if all cores are busy."""

RUNS_KEPT: Final = 16
"""Runs whose templates a child keeps."""

MOST_REPLY: Final = 128 * 1024 * 1024
"""Bytes of a reply: more than the largest page of rows."""

KEPT_VARIABLES: Final = frozenset(
    {"PATH", "PYTHONPATH", "PYTHONHOME", "PYTHONUTF8", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "LD_LIBRARY_PATH"}
)
"""Variables that a child inherits; none of them holds credentials."""

_HEAD: Final = 5  # a kind and a length
_READ: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a piece: seconds of CPU, seconds in all, and bytes of memory beyond those of an idle
    child.
    """

    cpu_s: float = 2.0
    wall_s: float = 20.0
    memory_bytes: int = 512 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class QueuedPiece:
    """A piece of work, with the key and the plan of its run if it has one."""

    piece: Piece
    key: str | None = None
    plan: Plan | None = None


class Child:
    """One child process, which the next batch starts again after a kill. One thread at a time may use it."""

    def __init__(self, limits: Limits, environ: Mapping[str, str]) -> None:
        self._limits = limits
        self._environ = {name: value for name, value in environ.items() if name in KEPT_VARIABLES}
        self._process: subprocess.Popen[bytes] | None = None
        self._replies = -1
        self._read = bytearray()
        self._runs: OrderedDict[str, None] = OrderedDict()
        self._closed = False

    @property
    def pid(self) -> int | None:
        """The process id of the child; ``None`` while there is none."""
        return None if self._process is None else self._process.pid

    def do(self, batch: Sequence[QueuedPiece], done: Callable[[int, Any], None]) -> int:
        """Do a batch in order; calls ``done`` with each index and its result or error. Returns how many
        pieces were done: after a piece that exceeded a limit, none. Raises `NoChild`.
        """
        if self._process is not None and self._process.poll() is not None:
            self.close()  # it ended while idle: the kernel may kill it if memory is short
        try:
            process = self._process or self._start()
            self._send(process, batch)
            return self._take(batch, done)
        except OSError as error:
            words = self._last_words() or str(error)
            self.close()
            raise NoChild(f"no child process for what teams wrote can be started: {words}") from error
        except BaseException:
            self.close()  # unread replies would answer the next batch
            raise

    def _take(self, batch: Sequence[QueuedPiece], done: Callable[[int, Any], None]) -> int:
        for index, each in enumerate(batch):
            try:
                kind, reply = self._reply(self._limits.wall_s)
            except (TimeoutError, EOFError, OverflowError) as error:
                done(index, self._cut_off(each.piece, error))
                return index + 1
            done(index, self._result(each.piece, kind, reply))
            if kind == b"M":
                self.close()
                return index + 1
        return len(batch)

    def close(self, *, last: bool = False) -> None:
        """End the child at once. ``last``: start no other."""
        self._closed = self._closed or last
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        if process.stdin is not None:
            with suppress(OSError):
                process.stdin.close()
        process.wait()
        os.close(self._replies)
        self._read.clear()
        self._runs.clear()

    def kill(self) -> None:
        """End the child from another thread; `do` then finds that it has ended."""
        self._closed = True
        if (process := self._process) is not None:
            process.kill()

    def _start(self) -> subprocess.Popen[bytes]:
        if self._closed:
            raise NoChild("the process ends, and does no more of what teams wrote")
        limits = self._limits
        command = [sys.executable, "-P", "-m", "fairlane.sandbox"]
        command += [str(limits.cpu_s), str(limits.memory_bytes)]
        # Not multiprocessing: its children import the parent's main module, and reply in pickles.
        self._process, self._replies = spawn(command, self._environ, subprocess.DEVNULL)
        if self._closed:
            self._process.kill()
        try:
            self._reply(START_S)
        except (TimeoutError, EOFError, OverflowError) as error:
            raise OSError(f"the child ended before it was ready ({type(error).__name__})") from error
        return self._process

    def _send(self, process: subprocess.Popen[bytes], batch: Sequence[QueuedPiece]) -> None:
        plans: dict[str, Plan] = {}
        for each in batch:
            if each.key is not None and each.plan is not None:
                if each.key not in self._runs:
                    plans[each.key] = each.plan
                self._runs[each.key] = None
                self._runs.move_to_end(each.key)
        here = {each.key for each in batch}
        old = [key for key in self._runs if key not in here][: max(0, len(self._runs) - RUNS_KEPT)]
        for key in old:
            del self._runs[key]
        text = pickle.dumps((old, plans, [(each.key, each.piece) for each in batch]), pickle.HIGHEST_PROTOCOL)
        if process.stdin is None:
            raise BrokenPipeError("the child has no input")
        # It reads all of a batch before its first reply, so that neither waits for the other.
        process.stdin.write(len(text).to_bytes(4, "big"))
        process.stdin.write(text)
        process.stdin.flush()

    def _reply(self, wall_s: float) -> tuple[bytes, bytes]:
        until, poll = time.monotonic() + wall_s, select.poll()
        poll.register(self._replies, select.POLLIN)
        wanted = _HEAD
        while True:
            if len(self._read) >= wanted:
                wanted = _HEAD + int.from_bytes(self._read[1:_HEAD], "big")
                if wanted > MOST_REPLY:
                    raise OverflowError
                if len(self._read) >= wanted:
                    kind, reply = bytes(self._read[:1]), bytes(self._read[_HEAD:wanted])
                    del self._read[:wanted]
                    return kind, reply
            left_ms = (until - time.monotonic()) * 1000
            if left_ms <= 0 or not poll.poll(left_ms):
                raise TimeoutError
            piece = os.read(self._replies, _READ)
            if not piece:
                raise EOFError
            self._read += piece

    def _result(self, piece: Piece, kind: bytes, reply: bytes) -> Any:
        """The result or the error in a reply."""
        try:
            match kind:
                case b"D":
                    return piece.read(reply)
                case b"T":
                    field, problem, variable = json.loads(reply)
                    return TemplateError(
                        str(field), str(problem), None if variable is None else str(variable)
                    )
                case b"M":
                    return self._out_of_memory(piece)
            return WorkRaised(f"{piece.what}: {reply.decode(errors='replace')}")
        except FairlaneError as error:
            return error
        except Exception as error:  # noqa: BLE001  a team's input may control the child's reply
            return WorkRaised(f"{piece.what}: the answer cannot be read: {type(error).__name__}")

    def _cut_off(self, piece: Piece, error: Exception) -> FairlaneError:
        """End the child, and return an error that names the exceeded limit."""
        process, limits = self._process, self._limits
        code = None if process is None or isinstance(error, TimeoutError) else _exit_code(process)
        closed = self._closed
        self.close()
        if closed:
            return NoChild("the process ends, and does no more of what teams wrote")
        if isinstance(error, OverflowError):
            return CutOff(piece.what, f"made more than {MOST_REPLY >> 20} MiB", "the most of an answer")
        if isinstance(error, TimeoutError):
            return CutOff(piece.what, f"ran for more than {limits.wall_s:g} s", "sandbox.wall_seconds")
        if code == -signal.SIGPROF:
            return CutOff(piece.what, f"computed for more than {limits.cpu_s:g} s", "sandbox.cpu_seconds")
        return self._out_of_memory(piece)

    def _out_of_memory(self, piece: Piece) -> CutOff:
        most = self._limits.memory_bytes >> 20
        needed = f"ended its process, or needed more than {most:,} MiB of memory"
        return CutOff(piece.what, needed, "sandbox.memory_mb")

    def _last_words(self) -> str:
        """The exit code of a child that failed to start, as text."""
        code = None if self._process is None else self._process.poll()
        return "" if code is None else f"it ended with exit code {code}; its errors are above"


def spawn(
    command: Sequence[str], environ: Mapping[str, str], stdout: int
) -> tuple[subprocess.Popen[bytes], int]:
    """Start a child that this process ends, and open its replies. It writes them to the descriptor that its
    last argument names.
    """
    readable, writable = os.pipe()
    try:
        child = subprocess.Popen(
            [*command, str(writable)],
            stdin=subprocess.PIPE,
            stdout=stdout,
            env=environ,
            pass_fds=(writable,),
            start_new_session=True,  # Ctrl-C in a terminal is for the parent, which ends its children
        )
    except BaseException:
        os.close(readable)
        raise
    finally:
        os.close(writable)
    return child, readable


def _exit_code(process: subprocess.Popen[bytes]) -> int | None:
    """The exit code of a child whose replies have ended."""
    try:
        return process.wait(5)
    except subprocess.TimeoutExpired:
        return None
