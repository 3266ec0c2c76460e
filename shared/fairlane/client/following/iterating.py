"""Iterators over steps. They go on after an error or an interrupt, which would end a generator for good."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from threading import RLock
from typing import TypeVar

from fairlane.client.deployment import Wait, Waiter

T = TypeVar("T")
R = TypeVar("R")


class Blocking(Iterator[T]):
    """What some steps yield; waits in the caller's thread where they ask for it.

    It goes on after an error or an interrupt, if the steps do.
    """

    def __init__(self, steps: Iterable[T | Wait], waiter: Waiter) -> None:
        self._steps, self._waiter = iter(steps), waiter

    def __next__(self) -> T:
        while isinstance(step := next(self._steps), Wait):
            if step.seconds:
                self._waiter.wait(step.seconds)
        return step

    def close(self) -> None:
        """Close the steps, if they hold something."""
        close = getattr(self._steps, "close", None)
        if close is not None:
            close()


def each_step(of: Callable[[T], R], steps: Iterable[T | Wait]) -> Iterator[R | Wait]:
    """The steps, with ``of`` each element in its place. They go on after an error, as a `map` does."""

    def stepped(step: T | Wait) -> R | Wait:
        return step if isinstance(step, Wait) else of(step)

    return map(stepped, steps)


class Resumable(Iterator[T]):
    """What ``begin`` iterates over. Once that raises, the next step begins it again, where it stopped.

    ``begin`` keeps its place outside of what it returns. Threads may share the iterator.
    """

    def __init__(self, begin: Callable[[], Iterator[T]]) -> None:
        self._begin = begin
        self._steps: Iterator[T] | None = None
        self._over = False
        self._lock = RLock()

    def __next__(self) -> T:
        with self._lock:
            if self._over:
                raise StopIteration
            try:
                if self._steps is None:
                    self._steps = self._begin()
                return next(self._steps)
            except StopIteration:
                self._over = True
                raise
            except BaseException:
                self._steps = None
                raise
