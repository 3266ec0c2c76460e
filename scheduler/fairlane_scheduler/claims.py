"""What each team may claim of a lane: its weight, what is kept for it, and the most that it may take.

The terms are those of Kubernetes' API priority and fairness. A team's *nominal* share is its weight among
all teams that are known or wait. It lends ``lendable_percent`` of that while it does not use it; the rest is
kept for it. It borrows up to ``borrowing_limit_percent`` beyond it, and never has more than ``max_percent``
of a lane.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from fairlane.admission.lanes import Allotment
from fairlane.settings import TeamSettings
from fairlane.store.registry import TeamRecord

UNSAID = TeamSettings()


class Claims:
    """Claims as the operator made them (``made``), else as the configuration states them."""

    def __init__(self, stated: Mapping[str, TeamSettings]) -> None:
        self._stated = stated
        self._claims = dict(stated)
        self._total, self._restricted = 0.0, False
        self.update({})

    def update(self, made: Mapping[str, TeamRecord]) -> None:
        """Teams that were made while running."""
        self._claims = dict(self._stated) | {
            team: record.over(self._stated.get(team, UNSAID)) for team, record in made.items()
        }
        self._total = sum(claim.weight for claim in self._claims.values())
        self._restricted = any(claim.restricted for claim in self._claims.values())

    def weight(self, team: str) -> float:
        """A team of which nobody has said anything counts as 1."""
        return self._claims.get(team, UNSAID).weight

    def allotments(self, waiting: Iterable[str]) -> dict[str, Allotment]:
        """What is kept for teams, and the most of each, where ``waiting`` want the lane; of those alone for
        whom something is said.
        """
        if not self._restricted:
            return {}
        total = self._total + UNSAID.weight * len(set(waiting).difference(self._claims))
        return {
            team: _allotment(claim, claim.weight / total)
            for team, claim in self._claims.items()
            if claim.restricted
        }


def _allotment(claim: TeamSettings, nominal: float) -> Allotment:
    most = 1.0 if claim.max_percent is None else claim.max_percent / 100
    if claim.borrowing_limit_percent is not None:
        most = min(most, nominal * (1 + claim.borrowing_limit_percent / 100))
    return Allotment(min(most, nominal * (1 - claim.lendable_percent / 100)), most)
