"""Log streams that never raise and never block the writer, and that count the lines they lose."""

import atexit
import os
import select
import stat
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily
from prometheus_client.registry import Collector

MOST_WAITING = 4 * 1024 * 1024
"""Most characters that wait for a reader: a minute of a busy worker's lines. Beyond it, lines are lost."""

GATHER_S = 0.05
"""Seconds that lines wait for others, to save wake-ups and system calls. A killed process loses them."""

AGAIN_S = 5.0
"""Seconds after which lost lines are reported, if no line comes before."""

FLUSH_S = 2.0
"""Most seconds that an ending process waits for its log's reader."""

PIECE = select.PIPE_BUF if hasattr(select, "PIPE_BUF") else 4096
"""Bytes that a pipe takes in one piece, so that lines of processes which share it do not mix."""


class LogStream:
    """A text stream to a descriptor. Any thread may write to it, and a signal handler.

    It writes to a file at once, since that has no reader to wait for, and to anything else on its own thread.
    Lines that cannot be written, or that come while `MOST_WAITING` characters wait, are lost.
    """

    errors = "backslashreplace"
    closed = False

    def __init__(self, descriptor: int, encoding: str = "utf-8") -> None:
        self._descriptor, self.encoding = descriptor, encoding
        self.lost = 0
        """Lines that were lost since the process started."""
        self.notice: Callable[[int], str] = _in_words
        """The line that says how many were lost."""
        self._unreported = 0
        self._lock = threading.RLock()  # a signal handler may write while its own thread does
        self._waiting: deque[str] = deque()
        self._size = 0
        self._woken = False
        self._torn = False
        self._wake, self._hurry, self._idle = threading.Event(), threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None
        self._to_file = _is_file(descriptor)

    def write(self, text: str) -> int:
        """Queue ``text`` for writing. Returns its length, as a stream does, even if it is lost."""
        with self._lock:
            if self.closed:
                self._lose(text.count("\n"))
                return len(text)
            if self._to_file:
                self._pass_on([text])
                return len(text)
            if self._size + len(text) > MOST_WAITING:
                self._lose(text.count("\n"))
                return len(text)
            self._waiting.append(text)
            self._size += len(text)
            if not self._woken:
                self._woken = True
                self._idle.clear()
                self._wake.set()
                if self._thread is None:
                    self._start()
        return len(text)

    def writelines(self, lines: Iterable[str]) -> None:
        """Queue texts for writing."""
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Do nothing: the lines leave by themselves. See `drain`."""

    def drain(self, timeout_s: float = FLUSH_S) -> bool:
        """Wait until all is written or lost; false if that takes longer than ``timeout_s``."""
        if self._thread is None or not self._woken:
            return True
        self._hurry.set()
        try:
            return self._idle.wait(timeout_s)
        finally:
            self._hurry.clear()

    def close(self) -> None:
        """Write nothing more to the descriptor, which its owner closes; lines that still wait are lost."""
        with self._lock:
            self.closed = True
            self._lose(sum(text.count("\n") for text in self._take()))
            self._wake.set()
        self._hurry.set()

    def fileno(self) -> int:
        """The descriptor, for a child process. Writing to it directly may block."""
        return self._descriptor

    def isatty(self) -> bool:
        """Whether the descriptor is a terminal."""
        try:
            return os.isatty(self._descriptor)
        except OSError:
            return False

    def readable(self) -> bool:
        """Whether it can be read: never."""
        return False

    def writable(self) -> bool:
        """Whether it can be written: always."""
        return True

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._serve, name="fairlane-log", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:  # no more threads, or the interpreter ends
            self._thread = None
            self._woken = False
            self._lose(sum(text.count("\n") for text in self._take()))

    def _serve(self) -> None:
        while True:
            self._wake.wait(AGAIN_S if self._unreported else None)
            self._hurry.wait(GATHER_S)
            with self._lock:
                if self.closed:
                    return
                self._wake.clear()
                texts = self._take()
            self._pass_on(texts)
            with self._lock:
                if self._waiting:
                    self._wake.set()
                else:
                    self._woken = False
                    self._idle.set()

    def _take(self) -> list[str]:
        texts = list(self._waiting)
        self._waiting.clear()
        self._size = 0
        return texts

    def _pass_on(self, texts: list[str]) -> None:
        """Write texts, after a notice of those that were lost."""
        if unreported := self._unreported:
            if self._write_out(self.notice(unreported).encode(self.encoding, self.errors)):
                with self._lock:
                    self._unreported -= unreported
            else:
                self._lose(sum(text.count("\n") for text in texts))
                return
        for piece in _pieces("".join(texts).encode(self.encoding, self.errors)):
            if not self._write_out(piece):
                self._lose(piece.count(b"\n"))

    def _write_out(self, data: bytes) -> bool:
        """Write bytes, however long the reader takes; false if they cannot be written."""
        left = memoryview(b"\n" + data if self._torn else data)
        begun = False
        while left:
            try:
                left = left[os.write(self._descriptor, left) :]
                begun = True
            except BlockingIOError:
                _await_room(self._descriptor)
            except (OSError, ValueError):
                self._torn = self._torn or begun
                return False
        self._torn = False
        return True

    def _lose(self, lines: int) -> None:
        with self._lock:
            self.lost += lines
            self._unreported += lines


class WithoutDescriptor:
    """A log stream without a descriptor, since Celery's signal handlers would write to one, and block."""

    def __init__(self, stream: LogStream) -> None:
        self.write, self.flush, self.isatty = stream.write, stream.flush, stream.isatty
        self.encoding = stream.encoding


