"""Shares of slots, where these and not a rate are scarce: max-min fair, by weight, over what teams hold."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from math import ceil, inf


class Quotas(dict[str, int]):
    """How many slots more each team may take now; worked out for a team when it is first asked for.

    ``slots`` are all that there are, ``held`` and ``wanted`` those that teams hold and would take. A team's
    share is what water-filling gives it (Bertsekas, Gallager, "Data Networks", 6.5.2): nobody gets more than
    it can use, and who could use more has as many for its weight as any other. Who holds more than its share
    takes none.
    """

    def __init__(
        self,
        slots: int,
        held: Mapping[str, int],
        wanted: Mapping[str, int],
        weight_of: Callable[[str], float],
    ) -> None:
        super().__init__()
        self._held, self._wanted, self._weight_of = held, wanted, weight_of
        self._level = self._filled(slots)

    def __missing__(self, team: str) -> int:
        held, most = self._held.get(team, 0), self._wanted.get(team, 0)
        share = self._level * self._weight_of(team)
        self[team] = quota = most if held + most <= share else max(0, min(most, ceil(share - held)))
        return quota

    def _filled(self, slots: int) -> float:
        """Slots for a weight of 1, for those who could use more; infinite where there are enough for all."""
        demand = dict(self._wanted)
        for team, count in self._held.items():
            demand[team] = demand.get(team, 0) + count
        weights = list(map(self._weight_of, demand))
        lowest = [
            (count / weight, count, weight) for count, weight in zip(demand.values(), weights, strict=True)
        ]
        heapq.heapify(lowest)
        left, total = float(slots), sum(weights)
        while lowest:
            level = left / total
            _, count, weight = heapq.heappop(lowest)
            if count > level * weight:
                return level
            left, total = left - count, total - weight
        return inf
