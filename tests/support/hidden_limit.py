"""A provider with an undisclosed limit, and a lane that must detect it from served and refused calls."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Protocol

from fairlane.model.hints import AxisHint, Hints
from fairlane.model.job import Attempt, Feedback, Signal
from fairlane.model.run import RunRef
from fairlane.model.tokens import Usage
from tests.support.deployment import Deployment

REFUSAL_MS = 20
IDLE_MS = 5000


class Limit(Protocol):
    """A provider's limit. ``admit`` charges the call if the limit admits it."""

    def admit(self, now_ms: int, in_flight: int) -> bool: ...


class Everything:
    """No limit: every call is admitted."""

    def admit(self, now_ms: int, in_flight: int) -> bool:
        return True


@dataclass
class Bucket:
    """A token bucket; it starts full."""

    per_minute: float
    depth: float = 1.0
    level: float = -1.0
    at_ms: int = 0

    def admit(self, now_ms: int, in_flight: int) -> bool:
        if self.level < 0:
            self.level, self.at_ms = self.depth, now_ms
        self.level = min(self.depth, self.level + (now_ms - self.at_ms) * self.per_minute / 60_000)
        self.at_ms = now_ms
        if self.level < 1:
            return False
        self.level -= 1
        return True


@dataclass
class Window:
    """A fixed window: its count restarts each minute of the clock, shifted by ``offset_ms``."""

    per_minute: int
    offset_ms: int = 0
    taken: dict[int, int] = field(default_factory=dict)

    def admit(self, now_ms: int, in_flight: int) -> bool:
        minute = (now_ms - self.offset_ms) // 60_000
        if self.taken.get(minute, 0) >= self.per_minute:
            return False
        self.taken[minute] = self.taken.get(minute, 0) + 1
        return True


@dataclass
class Sliding:
    """A sliding window: at most so many calls in any minute."""

    per_minute: int
    taken: deque[int] = field(default_factory=deque)

    def admit(self, now_ms: int, in_flight: int) -> bool:
        while self.taken and self.taken[0] <= now_ms - 60_000:
            self.taken.popleft()
        if len(self.taken) >= self.per_minute:
            return False
        self.taken.append(now_ms)
        return True


@dataclass
class Places:
    """A limit on calls at once."""

    at_once: int

    def admit(self, now_ms: int, in_flight: int) -> bool:
        return in_flight < self.at_once


@dataclass(frozen=True, slots=True)
class Call:
    """One call that the provider received."""

    at_ms: int
    admitted: bool
    in_flight: int


def no_headers(now_ms: int, admitted: bool) -> dict[str, Any]:
    return {}


class HiddenLimit:
    """Runs a lane against a provider. ``calls``: the calls that arrived; ``news``: what the lane learned."""

    def __init__(
        self,
        d: Deployment,
        ref: RunRef,
        limit: Limit,
        *,
        latency_ms: Callable[[int], int] = lambda in_flight: 300,
        refusal_ms: Callable[[], int] = lambda: REFUSAL_MS,
        is_sent: Callable[[], bool] = lambda: True,
        tokens_of: Callable[[int], int] = lambda call: 10,
        announced: Callable[[int, bool], Mapping[str, Any]] = no_headers,
        lane: str = "sim:fast",
    ) -> None:
        self.d, self.ref, self.limit, self.lane = d, ref, limit, lane
        self.latency_ms, self.tokens_of, self.announced = latency_ms, tokens_of, announced
        self.refusal_ms, self.is_sent = refusal_ms, is_sent
        self.calls: list[Call] = []
        self.news: list[str] = []
        self.inside = 0
        self._flying: list[tuple[int, int, Attempt, bool]] = []
        self._order = count()

    def state(self, name: str, default: float = 0.0) -> float:
        """A numeric field of the lane's state."""
        return float(self.d.lane_state(self.lane).get(name) or default)

    def run(self, for_ms: int, until: Callable[[], bool] = lambda: False) -> None:
        """Advance time by so much, or until the condition is true."""
        end_ms = self.d.now_ms + for_ms
        while self.d.now_ms < end_ms and not until():
            grant = self.d.ask(self.ref, self.lane)
            for permit in grant.permits:
                self._begin(Attempt(self.ref.run, self.ref.team, permit.job, permit.number, self.lane))
            next_ms = min([end_ms, grant.at_ms or end_ms, *([self._flying[0][0]] if self._flying else [])])
            self.d.advance(max(1, next_ms - self.d.now_ms))
            while self._flying and self._flying[0][0] <= self.d.now_ms:
                self._end()

    def admitted(self, since_ms: int = 0) -> int:
        return sum(call.admitted for call in self.calls if call.at_ms >= since_ms)

    def refused(self, since_ms: int = 0) -> int:
        return sum(not call.admitted for call in self.calls if call.at_ms >= since_ms)

    def unreported(self) -> int:
        """Refused calls of which the lane does not know yet."""
        return sum(not admitted for *_, admitted in self._flying)

    def _begin(self, attempt: Attempt) -> None:
        now_ms = self.d.now_ms
        assert self.d.claim(attempt) is not None
        if not self.is_sent():
            assert self.d.report(attempt, Feedback("unsent"), done=False) is not None
            return
        admitted = self.limit.admit(now_ms, self.inside)
        self.inside += admitted
        self.calls.append(Call(now_ms, admitted, self.inside))
        end_ms = now_ms + (self.latency_ms(self.inside) if admitted else self.refusal_ms())
        heapq.heappush(self._flying, (end_ms, next(self._order), attempt, admitted))

    def _end(self) -> None:
        _, number, attempt, admitted = heapq.heappop(self._flying)
        self.inside -= admitted
        announced = dict(self.announced(self.d.now_ms, admitted))
        usage = Usage(0, self.tokens_of(number)) if admitted else Usage()
        signal: Signal = "ok" if admitted else "limited"
        feedback = Feedback(signal, usage, announced.get("retry_after_ms"), "", announced.get("hints"))
        reported = self.d.report(attempt, feedback, done=admitted)
        assert reported is not None
        self.news.append(reported.news)


def hints(**axes: Any) -> Hints:
    """Hints as an answer's headers give them: ``hints(requests=(600, 20, 100), exhausted="tokens")``."""
    exhausted = axes.pop("exhausted", None)
    return Hints({name: AxisHint(*announced) for name, announced in axes.items()}, exhausted)  # type: ignore[misc]
