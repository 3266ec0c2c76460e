"""Start-time fair queueing over teams on each lane, then priority and round-robin over a team's runs.

Goyal, Vin, Cheng, "Start-time Fair Queueing" (SIGCOMM 1996): a team's next permit is tagged
``start = max(virtual time, its last finish)`` and ``finish = start + cost / weight``; the smallest start goes
first and sets the virtual time. An idle team so keeps no credit, and a lone one gets everything.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice

from fairlane.admission.lanes import Offer
from fairlane.store.keys import RunRef

REQUEST_COST = 1.0
TEAMS_KEPT = 64  # beyond the waiting ones: idle teams whose tag is behind the virtual time say nothing


class LaneShares:
    """One lane's virtual time and its teams' finish tags."""

    def __init__(self, weight_of: Callable[[str], float]) -> None:
        self._weight_of = weight_of
        self._virtual = 0.0
        self._teams: dict[str, _Team] = {}

    def order(
        self, queued: Mapping[RunRef, int], priority_of: Callable[[RunRef], int], count: int
    ) -> list[Offer]:
        """The next ``count`` permits at most, in fair order, as offers to runs; nothing is charged yet."""
        waiting: dict[str, list[RunRef]] = {}
        for ref in queued:
            waiting.setdefault(ref.team, []).append(ref)
        self._forget_idle(waiting)
        picks = {
            team: self._team(team).runs_in_turn(refs, queued, priority_of) for team, refs in waiting.items()
        }
        if len(picks) == 1:
            return _merge(islice(next(iter(picks.values())), count))
        return _merge(islice(self._interleave(picks), count))

    def charge(self, ref: RunRef, cost: float = REQUEST_COST) -> None:
        """A permit was granted: move the team's finish tag and the virtual time, and end the run's turn."""
        team = self._team(ref.team)
        self._virtual = max(self._virtual, team.finish)
        team.finish = self._virtual + cost / self._weight_of(ref.team)
        team.end_turn(ref)

    def _interleave(self, picks: Mapping[str, Iterator[RunRef]]) -> Iterator[RunRef]:
        tags = [(max(self._virtual, self._team(team).finish), team) for team in picks]
        heapq.heapify(tags)
        while tags:
            start, team = tags[0]
            following = next(picks[team], None)
            if following is None:
                heapq.heappop(tags)
                continue
            yield following
            heapq.heapreplace(tags, (start + REQUEST_COST / self._weight_of(team), team))

    def _team(self, name: str) -> _Team:
        team = self._teams.get(name)
        if team is None:
            team = self._teams[name] = _Team()
        return team

    def _forget_idle(self, waiting: Mapping[str, list[RunRef]]) -> None:
        if len(self._teams) > len(waiting) + TEAMS_KEPT:
            self._teams = {
                name: team
                for name, team in self._teams.items()
                if name in waiting or team.finish > self._virtual
            }


@dataclass(slots=True)
class _Team:
    """A team's finish tag, and whose turn it is among its waiting runs of each priority."""

    finish: float = 0.0
    turns: dict[int, dict[RunRef, None]] = field(default_factory=dict)

    def runs_in_turn(
        self, waiting: list[RunRef], queued: Mapping[RunRef, int], priority_of: Callable[[RunRef], int]
    ) -> Iterator[RunRef]:
        """The runs of the team's next permits, one after another, until nothing of it is queued."""
        by_priority: dict[int, dict[RunRef, None]] = {}
        for ref in waiting:
            by_priority.setdefault(priority_of(ref), {})[ref] = None
        self.turns = {
            priority: {ref: None for ref in self.turns.get(priority, ()) if ref in refs} | refs
            for priority, refs in by_priority.items()
        }
        for priority in sorted(self.turns, reverse=True):
            yield from _rounds(self.turns[priority], queued)

    def end_turn(self, ref: RunRef) -> None:
        """A run has had its turn: it goes behind the others of its priority."""
        for turn in self.turns.values():
            if ref in turn:
                del turn[ref]
                turn[ref] = None
                return


def _rounds(turn: Iterable[RunRef], queued: Mapping[RunRef, int]) -> Iterator[RunRef]:
    taken, waiting = 0, turn
    while waiting:
        yield from waiting
        taken += 1
        waiting = [ref for ref in waiting if queued[ref] > taken]


def _merge(refs: Iterable[RunRef]) -> list[Offer]:
    offers: list[Offer] = []
    for ref in refs:
        if offers and offers[-1].ref == ref:
            offers[-1] = Offer(ref, offers[-1].most + 1)
        else:
            offers.append(Offer(ref, 1))
    return offers
