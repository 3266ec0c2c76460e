"""Stand-ins for what surrounds a scheduler, and providers that only pretend."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from fairlane.job import Attempt, Outcome, Success, Usage
from fairlane_scheduler.rehearsal.stand_ins import Answering as Provider
from fairlane_scheduler.rehearsal.stand_ins import Mailbox, Start, VirtualTime
from fairlane_scheduler.rehearsal.stand_ins import PretendedWorker as FakeWorker

__all__ = [
    "CALL_S",
    "FakeWorker",
    "Mailbox",
    "Provider",
    "Start",
    "VirtualTime",
    "answers",
    "excess",
    "scripted",
]

CALL_S = 0.5


def answers(attempt: Attempt) -> tuple[float, Outcome]:
    """A provider that always answers, after half a second."""
    return CALL_S, Success("yes", Usage(10, 5))


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
