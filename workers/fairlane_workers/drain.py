"""What an operator asks of this worker: to take nothing new, to end once it is idle, or to work again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from fairlane.store.workers import Wish


class Intake(Protocol):
    """What brings new work; `LaneQueues` is the one."""

    def hold(self) -> None: ...

    def release(self) -> None: ...


class Drain:
    """Remembers what was asked, also where Redis has forgotten it. ``end`` stops the process warmly."""

    def __init__(self, intake: Intake | None = None, end: Callable[[], None] = lambda: None) -> None:
        self._intake, self._end = intake, end
        self._stop = self._ended = False

    def obey(self, wish: str) -> bool:
        """Act on a wish; true where nothing new is to be taken, as with any that is not known."""
        draining = wish != Wish.WORK
        self._stop = wish == Wish.STOP
        if self._intake is not None:
            (self._intake.hold if draining else self._intake.release)()
        return draining

    def finish(self) -> None:
        """Nothing is left in hand: end, if that was asked."""
        if self._stop and not self._ended:
            self._ended = True
            self._end()
