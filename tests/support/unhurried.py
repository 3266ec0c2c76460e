"""An event loop whose time passes only while nothing happens: no load of the machine is measured."""

from __future__ import annotations

import asyncio
import selectors
from typing import Any

SETTLING_S = 0.002
"""Real seconds in which the kernel hands over what was written to a socket of the same loop."""


class _Leaping(selectors.DefaultSelector):
    """Leaps to the loop's next timer instead of waiting for it."""

    leapt_s = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        ready = super().select(timeout if timeout is None else min(timeout, SETTLING_S))
        if timeout and not ready:
            self.leapt_s += timeout
        return ready


class UnhurriedLoop(asyncio.SelectorEventLoop):
    """For servers and clients within one loop, without threads. It begins at 0 s."""

    def __init__(self) -> None:
        self._leaping = _Leaping()
        super().__init__(self._leaping)

    def leap(self, seconds: float) -> None:
        """Let so much time pass at once."""
        self._leaping.leapt_s += seconds

    def time(self) -> float:
        """Seconds that were leapt over."""
        return self._leaping.leapt_s
