"""Whether an output passes its test: all assertions met, or their weighted share up to the threshold."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from fairlane.apps.promptfoo.checking.checks import RUBRIC, SIMILAR
from fairlane.apps.promptfoo.planning.rows import ASSERTIONS, RUBRICS, THRESHOLD
from fairlane.core.figures import figure
from fairlane.evaluators.assertions import NOT, AssertionsError, check
from fairlane.model.job import JobState
from fairlane.model.record import Record

SHOWN = 80
"""Characters of a value that a reason quotes."""

Outcome = Literal["passed", "failed", "error"]


@dataclass(frozen=True, slots=True)
class Part:
    """One assertion's share of a verdict: a score, mostly from 0 to 1, or ``None`` where there is none.

    ``named`` are further metrics: the sum of their weighted scores, and of their weights. ``compared``: it
    compares outputs, so that it has no share in the score; an output that is not chosen scores 0.
    """

    sentence: str
    score: float | None
    weight: float
    metric: str | None
    passed: bool
    named: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    compared: bool = False


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of an output's test. ``error``: there is no output, or an assertion could not be scored."""

    outcome: Outcome
    score: float
    reasons: tuple[str, ...]
    parts: tuple[Part, ...] = ()

    @property
    def metrics(self) -> dict[str, tuple[float, float]]:
        """Each named metric's sum of weighted scores, and of weights."""
        found: dict[str, tuple[float, float]] = {}
        for part in self.parts:
            own = {} if part.metric is None or part.score is None else {part.metric: (part.score, 1.0)}
            for name, (score, weight) in {**part.named, **own}.items():
                total, weights = found.get(name, (0.0, 0.0))
                found[name] = total + score * part.weight, weights + weight * part.weight
        return found

    @property
    def named_scores(self) -> dict[str, float]:
        """The weighted mean score of each named metric; 0 where nothing has a weight."""
        return {name: total / weights if weights else 0.0 for name, (total, weights) in self.metrics.items()}

    @property
    def lost(self) -> tuple[str, ...]:
        """Why this output was not chosen among those of its test."""
        return tuple(part.sentence for part in self.parts if part.compared and not part.passed)


def verdict_of(record: Record, checked: Sequence[Part] = ()) -> Verdict:
    """The verdict on one item. Assertions of weight 0 count for their metrics alone.

    ``checked`` are the assertions that this process checked.
    """
    if record.state is not JobState.SUCCEEDED or record.output is None:
        return Verdict("error", 0.0, (record.error or str(record.state),))
    try:
        parts = (*_plain(record), *_judged(record), *checked)
    except AssertionsError as error:
        return Verdict("error", 0.0, (str(error),))
    return verdict_over(parts, record.row.get(THRESHOLD))


def verdict_over(parts: tuple[Part, ...], threshold: float | None) -> Verdict:
    """The verdict that assertions make: all are met, or their weighted share reaches the threshold."""
    own = [part for part in parts if not part.compared]
    counting = [part for part in own if part.weight]
    total = math.fsum(part.weight for part in counting)
    score = math.fsum(part.weight * (part.score or 0.0) for part in counting) / (total or 1.0)
    score = score if own else 1.0
    unscored = tuple(part.sentence for part in parts if part.score is None and part.weight)
    if unscored:
        return Verdict("error", score, unscored, parts)
    unmet = tuple(part.sentence for part in counting if not part.passed)
    if threshold is not None:
        unmet = (
            ()
            if score >= threshold
            else (f"score {figure(score)} is below the threshold of {figure(threshold)}",)
        )
    return chosen(Verdict("failed" if unmet else "passed", score, unmet, parts))


def chosen(verdict: Verdict) -> Verdict:
    """The verdict, which fails with a score of 0 where the output lost a comparison."""
    lost = verdict.lost
    return (
        replace(verdict, outcome="failed", score=0.0, reasons=(*verdict.reasons, *lost)) if lost else verdict
    )


def _plain(record: Record) -> Iterator[Part]:
    for each in check(record.row.get(ASSERTIONS, ()), record.output or ""):
        value = "" if each.value is None else f" {shown(each.value)}"
        yield Part(f"{each.type}{value}: not met", float(each.met), each.weight, each.metric, each.met)


def _judged(record: Record) -> Iterator[Part]:
    for rubric in record.row.get(RUBRICS, ()):
        name = rubric["evaluator"]
        score = record.scores.get(name)
        text = shown(record.row.get(f"__{name.replace('-', '_')}", ""))
        kind = rubric.get("type", RUBRIC)
        if score is not None and kind == NOT + SIMILAR:
            score = 1.0 - score
        reason = "not met" if score is not None else record.score_errors.get(name, "not judged")
        yield Part(f"{kind} {text}: {reason}", score, rubric["weight"], rubric.get("metric"), score == 1.0)


def shown(value: object) -> str:
    """A value as reasons quote it."""
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"
