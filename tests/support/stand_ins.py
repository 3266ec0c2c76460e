"""Stand-ins for what surrounds a scheduler: time, the broker, workers, and providers that only pretend."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from fairlane.clock import ManualClock
from fairlane.job import Attempt, Outcome, Success, Usage

CALL_S = 0.5

Provider = Callable[[Attempt], tuple[float, Outcome]]
"""How long a call takes, in seconds, and how it ends."""


def answers(attempt: Attempt) -> tuple[float, Outcome]:
    """A provider that always answers, after half a second."""
    return CALL_S, Success("yes", Usage(10, 5))


class VirtualTime:
    """The manual clock as the time that scripts and scheduler decide by."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock

    def argument(self) -> int:
        return self._clock.now_ms()

    def now_ms(self) -> int:
        return self._clock.now_ms()


class Mailbox:
    """A hand-over that keeps what it is given until it is collected."""

    def __init__(self) -> None:
        self.pending: list[Attempt] = []
        self.sent: list[Attempt] = []
        self.reachable = True

    def connect(self) -> bool:
        return self.reachable

    def publish(self, attempt: Attempt) -> None:
        self.pending.append(attempt)

    def flush(self) -> bool:
        if self.reachable:
            self.sent += self.pending
            self.pending = []
        return not self.pending

    def close(self) -> None:
        pass

    def collect(self) -> list[Attempt]:
        sent, self.sent = self.sent, []
        return sent


@dataclass(slots=True)
class Start:
    """One call that a worker has begun."""

    at_ms: int
    attempt: Attempt
    worker: str
    waited_ms: int


@dataclass(slots=True)
class FakeWorker:
    """Slots, and the lanes it serves: patterns."""

    name: str
    slots: int
    lanes: Sequence[str] = ("*",)
    calls: dict[str, Attempt] = field(default_factory=dict)
    alive: bool = True
    stopping: bool = False

    def serves(self, lane: str) -> bool:
        return any(fnmatchcase(lane, pattern) for pattern in self.lanes)

    @property
    def free(self) -> int:
        return self.slots - len(self.calls) if self.alive and not self.stopping else 0


def excess(starts: Sequence[Start], per_minute: float) -> float:
    """By how many starts the busiest stretch of time exceeds the rate: what the burst must cover."""
    per_ms, least, most = per_minute / 60_000, 0.0, 0.0
    for number, start in enumerate(starts):
        ahead = number - per_ms * start.at_ms
        least = ahead if number == 0 else min(least, ahead)
        most = max(most, ahead - least + 1)
    return most


def scripted(ends: dict[int, Sequence[Outcome]], otherwise: Provider = answers) -> Provider:
    """A provider whose n-th call for a job ends as scripted; later calls and other jobs: ``otherwise``."""
    calls: Counter[int] = Counter()

    def provider(attempt: Attempt) -> tuple[float, Outcome]:
        calls[attempt.job] += 1
        script = ends.get(attempt.job, ())
        if calls[attempt.job] <= len(script):
            return CALL_S, script[calls[attempt.job] - 1]
        return otherwise(attempt)

    return provider
