"""Spreads permits over time, so that calls do not wait for one another at the workers.

`Timetable` spreads requests of lanes that wait for their rates: a few lanes at a time. Otherwise, lanes that
begin together are asked together for as long as they work. `Ramp` spreads the starts of a burst.
"""

from collections.abc import Iterator
from dataclasses import dataclass

GROUP = 12
"""Most permits of a group, while an earlier group has room. Measured at 100 calls/s: groups of half the size
at half the distance take a tenth more CPU time, and no call starts sooner."""

PLACE_MS = 24
"""Milliseconds between groups: two workers start `GROUP` calls in less."""

EARLIEST = 0.5
"""The part of its gathering time after which a lane may be asked, if all later groups are full."""

STEP_MS = 10
"""Milliseconds whose starts are granted at once: a lane that waits for more is asked again after them."""

MEMORY_MS = 1000
"""For so long, and twice as long at most, as many calls may be in flight as were, and start at once."""


@dataclass(slots=True)
class _Group:
    """Lanes that are asked at one moment (monotonic), and how many permits they will be granted."""

    at_ms: int
    permits: int = 0


class Timetable:
    """The groups of lanes that will be asked, one in each place of `PLACE_MS`."""

    def __init__(self) -> None:
        self._groups: dict[int, _Group] = {}
        self._booked: dict[str, tuple[int, int]] = {}  # of a lane: its place, and its permits there
        self._present = 0  # the place in which something was booked last

    def book(self, lane: str, now_ms: int, wait_ms: int, gather_ms: int, permits: int) -> int:
        """Book the latest group with room for a lane's next ``permits``. Returns its time (monotonic, ms).

        The lane can start no call for ``wait_ms``, and gathers permits for ``gather_ms`` at most. Its earlier
        booking ends.
        """
        self.forget(lane)
        self._drop_past(now_ms)
        latest = now_ms + max(wait_ms, gather_ms)
        earliest = now_ms + max(wait_ms, round(EARLIEST * gather_ms))

        def crowd(at_ms: int) -> int:
            group = self._groups.get(at_ms // PLACE_MS)
            return 0 if group is None or group.permits + permits <= GROUP else group.permits

        at_ms = min(self._moments(earliest, latest), key=crowd, default=latest)
        place = at_ms // PLACE_MS
        self._groups.setdefault(place, _Group(at_ms)).permits += permits
        self._booked[lane] = place, permits
        return at_ms

    def forget(self, lane: str) -> None:
        """Drop a lane's booking."""
        place, permits = self._booked.pop(lane, (0, 0))
        if group := self._groups.get(place):
            group.permits -= permits
            if not group.permits:
                del self._groups[place]

    def _drop_past(self, now_ms: int) -> None:
        present = now_ms // PLACE_MS
        if present != self._present:
            self._present = present
            for place in [place for place in self._groups if place < present]:
                del self._groups[place]

    def _moments(self, earliest: int, latest: int) -> Iterator[int]:
        """The moment of each place between two times, the latest first."""
        for place in range(latest // PLACE_MS, earliest // PLACE_MS - 1, -1):
            group = self._groups.get(place)
            at_ms = min(latest, (place + 1) * PLACE_MS - 1) if group is None else group.at_ms
            if earliest <= at_ms <= latest:
                yield at_ms


class Ramp:
    """How fast the calls in flight on one pool of workers may grow: as fast as those workers start calls.

    Calls that replace others of the last seconds are not delayed.
    """

    def __init__(self) -> None:
        self._most, self._most_before, self._since_ms = 0, 0, 0  # calls in flight; this period and the last
        self._ceiling, self._at_ms = 0, -STEP_MS

    def room(self, in_flight: int, per_s: float, now_ms: int) -> int:
        """How many calls may start now (monotonic, ms). The workers start ``per_s`` calls a second."""
        self._most = max(self._most, in_flight)
        if now_ms - self._at_ms >= STEP_MS:
            if now_ms - self._since_ms >= MEMORY_MS:
                self._most_before, self._most, self._since_ms = self._most, in_flight, now_ms
            step = max(1, round(per_s * STEP_MS / 1000))
            self._ceiling, self._at_ms = max(self._most, self._most_before) + step, now_ms
        return max(0, self._ceiling - in_flight)
