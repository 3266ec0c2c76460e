"""Restarts children of a local stack that died, after a pause that grows while they keep dying."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from fairlane.core.clock import Clock
from fairlane.core.errors import LocalStackError
from fairlane.local.stack import Death, Stack

FIRST_PAUSE_MS = 500
LONGEST_PAUSE_MS = 30_000
STEADY_AFTER_MS = 60_000

CHECK_EVERY_S = 0.1
"""Longest time from a signal to the end of a wait."""


@dataclass(slots=True)
class _Restart:
    """A child that died: its last pause, the time of its death, and when it is due to start again."""

    pause_ms: int
    died_ms: int
    due_ms: int | None


class Keeper:
    """Restarts dead children of a stack. After a minute of steady running the pause is short again."""

    def __init__(self, stack: Stack, clock: Clock, report: Callable[[str], None]) -> None:
        self._stack, self._clock, self._report = stack, clock, report
        self._restarts: dict[str, _Restart] = {}

    def tick(self) -> bool:
        """Record new deaths, and restart children that are due. True if it restarted any."""
        now = self._clock.monotonic_ms()
        for death in self._stack.poll():
            self._note(death, now)
        due = [name for name, pending in self._restarts.items() if _is_due(pending, now)]
        for name in due:
            self._restart(name, now)
        return bool(due)

    def _note(self, death: Death, now: int) -> None:
        known = self._restarts.get(death.name)
        steady = known is None or now - known.died_ms >= known.pause_ms + STEADY_AFTER_MS
        pause = FIRST_PAUSE_MS if known is None or steady else min(known.pause_ms * 2, LONGEST_PAUSE_MS)
        self._restarts[death.name] = _Restart(pause, now, now + pause)
        self._report(f"{death}; starting it again in {pause / 1000:g} s")

    def _restart(self, name: str, now: int) -> None:
        pending = self._restarts[name]
        pending.due_ms = None
        try:
            self._stack.restart(name)
        except LocalStackError as error:
            pending.pause_ms = min(pending.pause_ms * 2, LONGEST_PAUSE_MS)
            pending.due_ms = now + pending.pause_ms
            self._report(f"{error}; trying again in {pending.pause_ms / 1000:g} s")
        else:
            self._report(f"{name} was started again")


def _is_due(pending: _Restart, now: int) -> bool:
    return pending.due_ms is not None and pending.due_ms <= now


class WatchfulWaiter:
    """A client's waiter that calls ``check``, which raises to end the wait, and ticks the keeper."""

    def __init__(self, check: Callable[[], None], keeper: Keeper) -> None:
        self._check, self._keeper = check, keeper
        self._pause = threading.Event()

    def wait(self, seconds: float) -> None:
        """Return after ``seconds``; raises an error of ``check`` within `CHECK_EVERY_S`."""
        until = time.monotonic() + seconds
        while True:
            self._check()
            self._keeper.tick()
            left = until - time.monotonic()
            if left <= 0:
                return
            self._pause.wait(min(left, CHECK_EVERY_S))
