"""How many more attempts the workers can start at once, lane by lane."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from fairlane.store.workers import Beat


@dataclass(slots=True)
class _Pool:
    """Workers that are linked by lanes they share, and all their lanes."""

    lanes: set[str]
    slots: int


class Capacity:
    """Slots of live workers against attempts in flight that hold one.

    Workers that share a lane form one pool; a lane may fill its pool's free slots, but never more than the
    slots of the workers that serve it. Where every worker serves every lane there is one pool, and this is
    exact. A worker that stops counts with the slots that it still uses, since what it holds is in flight.
    """

    def __init__(self) -> None:
        self._own: dict[str, int] = {}
        self._pools: dict[str, _Pool] = {}

    def update(self, workers: Sequence[Beat]) -> None:
        """The workers that are alive."""
        self._own, pools = {}, list[_Pool]()
        for beat in workers:
            info = beat.info
            slots = min(info.busy, info.slots) if info.stopping else info.slots
            for lane in info.lanes:
                self._own[lane] = self._own.get(lane, 0) + slots
            joined = [pool for pool in pools if not pool.lanes.isdisjoint(info.lanes)]
            merged = _Pool(set(info.lanes).union(*(pool.lanes for pool in joined)), slots)
            merged.slots += sum(pool.slots for pool in joined)
            pools = [pool for pool in pools if pool.lanes.isdisjoint(info.lanes)] + [merged]
        self._pools = {lane: pool for pool in pools for lane in pool.lanes}

    def pools(self, lanes: Iterable[str]) -> list[tuple[int, list[str]]]:
        """The pools that serve these lanes: their slots, and all lanes of each."""
        found = {id(pool): pool for lane in lanes if (pool := self._pools.get(lane)) is not None}
        return [(pool.slots, sorted(pool.lanes)) for pool in found.values()]

    def room(self, lane: str, on_slots: Mapping[str, int]) -> int:
        """Attempts that may be added on ``lane`` now."""
        pool = self._pools.get(lane)
        if pool is None:
            return 0
        own = self._own[lane] - on_slots.get(lane, 0)
        shared = pool.slots - sum(on_slots.get(name, 0) for name in pool.lanes)
        return max(0, min(own, shared))
