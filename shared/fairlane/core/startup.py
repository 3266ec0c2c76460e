"""What a process does as it starts, before it imports anything else."""

import gc
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager


def end_when_asked() -> None:
    """Have SIGINT and SIGTERM end a role with 0 until it has handlers of its own: it holds nothing yet."""
    for number in (signal.SIGINT, signal.SIGTERM):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, lambda *_: os._exit(0))


@contextmanager
def lasting_imports() -> Iterator[None]:
    """Import inside what the process keeps until it ends: no collection of garbage looks at it, now or later.

    Imports make some hundred thousand objects and hardly any garbage. To look through them again and again
    takes a fifth of a worker's start and more of a scheduler's (docs/benchmarks.md), and makes calls wait
    afterwards. Only for processes of our own: a program that imports Fairlane decides by itself.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if collects:
            gc.enable()
