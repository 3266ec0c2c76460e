"""The queue of a provider with limited concurrency: first come, first served."""

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class Queue(Generic[T]):
    """Serves ``concurrency`` calls at a time (``None``: all of them); further calls wait.

    Each call that enters is served once, in the order of arrival, or leaves before.
    """

    def __init__(self, concurrency: int | None) -> None:
        self._concurrency = concurrency
        self._served: set[T] = set()
        self._waiting: OrderedDict[T, None] = OrderedDict()

    @property
    def serving(self) -> int:
        """Number of calls in service."""
        return len(self._served)

    @property
    def waiting(self) -> int:
        """Number of waiting calls."""
        return len(self._waiting)

    def enter(self, call: T) -> bool:
        """Add a call; returns whether its service begins at once."""
        if not self._has_room():
            self._waiting[call] = None
            return False
        self._served.add(call)
        return True

    def leave(self, call: T) -> list[T]:
        """Remove a call and return the calls whose service begins now. Ignores an unknown call."""
        self._waiting.pop(call, None)
        self._served.discard(call)
        return self._fill()

    def resize(self, concurrency: int | None) -> list[T]:
        """Change the concurrency and return the calls whose service begins now. Calls in service stay."""
        self._concurrency = concurrency
        return self._fill()

    def _has_room(self) -> bool:
        return self._concurrency is None or len(self._served) < self._concurrency

    def _fill(self) -> list[T]:
        begun: list[T] = []
        while self._waiting and self._has_room():
            call, _ = self._waiting.popitem(last=False)
            self._served.add(call)
            begun.append(call)
        return begun