def install_log_streams() -> None:
    """Replace this process' standard output and standard error by log streams.

    Keeps a stream that the program has replaced already. At its exit the process waits for its log's reader,
    `FLUSH_S` seconds at most.
    """
    for descriptor in range(3):
        _occupy(descriptor)
    for descriptor, name in ((1, "stdout"), (2, "stderr")):
        before = getattr(sys, name)
        if before is not getattr(sys, f"__{name}__") or isinstance(before, LogStream):
            continue
        stream = LogStream(descriptor, getattr(before, "encoding", None) or "utf-8")
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", WithoutDescriptor(stream))  # Celery prints to these
        atexit.register(stream.drain)


def drain_streams() -> None:
    """Wait for the readers of the log, for a program that ends without exit handlers."""
    for stream in _streams():
        stream.drain()


class LostLines(Collector):
    """The counter of lines that this process' log streams have lost."""

    def collect(self) -> Iterator[CounterMetricFamily]:
        """See prometheus_client."""
        lost = sum(stream.lost for stream in _streams())
        yield CounterMetricFamily(
            "fairlane_log_lines_lost", "Lines of the log that could not be written", value=lost
        )

    @classmethod
    def register(cls, registry: CollectorRegistry) -> None:
        """Have a registry show the counter."""
        registry.register(cls())


def _streams() -> list[LogStream]:
    return [stream for stream in (sys.stdout, sys.stderr) if isinstance(stream, LogStream)]


def _in_words(lines: int) -> str:
    return f"{lines:,} lines before this one are lost: they could not be written\n"


def _pieces(data: bytes) -> Iterator[bytes]:
    """The data in pieces that end with a line, of `PIECE` bytes at most unless a line is longer."""
    start = 0
    while start < len(data):
        end = data.rfind(b"\n", start, start + PIECE) + 1
        if not end and len(data) - start > PIECE:
            end = data.find(b"\n", start) + 1
        end = end or len(data)
        yield data[start:end]
        start = end


def _await_room(descriptor: int) -> None:
    """Wait until a descriptor that does not block takes bytes again."""
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLOUT)
        poll.poll(1000)
    except (OSError, AttributeError):
        time.sleep(0.1)  # noqa: TID251 - there is no poll here; only this thread waits


def _is_file(descriptor: int) -> bool:
    try:
        return stat.S_ISREG(os.fstat(descriptor).st_mode)
    except OSError:
        return False


def _occupy(descriptor: int) -> None:
    """Keep a closed descriptor from becoming a socket's."""
    try:
        os.fstat(descriptor)
    except OSError:
        os.open(os.devnull, os.O_RDWR)
