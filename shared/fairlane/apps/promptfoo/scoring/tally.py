"""Counts passed outputs for each prompt and provider, and sums named metrics."""

import dataclasses
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from fairlane.apps.promptfoo.scoring.derived import COUNT, Derived
from fairlane.apps.promptfoo.scoring.verdicts import Outcome, Verdict
from fairlane.model.record import Record

PASS, SCORE = "pass", "score"
"""Scores that a record gets beside its evaluators': 1 or 0, and the weighted share."""

PROMPT, PROVIDER = "__prompt", "__provider"
"""Fields that a record's row gets: the labels that the configuration has."""

MOST_FAILURES = 1000
"""Failures whose reasons are kept."""


@dataclass(frozen=True, slots=True)
class Cell:
    """A prompt and a provider, by their labels."""

    prompt: str
    provider: str


@dataclass(slots=True)
class Standing:
    """The outcomes of one cell."""

    outcomes: Counter[Outcome] = field(default_factory=Counter)
    score: float = 0.0

    @property
    def total(self) -> int:
        """Outputs that were counted."""
        return self.outcomes.total()

    @property
    def pass_rate(self) -> float:
        """From 0 to 1; 0 where there was nothing."""
        return self.outcomes["passed"] / self.total if self.total else 0.0

    @property
    def mean_score(self) -> float:
        """Mean score; 0 where there was nothing."""
        return self.score / self.total if self.total else 0.0


@dataclass(frozen=True, slots=True)
class Failure:
    """An output that did not pass, and why."""

    cell: Cell
    item: int
    description: str
    reasons: tuple[str, ...]


@dataclass(slots=True)
class Tally:
    """Counts verdicts as they come."""

    standings: dict[Cell, Standing] = field(default_factory=dict)
    metrics: dict[tuple[str, Cell], tuple[float, float]] = field(
        default_factory=lambda: defaultdict(lambda: (0.0, 0.0))
    )
    failures: list[Failure] = field(default_factory=list)

    def add(self, cell: Cell, record: Record, verdict: Verdict) -> None:
        """Count one output's verdict."""
        standing = self.standings.setdefault(cell, Standing())
        standing.outcomes[verdict.outcome] += 1
        standing.score += verdict.score
        for metric, (score, weight) in verdict.metrics.items():
            known, weights = self.metrics[metric, cell]
            self.metrics[metric, cell] = known + score, weights + weight
        if verdict.outcome != "passed" and len(self.failures) < MOST_FAILURES:
            description = str(record.row.get("__description", ""))
            self.failures.append(Failure(cell, record.item, description, verdict.reasons))

    def derive(self, formulas: Sequence[Derived]) -> None:
        """Add the derived metrics of each cell; leaves out a formula without a value there."""
        for cell, standing in self.standings.items():
            known = {metric: total for (metric, where), (total, _) in self.metrics.items() if where == cell}
            known[COUNT] = float(standing.total)
            for each in formulas:
                value = each.value(known)
                if value is not None:
                    known[each.name] = value
                    self.metrics[each.name, cell] = (value, 1.0)

    @property
    def total(self) -> int:
        """Outputs that were counted."""
        return sum(each.total for each in self.standings.values())

    @property
    def unpassed(self) -> int:
        """Outputs that did not pass, including those that could not be judged."""
        return sum(each.total - each.outcomes["passed"] for each in self.standings.values())


def with_verdict(
    record: Record, cell: Cell, verdict: Verdict, named: Mapping[str, float] | None = None
) -> Record:
    """The record with its verdict among its scores; ``score_errors["pass"]`` has the reasons against it.

    ``named`` are scores that hooks have added.
    """
    passed = None if verdict.outcome == "error" else float(verdict.outcome == "passed")
    why = {PASS: "; ".join(verdict.reasons)} if verdict.reasons else {}
    return dataclasses.replace(
        record,
        row={**record.row, PROMPT: cell.prompt, PROVIDER: cell.provider},
        scores={**record.scores, **(named or {}), PASS: passed, SCORE: verdict.score},
        score_errors={**record.score_errors, **why},
    )
