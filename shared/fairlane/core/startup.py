"""What a process does as it starts, before it imports anything else."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


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
