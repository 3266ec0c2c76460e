"""Stand-ins for what surrounds a scheduler: time, the broker, workers, and providers that only pretend."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Protocol, TypeAlias

from fairlane.clock import ManualClock
from fairlane.job import Attempt, Outcome

Answering: TypeAlias = Callable[[Attempt], tuple[float, Outcome]]
"""The simplest provider: how long a call takes, in seconds, and how it ends."""


class Serving(Protocol):
    """A provider to which a call is a row of events."""

    def serve(self, attempt: Attempt, finish: Callable[[Outcome], None]) -> None:
        """A worker begins this call; ``finish`` is called at the moment at which it has its end."""
        ...


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
class PretendedWorker:
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

    def busy_by_lane(self) -> Counter[str]:
        """Calls that run on it, lane by lane; none once it is dead."""
        return Counter(call.lane for call in self.calls.values()) if self.alive else Counter()
