"""Fakes of what a scheduler uses, and fake providers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from fairlane.lab.rehearsal.virtual.simulated import AnswerFunction as Provider
from fairlane.lab.rehearsal.virtual.simulated import CollectingPublisher, Start, VirtualTime
from fairlane.lab.rehearsal.virtual.simulated import SimulatedWorker as FakeWorker
from fairlane.model.job import Attempt
from fairlane.model.outcome import Outcome, Success
from fairlane.model.tokens import Usage

__all__ = [
    "CALL_S",
    "CollectingPublisher",
    "FakeWorker",
    "Provider",
    "Start",
    "VirtualTime",
    "answers",
    "excess",
    "scripted",
]

CALL_S = 0.5


def answers(attempt: Attempt) -> tuple[float, Outcome]:
    """A provider whose calls all succeed after half a second."""
    return CALL_S, Success("yes", Usage(10, 5))


def excess(starts: Sequence[Start], per_minute: float) -> float:
    """The most starts, in any interval, above what the rate allows: the burst that they needed."""
    per_ms, least, most = per_minute / 60_000, 0.0, 0.0
    for number, start in enumerate(starts):
        ahead = number - per_ms * start.at_ms
        least = ahead if number == 0 else min(least, ahead)
        most = max(most, ahead - least + 1)
    return most


def scripted(ends: dict[int, Sequence[Outcome]], otherwise: Provider = answers) -> Provider:
    """A provider whose n-th call of a job has the n-th scripted outcome; all others have ``otherwise``."""
    calls: Counter[int] = Counter()

    def provider(attempt: Attempt) -> tuple[float, Outcome]:
        calls[attempt.job] += 1
        script = ends.get(attempt.job, ())
        if calls[attempt.job] <= len(script):
            return CALL_S, script[calls[attempt.job] - 1]
        return otherwise(attempt)

    return provider
