"""Keeps a stack up: whatever dies is started again, after a pause that grows while it keeps dying."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from fairlane.clock import Clock
from fairlane.errors import LocalStackError
from fairlane.local.stack import Death

FIRST_PAUSE_MS = 500
LONGEST_PAUSE_MS = 30_000
STEADY_AFTER_MS = 60_000


class Restartable(Protocol):
    """What is kept up; `fairlane.local.stack.Stack` is one."""

    def poll(self) -> list[Death]: ...

    def restart(self, name: str) -> None: ...


@dataclass(slots=True)
class _Trouble:
    """A child that died: how long the last pause was, when that was, and when it is due to start again."""

    pause_ms: int
    died_ms: int
    due_ms: int | None


class Keeper:
    """Restarts the dead of a stack. After a minute of steady running the pause is short again."""

    def __init__(self, stack: Restartable, clock: Clock, tell: Callable[[str], None]) -> None:
        self._stack, self._clock, self._tell = stack, clock, tell
        self._troubles: dict[str, _Trouble] = {}

    def tick(self) -> bool:
        """One look, one pass: note the dead, restart those that are due. True if anything was restarted."""
        now = self._clock.monotonic_ms()
        for death in self._stack.poll():
            self._note(death, now)
        due = [name for name, trouble in self._troubles.items() if _is_due(trouble, now)]
        for name in due:
            self._restart(name, now)
        return bool(due)

    def _note(self, death: Death, now: int) -> None:
        known = self._troubles.get(death.name)
        steady = known is None or now - known.died_ms >= known.pause_ms + STEADY_AFTER_MS
        pause = FIRST_PAUSE_MS if known is None or steady else min(known.pause_ms * 2, LONGEST_PAUSE_MS)
        self._troubles[death.name] = _Trouble(pause, now, now + pause)
        self._tell(f"{death}; starting it again in {pause / 1000:g} s")

    def _restart(self, name: str, now: int) -> None:
        trouble = self._troubles[name]
        trouble.due_ms = None
        try:
            self._stack.restart(name)
        except LocalStackError as error:
            trouble.pause_ms = min(trouble.pause_ms * 2, LONGEST_PAUSE_MS)
            trouble.due_ms = now + trouble.pause_ms
            self._tell(f"{error}; trying again in {trouble.pause_ms / 1000:g} s")
        else:
            self._tell(f"{name} was started again")


def _is_due(trouble: _Trouble, now: int) -> bool:
    return trouble.due_ms is not None and trouble.due_ms <= now
