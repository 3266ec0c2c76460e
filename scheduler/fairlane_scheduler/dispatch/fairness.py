"""Fairness between teams: the order of their permits on a lane, and a CPU quota of the scheduler's time.

`LaneShares` is start-time fair queueing over teams, then priority, age and turns over a team's runs.
Goyal, Vin, Cheng, "Start-time Fair Queueing" (SIGCOMM 1996): a team's next permit is tagged
``start = max(virtual time, its last finish)`` and ``finish = start + cost / weight``; the smallest start goes
first and sets the virtual time. So an idle team saves no credit, and a lone team gets everything. The cost of
a permit is its dominant share of the lane in minutes of the lane (``lib/lane/dominant_share.lua``). When the
call has finished, its actual share corrects the tag; the virtual time goes back if it followed a start that
was too late.

Teams are kept in a heap, so a decision costs O(log n) in the number of waiting teams. A team that may take
nothing now, because it already has its share of the slots, is skipped and keeps its place.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import count as counter
from itertools import islice, repeat
from typing import NamedTuple

from fairlane.model.run import RunRef
from fairlane.store.write.permits import Offer

AVERAGED_PERMITS = 16  # permits in the moving average of a team's share per permit
TEAMS_KEPT = 64  # idle teams kept; those whose tag is behind the virtual time can be dropped
BEHIND = 32  # most permits that a waiting team can be owed
INTERACTIVE_AHEAD = 4  # most permits by which interactive runs may put a team ahead of its share
AGEING_PER_S = 1.0  # priority gained per second of waiting, so that the lowest also has its turn
THROTTLE_RATIO = 9  # throttled time per working time: a team gets a tenth of the scheduler's time at most

Waiting = Mapping[str, dict[RunRef, int]]
"""Jobs that wait on a lane, by team and run."""

_Place = tuple[float, str, int]
"""A team's entry in the heap: start tag, name, and a number that shows whether it has moved since."""


class LaneShares:
    """One lane's virtual time and its teams' tags."""

    def __init__(self, weight_of: Callable[[str], float]) -> None:
        self._weight_of = weight_of
        self._virtual = 0.0  # the start of the last permit in turn
        self._latest = 0.0  # its maximum so far, which bounds what a waiting team can be owed
        self._teams: dict[str, _Team] = {}
        self._heap: list[_Place] = []
        self._entries = counter()
        self._last_average = 1.0  # of the team served last; expected of a team without a history
        self._moved: dict[str, None] = {}  # teams whose place in the heap is out of date
        self._express = False  # whether the last permit went to an interactive run
        self._out_of_turn: Counter[RunRef] = Counter()  # permits offered to interactive runs out of turn

    def arrive(self, teams: Iterable[str]) -> None:
        """Note that these teams have work now; repeating a team is harmless."""
        for name in teams:
            team = self._team(name)
            team.finish = max(self._virtual, team.finish)  # idle time earns no credit
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

        An ``interactive`` run goes next, but never twice before another team whose turn it is, and never far
        beyond its team's share. No team is offered more than ``most_of`` returns for it.
        """
        self._place(waiting)
        self._out_of_turn.clear()
        turns = _Turns(
            lambda name: self._team(name).runs_in_turn(waiting[name], priority_of, now_ms), most_of
        )
        urgent = [ref.team for ref in interactive if ref.team in waiting and self._may_go_ahead(ref.team)]
        picks: list[RunRef] = []
        while len(picks) < count:
            if urgent and not self._express:
                ref = turns.next_of(urgent.pop(0))
                if ref is None:
                    continue
                self._express = True
                self._out_of_turn[ref] += 1
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
        if self._out_of_turn[ref]:
            self._out_of_turn[ref] -= 1  # out of turn, so the virtual time stays
        else:
            self._virtual = start
            self._latest = max(self._latest, start)
        team.finish = start + share / self._weight_of(ref.team)
        team.average += (share - team.average) / AVERAGED_PERMITS if team.average else share
        self._last_average = team.average
        team.served(ref, now_ms)
        self._moved[ref.team] = None

    def correct(self, name: str, off: float) -> None:
        """Add the difference between a team's actual and charged share (minutes of the lane) to its tag.

        Over-charges are refunded to teams with queued work, however late the correction arrives. Idle teams
        get no credit.
        """
        team = self._teams.get(name)
        if team is not None:
            team.finish += off / self._weight_of(name)
            self._moved[name] = None

    def _may_go_ahead(self, name: str) -> bool:
        """Whether a team may take another permit out of turn."""
        ahead = self._team(name).finish - self._virtual
        return ahead <= INTERACTIVE_AHEAD * self._average(name) / self._weight_of(name)

    def _place(self, waiting: Waiting) -> None:
        """Push every team whose tag has changed to its new place in the heap."""
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
        """The team of this place; ``None`` if the place is out of date."""
        team = self._teams.get(place[1])
        return team if team is not None and team.entry == place[2] else None

    def _pick(self, waiting: Waiting, turns: _Turns) -> RunRef | None:
        """The next run of the team with the smallest start, which then counts as if charged."""
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
            elif team.passed:  # its place is from when it was offered nothing
                self._push(name, self._start_of(name))
            elif (ref := turns.next_of(name)) is not None:
                start += self._average(name) / self._weight_of(name)
                heapq.heappush(ahead, (start, name, entry))
                return ref
        return None

    def _average(self, name: str) -> float:
        """The expected charge of a team's next permit; without a history, that of the last team served."""
        return self._team(name).average or self._last_average

    def _start_of(self, name: str) -> float:
        """The start tag of a team's next permit.

        A team that waits may be behind the virtual time by at most `BEHIND` permits: its permits cost less
        than expected, or were over-charged at first.
        """
        behind = BEHIND * self._average(name) / self._weight_of(name)
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
    """The runs of each team's next permits.

    ``ahead``: places of teams after the permits that they were offered. ``passed``: places of teams that may
    take none, and keep their place.
    """

    def __init__(
        self, runs_of: Callable[[str], Iterator[RunRef]], most_of: Callable[[str], int] | None
    ) -> None:
        self._runs_of, self._most_of = runs_of, most_of
        self.begun: dict[str, Iterator[RunRef]] = {}
        self.ahead: list[_Place] = []
        self.passed: list[_Place] = []

    def begin(self, name: str) -> bool:
        """Whether a team may be offered permits."""
        if name not in self.begun:
            most = None if self._most_of is None else self._most_of(name)
            if most is not None and most <= 0:
                return False
            self.begun[name] = islice(self._runs_of(name), most)
        return True

    def next_of(self, name: str) -> RunRef | None:
        return next(self.begun[name], None) if self.begin(name) else None


