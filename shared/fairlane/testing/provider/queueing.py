"""Who is being served and who waits for a place: first come, first served."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class Queue(Generic[T]):
    """``places`` calls are served at a time, all where it is ``None``; whoever enters beyond them waits.

    Everybody who entered is served once, in the order they came, or leaves before.
    """

    def __init__(self, places: int | None) -> None:
        self._places = places
        self._served: set[T] = set()
        self._waiting: OrderedDict[T, None] = OrderedDict()

    @property
    def serving(self) -> int:
        """How many are being served."""
        return len(self._served)

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def enter(self, who: T) -> bool:
        """Join; whether it is served at once."""
        if not self._has_room():
            self._waiting[who] = None
            return False
        self._served.add(who)
        return True

    def leave(self, who: T) -> list[T]:
        """Go, served or waiting; those whose turn it is now. Harmless for one who is not there."""
        self._waiting.pop(who, None)
        self._served.discard(who)
        return self._fill()

    def resize(self, places: int | None) -> list[T]:
        """Have ``places`` from now on; those whose turn it is now. Nobody is turned out."""
        self._places = places
        return self._fill()

    def _has_room(self) -> bool:
        return self._places is None or len(self._served) < self._places

    def _fill(self) -> list[T]:
        begun: list[T] = []
        while self._waiting and self._has_room():
            who, _ = self._waiting.popitem(last=False)
            self._served.add(who)
            begun.append(who)
        return begun
