"""What a process does as it starts, before it imports anything else."""

import gc
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager


def end_on_signals() -> None:
    """Let SIGINT and SIGTERM end a process with 0 until it sets its own handlers: it has no work yet."""
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda *_: os._exit(0))


@contextmanager
def lasting_imports() -> Iterator[None]:
    """Exempt what the block imports from garbage collection, for as long as the process lives.

    Imports make some hundred thousand objects and hardly any garbage. Scanning them repeatedly takes a fifth
    of a worker's start and more of a scheduler's (docs/benchmarks.md), and delays calls afterwards. Only for
    Fairlane's own processes: a program that imports Fairlane decides by itself.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if collects:
            gc.enable()
