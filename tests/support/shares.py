"""A lane that teams share while its limit changes, and measures of how evenly they share it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, NamedTuple

from redis import Redis

from fairlane.model.job import Attempt
from fairlane.model.outcome import Outcome, RateLimited, Success
from fairlane.model.run import RunRef
from fairlane.model.tokens import Usage
from tests.support.hidden_limit import REFUSAL_MS, Bucket
from tests.support.scheduling import Cluster
from tests.support.stand_ins import CALL_S, FakeWorker

LANE = "sim:fast"
PER_MINUTE = 1200
CHANGES_S, ENDS_S = 15, 30
DEPTH = 5  # calls that the provider of a learned lane admits at once


class Taken(NamedTuple):
    """A call for which a lane granted a team a permit."""

    at_ms: int
    team: str


def jain(amounts: Iterable[float]) -> float:
    """Jain's fairness index (Jain, Chiu, Hawe 1984): 1 if all are equal, 1/n if one of n has everything."""
    each = list(amounts)
    squares = sum(amount**2 for amount in each)
    return sum(each) ** 2 / (len(each) * squares) if squares else 1.0


def windows(taken: Sequence[Taken], span_ms: int, begin_ms: int, end_ms: int) -> Iterator[Counter[str]]:
    """Each team's number of calls in every window of that length between two times.

    ``taken`` is in order of time. The counts change only when a call enters or leaves the window, so these
    are all windows that differ.
    """
    seen = [each for each in taken if begin_ms <= each.at_ms < end_ms]
    last_ms, first, after = end_ms - span_ms, 0, 0
    starts = {begin_ms, last_ms}
    starts |= {each.at_ms + 1 for each in seen} | {each.at_ms - span_ms + 1 for each in seen}
    held = Counter[str]()
    for start_ms in sorted(start_ms for start_ms in starts if begin_ms <= start_ms <= last_ms):
        while after < len(seen) and seen[after].at_ms < start_ms + span_ms:
            held[seen[after].team] += 1
            after += 1
        while first < after and seen[first].at_ms < start_ms:
            held[seen[first].team] -= 1
            first += 1
        yield Counter(held)


def least_jain(
    taken: Sequence[Taken], teams: Iterable[str], span_ms: int, begin_ms: int, end_ms: int
) -> float:
    """The lowest Jain's index of any window."""
    names = list(teams)
    return min(jain(held[team] for team in names) for held in windows(taken, span_ms, begin_ms, end_ms))


def share_of(team: str, weights: Mapping[str, float]) -> float:
    """A team's share of the lane by its weight, while all these teams have waiting jobs."""
    return weights[team] / sum(weights.values())


def furthest_off(order: Sequence[str], weights: Mapping[str, float]) -> float:
    """The largest difference between a team's permits and its share, in any part of that sequence."""
    found = 0.0
    for team in weights:
        share = share_of(team, weights)
        ahead = list(accumulate((float(each == team) - share for each in order), initial=0.0))
        found = max(found, max(ahead) - min(ahead))
    return found


@dataclass(frozen=True)
class Course:
    """How a lane's limit changes at `CHANGES_S`. ``learned``: nothing is configured."""

    name: str
    factor: float
    learned: bool = False

    def __str__(self) -> str:
        return self.name

    def allowed(self, seconds: float) -> float:
        """The calls that the limit allows in these seconds from the start, without a burst."""
        return PER_MINUTE / 60 * (min(seconds, CHANGES_S) + self.factor * max(0.0, seconds - CHANGES_S))

    def allowed_between(self, begin_s: float, end_s: float) -> float:
        """The calls that the limit allows between two times, without a burst."""
        return self.allowed(end_s) - self.allowed(begin_s)


COURSES = (
    Course("steady", 1.0),
    Course("halved", 0.5),
    Course("doubled", 2.0),
    Course("learned-and-halved", 0.5, learned=True),
    Course("learned-and-doubled", 2.0, learned=True),
)


class SharedLane:
    """A deployment in virtual time with the lane `LANE` under a changing limit, and its provider's record."""

    def __init__(
        self,
        redis: Redis,
        course: Course,
        weights: Mapping[str, float] | None = None,
        *,
        slots: int = 200,
        burst_seconds: float = 1.0,
        **limits: float,
    ) -> None:
        self.course, self.limits = course, {"requests_per_minute": float(PER_MINUTE), **limits}
        stated: dict[str, float | None] = {**self.limits, "burst_seconds": burst_seconds}
        if course.learned:
            stated["requests_per_minute"] = None
        self.cluster = Cluster(
            redis,
            lanes={LANE: stated},
            teams=weights or {},
            workers=[FakeWorker("w1", slots)],
            provider=self._answer,
        )
        self.began_ms = self.cluster.now_ms
        self.calls: list[Taken] = []
        self.length_of: dict[str, float] = {}  # seconds that a team's calls take, if not `CALL_S`
        self.usage_of: dict[str, Usage] = {}
        self._hidden = Bucket(PER_MINUTE, DEPTH) if course.learned else None
        self.cluster.at(CHANGES_S, self._change)

    def run_to(self, seconds: float) -> None:
        """Advance virtual time to so many seconds from the start."""
        self.cluster.run_for(seconds - (self.cluster.now_ms - self.began_ms) / 1000)

    def at(self, seconds: float) -> int:
        """The time in milliseconds, so many seconds from the start."""
        return self.began_ms + round(seconds * 1000)

    def submit(self, jobs: int, team: str, **spec: Any) -> RunRef:
        return self.cluster.submit(jobs, team=team, **spec)

    def order(self, begin_ms: int, end_ms: int) -> list[str]:
        """The teams of the permits between two times, in order; permits of refused calls are left out."""
        return [call.team for call in self.calls if begin_ms <= call.at_ms < end_ms]

    def of(self, team: str, since_ms: int = 0) -> list[Taken]:
        return [call for call in self.calls if call.team == team and call.at_ms >= since_ms]

    def _answer(self, attempt: Attempt) -> tuple[float, Outcome]:
        now_ms = self.cluster.now_ms
        if self._hidden is not None and not self._hidden.admit(now_ms, 0):
            return REFUSAL_MS / 1000, RateLimited("too fast")
        self.calls.append(Taken(now_ms, attempt.team))
        usage = self.usage_of.get(attempt.team, Usage(10, 5))
        return self.length_of.get(attempt.team, CALL_S), Success("yes", usage)

    def _change(self) -> None:
        changed = {axis: limit * self.course.factor for axis, limit in self.limits.items()}
        if self._hidden is not None:
            self._hidden.per_minute = changed.pop("requests_per_minute")
        if changed and self.course.factor != 1:
            self.cluster.lanes.limit(LANE, changed)
