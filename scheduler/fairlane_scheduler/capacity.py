"""How many more attempts the workers can start at once, lane by lane."""

from __future__ import annotations

from collections.abc import Mapping

from fairlane.store.workers import Beat


class Capacity:
    """Slots of live workers against attempts in flight.

    Workers that share a lane form one pool; a lane may fill its pool's free slots, but never more than the
    slots of the workers that serve it. Where every worker serves every lane there is one pool, and this is
    exact.
    """

    def __init__(self) -> None:
        self._workers: list[Beat] = []

    def update(self, workers: list[Beat]) -> None:
        """The workers that are alive and take new work."""
        self._workers = [beat for beat in workers if not beat.info.stopping]

    @property
    def slots(self) -> int:
        return sum(beat.info.slots for beat in self._workers)

    def room(self, lane: str, in_flight: Mapping[str, int]) -> int:
        """Attempts that may be added on ``lane`` now."""
        serving = [beat for beat in self._workers if lane in beat.info.lanes]
        if not serving:
            return 0
        own = sum(beat.info.slots for beat in serving) - in_flight.get(lane, 0)
        pool, lanes = self._pool(lane)
        shared = sum(beat.info.slots for beat in pool) - sum(in_flight.get(name, 0) for name in lanes)
        return max(0, min(own, shared))

    def _pool(self, lane: str) -> tuple[list[Beat], set[str]]:
        lanes, pool, rest = {lane}, [], list(self._workers)
        while joined := [beat for beat in rest if lanes.intersection(beat.info.lanes)]:
            pool += joined
            rest = [beat for beat in rest if beat not in joined]
            for beat in joined:
                lanes.update(beat.info.lanes)
        return pool, lanes
