"""Finds a shorter schedule that still breaks the same promise."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tests.faults.checker import Violation
from tests.faults.schedule import Schedule

ROUNDS = 2
"""How often a schedule is played that may show a violation: faults and processes are never twice the same."""


def shrink(
    schedule: Schedule,
    broken: Iterable[str],
    violations_of: Callable[[Schedule], list[Violation]],
    *,
    most_plays: int = 20,
) -> tuple[Schedule, int]:
    """The schedule without the faults that one of the ``broken`` checks does not need, and the plays it took.

    Drops one fault after the other, and keeps a fault without which no play of `ROUNDS` shows the violation.
    """
    wanted, plays = frozenset(broken), 0

    def shows(candidate: Schedule) -> bool:
        nonlocal plays
        for _ in range(ROUNDS):
            if plays >= most_plays:
                return False
            plays += 1
            if wanted & {violation.check for violation in violations_of(candidate)}:
                return True
        return False

    for fault in schedule.faults:
        candidate = schedule.without(fault)
        if shows(candidate):
            schedule = candidate
    return schedule, plays