class _RunPlace(NamedTuple):
    """A run's place among its team's runs, ordered by ``rank`` and then ``turn``.

    ``rank``: since when the run has waited, less its priority, both in milliseconds. Waiting adds the same to
    all runs, so no rank changes while a run waits.
    """

    rank: int
    turn: int
    priority: int
    ref: RunRef


@dataclass(slots=True)
class _Team:
    """A team's finish tag, its ``average`` charge per permit, and the places of its runs.

    ``passed``: at its last turn it could take nothing, so it has kept its place. ``offered``: places that the
    last order took from the heap.
    """

    finish: float = 0.0
    average: float = 0.0
    entry: int = -1
    passed: bool = False
    turns: int = 0
    places: dict[RunRef, _RunPlace] = field(default_factory=dict)
    heap: list[_RunPlace] = field(default_factory=list)
    offered: list[_RunPlace] = field(default_factory=list)

    def runs_in_turn(
        self, waiting: dict[RunRef, int], priority_of: Callable[[RunRef], int], now_ms: int
    ) -> Iterator[RunRef]:
        """The runs of the team's next permits, one after another, until all its queued jobs have one.

        The highest priority goes first; waiting adds to it. Among equals, the longest waiting goes first.
        """
        if len(waiting) == 1:
            ((ref, left),) = waiting.items()
            return repeat(ref, left)
        return self._by_priority(waiting, priority_of, now_ms)

    def _by_priority(
        self, waiting: dict[RunRef, int], priority_of: Callable[[RunRef], int], now_ms: int
    ) -> Iterator[RunRef]:
        self._update(waiting, priority_of, now_ms)
        again: list[tuple[_RunPlace, int]] = []  # runs offered a permit, with how many jobs they have left
        while self.heap or again:
            if again and (not self.heap or again[0][0] < self.heap[0]):
                place, left = heapq.heappop(again)
            else:
                place = heapq.heappop(self.heap)
                if self.places.get(place.ref) is not place:
                    continue
                self.offered.append(place)
                left = waiting[place.ref]
            yield place.ref
            if left > 1:
                heapq.heappush(again, (self._new_place(place.ref, place.priority, now_ms), left - 1))

    def _update(self, waiting: dict[RunRef, int], priority_of: Callable[[RunRef], int], now_ms: int) -> None:
        """Give new runs a place, drop the places of runs that wait no more, and put offered ones back.

        Compares whole sets, which takes a millisecond for 20,000 runs; all else costs only what has changed.
        """
        for ref in set(self.places).difference(waiting):
            del self.places[ref]
        for ref in self._newcomers(waiting):
            self._wait(ref, priority_of(ref), now_ms)
        for place in self.offered:
            if self.places.get(place.ref) is place:
                heapq.heappush(self.heap, place)
        self.offered.clear()
        if len(self.heap) > 2 * len(self.places) + TEAMS_KEPT:  # most are out of date
            self.heap = list(self.places.values())
            heapq.heapify(self.heap)

    def _newcomers(self, waiting: dict[RunRef, int]) -> list[RunRef]:
        """Runs that have no place yet, in the order in which they came; the last to come stand last."""
        found: list[RunRef] = []
        missing = len(waiting) - len(self.places)
        for ref in reversed(waiting) if missing else ():
            if ref not in self.places:
                found.append(ref)
                if len(found) == missing:
                    break
        return found[::-1]

    def served(self, ref: RunRef, now_ms: int) -> None:
        """End a run's turn: it waits again, behind other runs of its priority."""
        if (place := self.places.get(ref)) is not None:
            self._wait(ref, place.priority, now_ms)

    def _wait(self, ref: RunRef, priority: int, now_ms: int) -> None:
        place = self.places[ref] = self._new_place(ref, priority, now_ms)
        heapq.heappush(self.heap, place)

    def _new_place(self, ref: RunRef, priority: int, since_ms: int) -> _RunPlace:
        self.turns += 1
        return _RunPlace(round(AGEING_PER_S * since_ms) - 1000 * priority, self.turns, priority, ref)


