"""Start-time fair queueing over teams on each lane, then priority and round-robin over a team's runs.

Goyal, Vin, Cheng, "Start-time Fair Queueing" (SIGCOMM 1996): a team's next permit is tagged
``start = max(virtual time, its last finish)`` and ``finish = start + cost / weight``; the smallest start goes
first and sets the virtual time. An idle team so keeps no credit, and a lone one gets everything.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping

from fairlane.admission.lanes import Offer
from fairlane.store.keys import RunRef

REQUEST_COST = 1.0


class LaneShares:
    """One lane's virtual time and its teams' finish tags."""

    def __init__(self, weight_of: Callable[[str], float]) -> None:
        self._weight_of = weight_of
        self._virtual = 0.0
        self._finish: dict[str, float] = {}
        self._turns: dict[tuple[str, int], deque[RunRef]] = {}

    def order(
        self, queued: Mapping[RunRef, int], priority_of: Callable[[RunRef], int], count: int
    ) -> list[Offer]:
        """The next ``count`` permits at most, in fair order, as offers to runs; nothing is charged yet."""
        teams: dict[str, dict[RunRef, int]] = {}
        for ref, jobs in queued.items():
            teams.setdefault(ref.team, {})[ref] = jobs
        picks = {team: self._runs_in_turn(team, jobs, priority_of) for team, jobs in teams.items()}
        if len(picks) == 1:
            return _merge(_take(next(iter(picks.values())), count))
        tags = [(max(self._virtual, self._finish.get(team, 0.0)), team) for team in sorted(picks)]
        heapq.heapify(tags)
        chosen: list[RunRef] = []
        while tags and len(chosen) < count:
            start, team = tags[0]
            following = next(picks[team], None)
            if following is None:
                heapq.heappop(tags)
                continue
            chosen.append(following)
            heapq.heapreplace(tags, (start + REQUEST_COST / self._weight_of(team), team))
        return _merge(chosen)

    def charge(self, ref: RunRef, cost: float = REQUEST_COST) -> None:
        """A permit was granted: move the team's finish tag and the virtual time, and end the run's turn."""
        start = max(self._virtual, self._finish.get(ref.team, 0.0))
        self._virtual = start
        self._finish[ref.team] = start + cost / self._weight_of(ref.team)
        for (team, _), turn in self._turns.items():
            if team == ref.team and ref in turn:
                turn.remove(ref)
                turn.append(ref)

    def _runs_in_turn(
        self, team: str, jobs: Mapping[RunRef, int], priority_of: Callable[[RunRef], int]
    ) -> Iterator[RunRef]:
        by_priority: dict[int, list[RunRef]] = {}
        for ref in jobs:
            by_priority.setdefault(priority_of(ref), []).append(ref)
        for key in [key for key in self._turns if key[0] == team and key[1] not in by_priority]:
            del self._turns[key]
        ordered: list[tuple[deque[RunRef], dict[RunRef, int]]] = []
        for priority in sorted(by_priority, reverse=True):
            waiting = by_priority[priority]
            turn = self._turns.setdefault((team, priority), deque())
            for gone in [ref for ref in turn if ref not in jobs]:
                turn.remove(gone)
            turn.extend(ref for ref in waiting if ref not in turn)
            ordered.append((deque(turn), {ref: jobs[ref] for ref in waiting}))
        return _rounds(ordered)


def _rounds(ordered: list[tuple[deque[RunRef], dict[RunRef, int]]]) -> Iterator[RunRef]:
    for turn, left in ordered:
        while turn:
            ref = turn.popleft()
            yield ref
            left[ref] -= 1
            if left[ref] > 0:
                turn.append(ref)


def _take(refs: Iterable[RunRef], count: int) -> Iterable[RunRef]:
    for _, ref in zip(range(count), refs, strict=False):
        yield ref


def _merge(refs: Iterable[RunRef]) -> list[Offer]:
    offers: list[Offer] = []
    for ref in refs:
        if offers and offers[-1].ref == ref:
            offers[-1] = Offer(ref, offers[-1].most + 1)
        else:
            offers.append(Offer(ref, 1))
    return offers
