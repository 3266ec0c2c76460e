"""Rests of teams whose work has kept the scheduler busy, so that nobody has more than a share of its time."""

from __future__ import annotations

from collections.abc import Callable, Iterable

RATIO = 9  # a rest is so many times as long as the work: a tenth of the scheduler's time at most


class Rests:
    """By team, until when it rests, on one monotonic clock."""

    def __init__(self, allowed_ms: int, busy_ms: Callable[[], float]) -> None:
        """Work that takes no longer than ``allowed_ms`` at a time needs no rest.

        ``busy_ms`` is how long this thread has worked so far: what it waits for, Redis or the machine, is
        nobody's fault.
        """
        self._allowed_ms, self._busy_ms = allowed_ms, busy_ms
        self._until_ms: dict[str, int] = {}
        self._began_ms = 0.0

    def begin(self) -> None:
        """A team's work begins."""
        self._began_ms = self._busy_ms()

    def end(self, team: str, now_ms: int) -> int:
        """It has ended; for how many milliseconds the team rests, 0 as a rule."""
        took_ms = self._busy_ms() - self._began_ms
        if took_ms <= self._allowed_ms:
            return 0
        rest_ms = round(took_ms * RATIO)
        self._until_ms[team] = now_ms + rest_ms
        return rest_ms

    def left_ms(self, team: str, now_ms: int) -> int:
        """For how long a team rests yet."""
        until_ms = self._until_ms.get(team)
        if until_ms is None:
            return 0
        if until_ms <= now_ms:
            del self._until_ms[team]
            return 0
        return until_ms - now_ms

    def first_ms(self, teams: Iterable[str], now_ms: int) -> int | None:
        """When the first of these teams has rested; ``None`` without any."""
        return min((self.left_ms(team, now_ms) for team in teams), default=None)
