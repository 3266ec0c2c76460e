"""Whether an output passes its test: all assertions met, or their weighted share up to the threshold."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from fairlane.apps.promptfoo.asserting import RUBRIC, SIMILAR
from fairlane.apps.promptfoo.rows import ASSERTIONS, RUBRICS, THRESHOLD
from fairlane.evaluators.assertions import NOT, AssertionsError, check
from fairlane.model.job import JobState
from fairlane.model.results import Record

SHOWN = 80
"""Characters of a value that a reason quotes."""

Outcome = Literal["passed", "failed", "error"]


@dataclass(frozen=True, slots=True)
class Part:
    """One assertion's share of a verdict: a score from 0 to 1, or ``None`` where there is none."""

    sentence: str
    score: float | None
    weight: float
    metric: str | None


@dataclass(frozen=True, slots=True)
class Verdict:
    """How an output did. ``error``: there is no output, or something could not be scored."""

    outcome: Outcome
    score: float
    reasons: tuple[str, ...]
    parts: tuple[Part, ...] = ()


def verdict_of(record: Record) -> Verdict:
    """The verdict on one item. Assertions of weight 0 count for their metrics alone."""
    if record.state is not JobState.SUCCEEDED or record.output is None:
        return Verdict("error", 0.0, (record.error or str(record.state),))
    try:
        parts = (*_plain(record), *_judged(record))
    except AssertionsError as error:
        return Verdict("error", 0.0, (str(error),))
    counting = [part for part in parts if part.weight]
    total = math.fsum(part.weight for part in counting)
    score = math.fsum(part.weight * (part.score or 0.0) for part in counting) / total if total else 1.0
    unscored = tuple(part.sentence for part in counting if part.score is None)
    if unscored:
        return Verdict("error", score, unscored, parts)
    threshold = record.row.get(THRESHOLD)
    if threshold is not None:
        short = () if score >= threshold else (f"score {score:.2f} is below the threshold of {threshold:g}",)
        return Verdict("failed" if short else "passed", score, short, parts)
    unmet = tuple(part.sentence for part in counting if part.score != 1.0)
    return Verdict("failed" if unmet else "passed", score, unmet, parts)


def _plain(record: Record) -> Iterator[Part]:
    for each in check(record.row.get(ASSERTIONS, ()), record.output or ""):
        value = "" if each.value is None else f" {_shown(each.value)}"
        yield Part(f"{each.type}{value}: not met", float(each.met), each.weight, each.metric)


def _judged(record: Record) -> Iterator[Part]:
    for rubric in record.row.get(RUBRICS, ()):
        name = rubric["evaluator"]
        score = record.scores.get(name)
        text = _shown(record.row.get(f"__{name.replace('-', '_')}", ""))
        kind = rubric.get("type", RUBRIC)
        if score is not None and kind == NOT + SIMILAR:
            score = 1.0 - score
        reason = "not met" if score is not None else record.score_errors.get(name, "not judged")
        yield Part(f"{kind} {text}: {reason}", score, rubric["weight"], rubric.get("metric"))


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= SHOWN else f"{text[: SHOWN - 1]}…"
