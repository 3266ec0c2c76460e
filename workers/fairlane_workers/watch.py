"""Who hears of each call and each job's end: metrics and traces, or nobody."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from fairlane.job import Attempt, JobState, Outcome
from fairlane_workers.material import Work


@dataclass(frozen=True, slots=True)
class Called:
    """A call is over. ``outcome`` is ``None`` where it was broken off; it may have failed before it was sent.

    ``wire_ms``: from its permit to its start; ``took_ms``: from there to its end, which is now.
    """

    attempt: Attempt
    work: Work
    outcome: Outcome | None
    wire_ms: int
    took_ms: int


class Watch(Protocol):
    """Told on the event loop, once a call and once a job: must be quick, and must not raise."""

    def called(self, call: Called) -> None: ...

    def recorded(self, state: JobState) -> None:
        """A job has its terminal record, and the report was in time."""
        ...


class Watches:
    """Several, or none."""

    def __init__(self, watches: Sequence[Watch] = ()) -> None:
        self._watches = tuple(watches)

    def called(self, call: Called) -> None:
        for each in self._watches:
            each.called(call)

    def recorded(self, state: JobState) -> None:
        for each in self._watches:
            each.recorded(state)
