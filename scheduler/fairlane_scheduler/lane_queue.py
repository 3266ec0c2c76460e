"""What is queued on one lane, by team and run, as the leader knows it."""

from __future__ import annotations

from fairlane.store.keys import RunRef


class LaneQueue:
    """Changes cost the same whatever waits. ``waiting`` has what may start, by team and run, and ``by_team``
    how many these are; runs that are held back are apart.
    """

    def __init__(self) -> None:
        self.waiting: dict[str, dict[RunRef, int]] = {}
        self.by_team: dict[str, int] = {}
        self.interactive: dict[RunRef, None] = {}
        self.depth = 0
        self._kept: dict[RunRef, tuple[int, int | None]] = {}
        self._arrived: set[str] = set()
        self._urgent: set[RunRef] = set()

    def count(self, ref: RunRef) -> int:
        """Jobs of a run, held back or not."""
        return self.waiting.get(ref.team, {}).get(ref, 0) + self._kept.get(ref, (0, None))[0]

    def add(self, ref: RunRef, count: int, *, interactive: bool = False) -> None:
        """More jobs of a run; whatever held it back may have changed."""
        self._set(ref, self.count(ref) + count, interactive=interactive)

    def settle(self, ref: RunRef, left: int, *, interactive: bool = False) -> None:
        """So many are left."""
        self._set(ref, max(0, left), interactive=interactive)

    def keep(self, ref: RunRef, until_ms: int | None) -> None:
        """Hold a run back until a moment, or until `release`."""
        left = self.count(ref)
        if left:
            self._take_out(ref)
            self._kept[ref] = left, until_ms

    def keep_team(self, team: str, until_ms: int | None) -> None:
        """Hold back all that a team has queued now."""
        for ref in list(self.waiting.get(team, ())):
            self.keep(ref, until_ms)

    def release(self) -> None:
        """Hold nobody back."""
        for ref in list(self._kept):
            self._let_go(ref)

    def release_due(self, now_ms: int) -> int | None:
        """Hold nobody back whose time is over; when the next one's is."""
        dated = [(until_ms, ref) for ref, (_, until_ms) in self._kept.items() if until_ms is not None]
        for until_ms, ref in dated:
            if until_ms <= now_ms:
                self._let_go(ref)
        return min((until_ms for until_ms, _ in dated if until_ms > now_ms), default=None)

    def arrivals(self) -> set[str]:
        """Teams that have come to wait since this was asked last."""
        arrived, self._arrived = self._arrived, set()
        return arrived

    def _set(self, ref: RunRef, left: int, *, interactive: bool) -> None:
        self.depth += left - self.count(ref)
        self._kept.pop(ref, None)
        if interactive:
            self._urgent.add(ref)
        if left:
            self._put_in(ref, left)
        else:
            self._take_out(ref)
            self._urgent.discard(ref)

    def _put_in(self, ref: RunRef, left: int) -> None:
        runs = self.waiting.get(ref.team)
        if runs is None:
            runs = self.waiting[ref.team] = {}
            self.by_team[ref.team] = 0
            self._arrived.add(ref.team)
        self.by_team[ref.team] += left - runs.get(ref, 0)
        runs[ref] = left
        if ref in self._urgent:
            self.interactive[ref] = None

    def _take_out(self, ref: RunRef) -> None:
        runs = self.waiting.get(ref.team)
        if runs is not None and ref in runs:
            self.by_team[ref.team] -= runs.pop(ref)
            if not runs:
                del self.waiting[ref.team], self.by_team[ref.team]
        self.interactive.pop(ref, None)

    def _let_go(self, ref: RunRef) -> None:
        left, _ = self._kept.pop(ref)
        self._put_in(ref, left)
