"""Leaves lanes to other workers while this worker's key is denied there and theirs are not.

Each job that is denied so returns to its queue at no cost. If the keys of all workers are denied, nobody
leaves: the lane learns of it, and parks.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Set
from dataclasses import dataclass, field

from fairlane.core.clock import Clock
from fairlane.core.events import Event
from fairlane.model.decision import FORBIDDEN
from fairlane.model.job import Attempt
from fairlane.model.outcome import AccessDenied
from fairlane.telemetry.logs import get_logger

log = get_logger("credentials")

FIRST_WAIT_MS = 5_000
"""Until a worker tries a lane again that it has left; doubled with each denied try."""

LONGEST_WAIT_MS = 300_000
"""A key that a provider has come to accept is noticed within five minutes."""

DENIED_IN_A_ROW = 3
"""Calls denied in a row after which a key that was accepted before counts as denied: a firewall that stops
every tenth request stops three in a row once in a thousand calls. A job's 403s count once: they may be its
own. A key never accepted is denied at once."""


@dataclass(slots=True)
class _Denial:
    """What this worker knows of a lane that has denied it since ``since_ms``.

    ``tried``: the attempt that tries the lane after a withdrawal, which ends at ``until_ms``.
    """

    connection: str
    since_ms: int
    calls: set[tuple[str, str, int, int]] = field(default_factory=set)
    reason: str = ""
    counts: bool = False
    wait_ms: int = FIRST_WAIT_MS
    until_ms: int | None = None
    tried: str | None = None


async def _nobody() -> Set[str]:
    return frozenset()


class DeniedLanes:
    """Lanes on which this worker's key is denied; all methods are called on one event loop.

    ``answered``: lanes that have answered a call with the present key.
    """

    def __init__(self, clock: Clock, elsewhere: Callable[[], Awaitable[Set[str]]] = _nobody) -> None:
        """``elsewhere`` gets the lanes that other workers serve and are not denied on.

        ``changed`` is called when the worker leaves a lane or returns to it.
        """
        self._clock, self._elsewhere = clock, elsewhere
        self.changed: Callable[[], None] = lambda: None
        self.answered = set[str]()
        self.lanes: dict[str, _Denial] = {}

    @property
    def reasons(self) -> dict[str, str]:
        """The provider's words by lane, where the key counts as denied."""
        return {lane: each.reason for lane, each in sorted(self.lanes.items()) if each.counts}

    @property
    def left(self) -> set[str]:
        """Lanes whose queues this worker must not consume now."""
        return {lane for lane, each in self.lanes.items() if self._is_left(each)}

    async def leaves(self, attempt: Attempt, connection: str, denied: AccessDenied) -> bool:
        """Note a denied call. Whether the worker has left its lane to others.

        Raises `RedisError`.
        """
        lane, now_ms = attempt.lane, self._clock.monotonic_ms()
        denial = self.lanes.setdefault(lane, _Denial(connection, now_ms))
        denial.reason = reason = denied.message
        if not denial.counts:
            number = 0 if denied.status == FORBIDDEN else attempt.number
            denial.calls.add((attempt.team, attempt.run, attempt.job, number))
            denial.counts = len(denial.calls) >= (DENIED_IN_A_ROW if lane in self.answered else 1)
        if not denial.counts or self._is_left(denial):
            return denial.counts
        alone = lane not in await self._elsewhere()
        if not alone and not self._is_left(denial):
            denial.until_ms, denial.tried = self._clock.monotonic_ms() + denial.wait_ms, None
            log.warning(Event.LANE_LEFT, lane=lane, reason=reason, again_s=denial.wait_ms / 1000)
            denial.wait_ms = min(2 * denial.wait_ms, LONGEST_WAIT_MS)
        self.changed()
        return not alone

    def turns_away(self, attempt: Attempt) -> str | None:
        """Why this worker does not make a call now: it has left the lane, or tries it with another call."""
        denial = self.lanes.get(attempt.lane)
        if denial is None or denial.until_ms is None:
            return None
        if not self._is_left(denial) and denial.tried in (None, attempt.id):
            denial.tried = attempt.id
            return None
        return f"this worker's key is denied on the lane: {denial.reason}"

    def ended(self, attempt: Attempt) -> None:
        """An attempt has ended; if it tried the lane, another one may."""
        denial = self.lanes.get(attempt.lane)
        if denial is not None and denial.tried == attempt.id:
            denial.tried = None

    def accepted(self, lane: str, began_ms: int) -> None:
        """A call that began then was answered, by the worker's monotonic clock."""
        denial = self.lanes.get(lane)
        if denial is not None and began_ms >= denial.since_ms:
            self._forget({lane})

    def renewed(self, connections: Collection[str]) -> None:
        """Their keys have changed: try all of their lanes again."""
        self.answered.clear()
        self._forget({lane for lane, each in self.lanes.items() if each.connection in connections})

    async def look(self) -> None:
        """Return to the lanes that no other worker serves with an accepted key. Raises `RedisError`."""
        if self.left:
            elsewhere = await self._elsewhere()
            for lane in self.left - elsewhere:
                self.lanes[lane].until_ms = None

    def _is_left(self, denial: _Denial) -> bool:
        return denial.until_ms is not None and self._clock.monotonic_ms() < denial.until_ms

    def _forget(self, lanes: Collection[str]) -> None:
        for lane in lanes:
            if self.lanes.pop(lane).counts:
                log.info(Event.LANE_TRIED_AGAIN, lane=lane)
                self.changed()
