"""A player in a world: use beside the oracle and the learner, refusals, failed and lost jobs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from fairlane.model.hints import AXES
from tests.benchmarks.zoo.classes import classes_of
from tests.benchmarks.zoo.learner import learn
from tests.benchmarks.zoo.playing import Course
from tests.benchmarks.zoo.provider import ADMITTED, FAULTY

REFUSED = frozenset({*AXES, "day", "concurrency"})
"""Verdicts that mean "refused by a limit"; failures in an outage do not count as such."""


@dataclass(frozen=True, slots=True)
class Figures:
    """One player in one world. Shares are 0 to 1.

    ``used``: the player's successes within the horizon, divided by the oracle's, from a cold start.
    ``used_late``: the same for the second half of the horizon. ``refused``: the share of its calls
    that a limit refused. ``in_outage``: the number of its calls that failed in an outage.
    ``learner_used``, ``learner_refused``: the same shares of a learner, who is not told the limit.
    """

    seed: int
    player: str
    traits: tuple[str, ...]
    classes: tuple[str, ...]
    configured: bool
    horizon_s: float
    best: int
    calls: int
    used: float
    used_late: float
    learner_used: float
    learner_refused: float
    refused: float
    refused_calls: int
    in_outage: int
    failed: int
    unfinished: int
    lost: int

    @property
    def of_learner(self) -> float:
        """The player's successes, divided by the learner's; 1 if it has more."""
        return min(1.0, self.used / self.learner_used) if self.learner_used else 1.0


def measure(course: Course, player: str) -> Figures:
    """The figures of a course."""
    world, best = course.world, course.best
    within = [arrival for arrival in course.arrivals if arrival.at_ms <= world.horizon_ms]
    verdicts = Counter(arrival.verdict for arrival in within)
    half_ms = world.horizon_ms / 2
    whole = len(best.times_ms)
    late = whole - best.by(half_ms)
    ours_late = sum(arrival.verdict == ADMITTED and arrival.at_ms > half_ms for arrival in within)
    learned = learn(world)
    refused = sum(count for verdict, count in verdicts.items() if verdict in REFUSED)
    return Figures(
        seed=world.seed,
        player=player,
        traits=world.traits,
        classes=classes_of(world, whole),
        configured=world.configured is not None,
        horizon_s=world.horizon_s,
        best=whole,
        calls=len(within),
        used=verdicts[ADMITTED] / whole if whole else 1.0,
        used_late=min(1.0, ours_late / late) if late else 1.0,
        learner_used=len(learned.schedule.times_ms) / whole if whole else 1.0,
        learner_refused=learned.refused / learned.calls if learned.calls else 0.0,
        refused=refused / len(within) if within else 0.0,
        refused_calls=refused,
        in_outage=len(within) - refused - verdicts[ADMITTED] - verdicts[FAULTY],
        failed=course.failed,
        unfinished=course.unfinished,
        lost=course.lost,
    )


def quantile(values: Sequence[float], share: float) -> float:
    """The quantile ``share`` of the values, by nearest rank; 0 if there are no values."""
    if not values:
        return 0.0
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, round(share * (len(ordered) - 1))))]
