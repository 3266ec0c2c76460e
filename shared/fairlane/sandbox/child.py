"""The child process: does pieces of work one by one, each within limits, and replies to each at once.

It runs as ``python -m fairlane.sandbox <cpu seconds> <memory in bytes> <descriptor of replies>``. Its parent
writes batches to stdin: a length of four bytes, and a pickle. A reply is a kind, a length and bytes. The
kernel ends it at its CPU limit, even inside a C function; the parent ends it at the other limits.
"""

import json
import os
import pickle  # noqa: TID251  read from the parent alone, which a child cannot harm
import resource
import signal
import struct
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Final

from fairlane.core.errors import TemplateError
from fairlane.model.run import Plan
from fairlane.pipeline.rendering import Rendering
from fairlane.sandbox.pieces import Piece

LENGTH: Final = struct.Struct(">I")
REPLY: Final = struct.Struct(">cI")

READY, DONE, TEMPLATE, RAISED, MEMORY = b"R", b"D", b"T", b"E", b"M"
"""Kinds of replies. After `MEMORY` the child ends, since its memory is fragmented."""

NICENESS = 5
"""The event loops of the parent have precedence on a machine whose cores are all busy."""

_ERROR_CHARS = 500

Batch = tuple[Sequence[str], dict[str, Plan], Sequence[tuple[str | None, Piece]]]
"""Keys of runs to forget, new runs by key, and pieces with the key of their run."""


class Work:
    """Does the pieces of a batch; keeps the templates of runs until the parent drops them."""

    def __init__(self) -> None:
        self._plans: dict[str, Plan] = {}
        self._renderings: dict[str, Rendering] = {}

    def take(self, forgotten: Sequence[str], plans: dict[str, Plan]) -> None:
        """Forget runs, and keep new ones."""
        for key in forgotten:
            self._plans.pop(key, None)
            self._renderings.pop(key, None)
        self._plans |= plans

    def reply(self, key: str | None, piece: Piece) -> tuple[bytes, bytes]:
        """The kind of a reply, and the reply."""
        try:
            return DONE, piece.work(None if key is None else self._rendering(key))
        except TemplateError as error:
            problem = str(error).removeprefix(f"{error.template_field}: ")
            return TEMPLATE, json.dumps([error.template_field, problem, error.variable]).encode()
        except MemoryError:
            return MEMORY, b""
        except Exception as error:  # noqa: BLE001  a team's input may raise anything at all
            words = f"{type(error).__name__}: {error}"[:_ERROR_CHARS]
            return RAISED, words.encode(errors="replace")

    def _rendering(self, key: str) -> Rendering:
        if key not in self._renderings:
            self._renderings[key] = Rendering(self._plans[key], checked=True)
        return self._renderings[key]


def serve(requests: BinaryIO, replies: BinaryIO, cpu_s: float) -> None:
    """Serve batches until the parent is gone or memory has run out."""
    work = Work()
    _send(replies, READY, b"")
    while len(head := requests.read(LENGTH.size)) == LENGTH.size:
        (length,) = LENGTH.unpack(head)
        batch: Batch = pickle.loads(requests.read(length))  # noqa: S301  our parent wrote it
        forgotten, plans, pieces = batch
        work.take(forgotten, plans)
        del batch
        for key, piece in pieces:
            signal.setitimer(signal.ITIMER_PROF, cpu_s)
            kind, reply = work.reply(key, piece)
            signal.setitimer(signal.ITIMER_PROF, 0)
            _send(replies, kind, reply)
            if kind == MEMORY:
                return


def _send(replies: BinaryIO, kind: bytes, reply: bytes) -> None:
    replies.write(REPLY.pack(kind, len(reply)))
    replies.write(reply)
    replies.flush()


def _limit_memory(most_bytes: int) -> None:
    """Limit this process to ``most_bytes`` more memory, and make it the kernel's first choice to kill."""
    for limit, value in ((resource.RLIMIT_AS, _address_space() + most_bytes), (resource.RLIMIT_CORE, 0)):
        hard = resource.getrlimit(limit)[1]
        least = value if hard == resource.RLIM_INFINITY else min(value, hard)
        with suppress(ValueError, OSError):  # not every system has the limit
            resource.setrlimit(limit, (least, hard))
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    with suppress(OSError):
        os.nice(NICENESS)


def _address_space() -> int:
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return 1 << 30
    return pages * resource.getpagesize()


def main() -> None:
    """Serve the parent that started this process."""
    cpu_s, memory, descriptor = float(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    signal.signal(signal.SIGPROF, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when it ends
    _limit_memory(memory)
    # Once the parent is gone, writing fails, also when the file is closed.
    with (
        suppress(BrokenPipeError),
        os.fdopen(os.dup(0), "rb") as requests,
        os.fdopen(descriptor, "wb") as replies,
    ):
        serve(requests, replies, cpu_s)
