"""Simulated surroundings of a scheduler: time, broker, workers, and the interface of providers."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Protocol, TypeAlias

from fairlane.core.clock import ManualClock
from fairlane.model.job import Attempt
from fairlane.model.outcome import Outcome

AnswerFunction: TypeAlias = Callable[[Attempt], tuple[float, Outcome]]
"""The simplest provider: returns how many seconds a call takes, and its outcome."""


class EventProvider(Protocol):
    """A provider that handles a call as a series of events."""

    def serve(self, attempt: Attempt, finish: Callable[[Outcome], None]) -> None:
        """A worker starts this call; the provider calls ``finish`` when the worker has the outcome."""
        ...


class VirtualTime:
    """A manual clock as the server time of scripts and scheduler."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock

    def argument(self) -> int:
        """The time that scripts take as ``now_ms``."""
        return self._clock.now_ms()

    def now_ms(self) -> int:
        """Milliseconds of the manual clock."""
        return self._clock.now_ms()


class CollectingPublisher:
    """A handover that keeps attempts until the workers collect them."""

    def __init__(self) -> None:
        self.pending: list[Attempt] = []
        self.sent: list[Attempt] = []
        self.reachable = True

    def connect(self) -> bool:
        """See `Handover`."""
        return self.reachable

    def publish(self, attempt: Attempt, together: int = 1) -> None:
        """See `Handover`."""
        self.pending.append(attempt)

    def flush(self) -> bool:
        """See `Handover`."""
        if self.reachable:
            self.sent += self.pending
            self.pending = []
        return not self.pending

    def close(self) -> None:
        """Do nothing: there is no connection."""

    def collect(self) -> list[Attempt]:
        """The attempts sent since the last call."""
        sent, self.sent = self.sent, []
        return sent


@dataclass(slots=True)
class Start:
    """One call that a worker has started; ``waited_ms`` since it was published."""

    at_ms: int
    attempt: Attempt
    worker: str
    waited_ms: int


@dataclass(slots=True)
class SimulatedWorker:
    """A worker with slots, and patterns of the lanes that it serves."""

    name: str
    slots: int
    lanes: Sequence[str] = ("*",)
    calls: dict[str, Attempt] = field(default_factory=dict)
    alive: bool = True
    stopping: bool = False

    def serves(self, lane: str) -> bool:
        """Whether it serves a lane."""
        return any(fnmatchcase(lane, pattern) for pattern in self.lanes)

    @property
    def free(self) -> int:
        """Its free slots; 0 once it stops."""
        return self.slots - len(self.calls) if self.alive and not self.stopping else 0

    def busy_by_lane(self) -> Counter[str]:
        """Its calls by lane; none once it is dead."""
        return Counter(call.lane for call in self.calls.values()) if self.alive else Counter()
