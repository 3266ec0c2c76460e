"""Shares of slots, where these and not a rate are scarce: max-min fair, by weight, over what teams hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import ceil


def slot_quotas(
    slots: int, held: Mapping[str, int], wanted: Mapping[str, int], weight_of: Callable[[str], float]
) -> dict[str, int]:
    """How many slots more each team that wants some may take now.

    ``slots`` are all that there are, ``held`` and ``wanted`` those that teams hold and would take. A team's
    share is what water-filling gives it (Bertsekas, Gallager, "Data Networks", 6.5.2): nobody gets more than
    it can use, and who could use more has as many for its weight as any other. Who holds more than its share
    takes none.
    """
    demand = {team: held.get(team, 0) + wanted.get(team, 0) for team in {*held, *wanted}}
    weights = {team: weight_of(team) for team in demand}
    left, total, level = float(slots), sum(weights.values()), 0.0
    for team in sorted(demand, key=lambda team: demand[team] / weights[team]):
        level = left / total
        if demand[team] > level * weights[team]:
            break
        left, total = left - demand[team], total - weights[team]
    else:
        return dict(wanted)
    shares = {team: min(float(count), level * weights[team]) for team, count in demand.items()}
    return {team: max(0, min(most, ceil(shares[team] - held.get(team, 0)))) for team, most in wanted.items()}
