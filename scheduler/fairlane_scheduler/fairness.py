"""Start-time fair queueing over teams on each lane, then priority, age and turns over a team's runs.

Goyal, Vin, Cheng, "Start-time Fair Queueing" (SIGCOMM 1996): a team's next permit is tagged
``start = max(virtual time, its last finish)`` and ``finish = start + cost / weight``; the smallest start goes
first and sets the virtual time. An idle team so keeps no credit, and a lone one gets everything. The cost of
a permit is its dominant share of the lane (``lib/share.lua``), corrected by what the call took in the end:
the virtual time goes back where the start that it followed was too late.

Teams are kept in a heap, so that a decision costs as much as the logarithm of how many wait. Those that may
take nothing now, as they have their part of the slots, are passed and keep their places.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count as counter
from itertools import islice, repeat

from fairlane.admission.lanes import Offer
from fairlane.store.keys import RunRef

USUAL_OVER = 16  # permits over which a team's usual share is averaged
TEAMS_KEPT = 64  # beyond the waiting ones: idle teams whose tag is behind the virtual time say nothing
BEHIND = 32  # permits that a team which waits can be owed
HURRIED_AHEAD = 4  # permits that a team may be ahead of its share by those that are hurried
AGEING_PER_S = 1.0  # a second of waiting is worth so much priority: the lowest has its turn, too

Waiting = Mapping[str, Mapping[RunRef, int]]
"""Jobs that wait on a lane, by team and run."""

_Place = tuple[float, str, int]
"""Of a team in the heap: its start, its name, and a number that tells whether it has moved since."""


class LaneShares:
    """One lane's virtual time and its teams' tags."""

    def __init__(self, weight_of: Callable[[str], float]) -> None:
        self._weight_of = weight_of
        self._virtual = 0.0  # the start of the last permit in turn
        self._latest = 0.0  # the latest that it has been: what a waiting team can be owed ends here
        self._teams: dict[str, _Team] = {}
        self._heap: list[_Place] = []
        self._entries = counter()
        self._usual_of_all = 1.0  # as the last team's: what is expected of one of which nothing is known
        self._moved: dict[str, None] = {}  # teams whose place in the heap is out of date
        self._express = False  # whether the last permit went to somebody who waits for it
        self._hurried: Counter[RunRef] = Counter()  # permits that were offered out of turn

    def arrive(self, teams: Iterable[str]) -> None:
        """These have work now; to be told again is harmless."""
        for name in teams:
            team = self._team(name)
            team.finish = max(self._virtual, team.finish)  # what it did not want is no credit
            self._moved[name] = None

    def order(
        self,
        waiting: Waiting,
        priority_of: Callable[[RunRef], int],
        count: int,
        now_ms: int = 0,
        interactive: Iterable[RunRef] = (),
        most_of: Callable[[str], int] | None = None,
    ) -> list[Offer]:
        """The next ``count`` permits at most, in fair order, as offers to runs; nothing is charged yet.

        Whoever waits for an ``interactive`` run goes next, but never twice before somebody else whose turn it
        is, nor with more than the team's share for long. No team is offered more than ``most_of`` it.
        """
        self._place(waiting)
        self._hurried.clear()
        turns = _Turns(
            lambda name: self._team(name).runs_in_turn(waiting[name], priority_of, now_ms), most_of
        )
        urgent = [ref.team for ref in interactive if ref.team in waiting and self._may_hurry(ref.team)]
        picks: list[RunRef] = []
        while len(picks) < count:
            if urgent and not self._express:
                ref = turns.next_of(urgent.pop(0))
                if ref is None:
                    continue
                self._express = True
                self._hurried[ref] += 1
            else:
                self._express = False
                ref = self._pick(waiting, turns)
                if ref is None and urgent:
                    continue
            if ref is None:
                break
            picks.append(ref)
        self._moved.update(dict.fromkeys(turns.begun))
        for place in turns.passed:
            heapq.heappush(self._heap, place)
        self._forget_idle(waiting)
        return _merge(picks)

    def charge(self, ref: RunRef, share: float, now_ms: int = 0) -> None:
        """A permit was granted: move the team's finish tag and the virtual time, and end the run's turn."""
        team = self._team(ref.team)
        start = self._start_of(ref.team)
        if self._hurried[ref]:
            self._hurried[ref] -= 1  # it was not its turn: the others' time does not go on
        else:
            self._virtual = start
            self._latest = max(self._latest, start)
        team.finish = start + share / self._weight_of(ref.team)
        team.usual += (share - team.usual) / USUAL_OVER if team.usual else share
        self._usual_of_all = team.usual
        team.served(ref, now_ms)
        self._moved[ref.team] = None

    def correct(self, name: str, off: float) -> None:
        """A team's calls took more of the lane than they were charged, or less. One that waits gets back what
        it was charged too much, however late that is told; who does not wait gains no credit.
        """
        team = self._teams.get(name)
        if team is not None:
            team.finish += off / self._weight_of(name)
            self._moved[name] = None

    def _may_hurry(self, name: str) -> bool:
        """Whether a team is no further ahead of its share than it may be for those who wait for their
        answers.
        """
        ahead = self._team(name).finish - self._virtual
        return ahead <= HURRIED_AHEAD * self._usual(name) / self._weight_of(name)

    def _place(self, waiting: Waiting) -> None:
        """Put every team that moved where it belongs."""
        for name in self._moved:
            if name in waiting:
                self._push(name, self._start_of(name))
        self._moved.clear()
        if len(self._heap) > 2 * len(waiting) + TEAMS_KEPT:
            self._heap = [each for each in self._heap if self._current(each) and each[1] in waiting]
            heapq.heapify(self._heap)

    def _push(self, name: str, start: float) -> None:
        team = self._team(name)
        team.entry, team.passed = next(self._entries), False
        heapq.heappush(self._heap, (start, name, team.entry))

    def _current(self, place: _Place) -> _Team | None:
        """The team whose place it is; ``None`` where that has moved since."""
        team = self._teams.get(place[1])
        return team if team is not None and team.entry == place[2] else None

    def _pick(self, waiting: Waiting, turns: _Turns) -> RunRef | None:
        """The run of the team whose start is the smallest; from then on the team is ahead, as if charged."""
        heap, ahead = self._heap, turns.ahead
        while heap or ahead:
            first = ahead if ahead and (not heap or ahead[0] < heap[0]) else heap
            start, name, entry = place = heapq.heappop(first)
            team = self._current(place)
            if team is None or name not in waiting:
                continue
            if not turns.begin(name):
                team.passed = True
                turns.passed.append(place)
            elif team.passed:  # its place is as old as when it was offered nothing
                self._push(name, self._start_of(name))
            elif (ref := turns.next_of(name)) is not None:
                start += self._usual(name) / self._weight_of(name)
                heapq.heappush(ahead, (start, name, entry))
                return ref
        return None

    def _usual(self, name: str) -> float:
        """What a team's next permit is likely to be charged; as another's where nothing of it is known."""
        return self._team(name).usual or self._usual_of_all

    def _start_of(self, name: str) -> float:
        """The tag of a team's next permit. One that has waited all along may be behind the others: it was
        ordered by what its permits were expected to cost, or charged too much at first.
        """
        behind = BEHIND * self._usual(name) / self._weight_of(name)
        return max(self._latest - behind, self._team(name).finish)

    def _team(self, name: str) -> _Team:
        team = self._teams.get(name)
        if team is None:
            team = self._teams[name] = _Team()
        return team

    def _forget_idle(self, waiting: Waiting) -> None:
        if len(self._teams) > 2 * len(waiting) + TEAMS_KEPT:
            self._teams = {
                name: team
                for name, team in self._teams.items()
                if name in waiting or team.finish > self._virtual
            }


class _Turns:
    """The runs of each team's next permits, as many as it is offered.

    ``ahead``: places of teams that were offered some, as if charged for them; ``passed``: of those who are
    offered nothing, which keep them.
    """

    def __init__(
        self, runs_of: Callable[[str], Iterator[RunRef]], most_of: Callable[[str], int] | None
    ) -> None:
        self._runs_of, self._most_of = runs_of, most_of
        self.begun: dict[str, Iterator[RunRef]] = {}
        self.ahead: list[_Place] = []
        self.passed: list[_Place] = []

    def begin(self, name: str) -> bool:
        """Whether a team is offered anything at all."""
        if name not in self.begun:
            most = None if self._most_of is None else self._most_of(name)
            if most is not None and most <= 0:
                return False
            self.begun[name] = islice(self._runs_of(name), most)
        return True

    def next_of(self, name: str) -> RunRef | None:
        return next(self.begun[name], None) if self.begin(name) else None


@dataclass(slots=True)
class _Team:
    """A team's finish tag, what its permits are charged on average, and when its runs were last served.

    ``passed``: it has been offered nothing when it was its turn, and has kept its place.
    """

    finish: float = 0.0
    usual: float = 0.0
    entry: int = -1
    passed: bool = False
    since: dict[RunRef, tuple[int, int]] = field(default_factory=dict)
    turns: int = 0

    def runs_in_turn(
        self, waiting: Mapping[RunRef, int], priority_of: Callable[[RunRef], int], now_ms: int
    ) -> Iterator[RunRef]:
        """The runs of the team's next permits, one after another, until nothing of it is queued.

        The highest priority goes first, where waiting adds to it; among equals, who has waited longest.
        """
        if len(waiting) == 1:
            ((ref, left),) = waiting.items()
            return repeat(ref, left)
        return self._by_priority(waiting, priority_of, now_ms)

    def _by_priority(
        self, waiting: Mapping[RunRef, int], priority_of: Callable[[RunRef], int], now_ms: int
    ) -> Iterator[RunRef]:
        self.since = {ref: self.since.get(ref) or (now_ms, self._next_turn()) for ref in waiting}
        ranked: list[tuple[float, int, int, RunRef]] = []
        for ref, (since_ms, turn) in self.since.items():
            age = AGEING_PER_S * (now_ms - since_ms) / 1000
            ranked.append((-(priority_of(ref) + age), turn, waiting[ref], ref))
        heapq.heapify(ranked)
        while ranked:
            _, _, left, ref = ranked[0]
            yield ref
            if left > 1:
                heapq.heapreplace(ranked, (-float(priority_of(ref)), self._next_turn(), left - 1, ref))
            else:
                heapq.heappop(ranked)

    def served(self, ref: RunRef, now_ms: int) -> None:
        """A run has had its turn: it waits anew, behind the others of its priority."""
        if ref in self.since:
            self.since[ref] = now_ms, self._next_turn()

    def _next_turn(self) -> int:
        self.turns += 1
        return self.turns


def _merge(refs: Iterable[RunRef]) -> list[Offer]:
    offers: list[Offer] = []
    for ref in refs:
        if offers and offers[-1].ref == ref:
            offers[-1] = Offer(ref, offers[-1].most + 1)
        else:
            offers.append(Offer(ref, 1))
    return offers