def _merge(refs: Iterable[RunRef]) -> list[Offer]:
    offers: list[Offer] = []
    for ref in refs:
        if offers and offers[-1].ref == ref:
            offers[-1] = Offer(ref, offers[-1].most + 1)
        else:
            offers.append(Offer(ref, 1))
    return offers


class TeamThrottle:
    """Per-team CPU quota: skips a team for nine times as long as its work kept the scheduler busy.

    Keeps, by team, until when it is throttled. All times are milliseconds of one monotonic clock.
    """

    def __init__(self, allowed_ms: int, busy_ms: Callable[[], float]) -> None:
        """Work that takes no longer than ``allowed_ms`` at a time throttles nobody.

        ``busy_ms`` returns the CPU time of this thread so far: no team pays for waiting on Redis or the
        machine.
        """
        self._allowed_ms = allowed_ms
        self._busy_ms = busy_ms
        self._until_ms: dict[str, int] = {}
        self._sums: dict[str, tuple[int, float]] = {}  # when a team's work was summed last, and the sum
        self._began_ms = 0.0

    def begin(self) -> None:
        """Start to measure a team's work."""
        self._began_ms = self._busy_ms()

    def end(self, team: str, now_ms: int, *, sums: bool = False) -> int:
        """Charge the work since `begin` to a team. Returns for how many milliseconds that throttles it.

        ``sums``: it counts together with such work before it, less a tenth of the time since then.
        """
        took_ms = self._busy_ms() - self._began_ms
        if sums:
            last_ms, sum_ms = self._sums.get(team, (now_ms, 0.0))
            took_ms += max(0.0, sum_ms - (now_ms - last_ms) / (1 + THROTTLE_RATIO))
            self._sums[team] = now_ms, took_ms
        if took_ms <= self._allowed_ms:
            return 0
        self._sums.pop(team, None)
        throttled_ms = round(took_ms * THROTTLE_RATIO)
        self.throttle(team, now_ms, throttled_ms)
        return throttled_ms

    def throttle(self, team: str, now_ms: int, ms: int) -> None:
        """Throttle a team for at least ``ms`` milliseconds."""
        self._until_ms[team] = max(self._until_ms.get(team, 0), now_ms + ms)

    def left_ms(self, team: str, now_ms: int) -> int:
        """For how much longer a team is throttled; 0 if it is not."""
        until_ms = self._until_ms.get(team)
        if until_ms is None:
            return 0
        if until_ms <= now_ms:
            del self._until_ms[team]
            return 0
        return until_ms - now_ms
