"""Stored results of jobs, and the record that an item's results become."""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic_core import from_json

from fairlane.model.evaluators import Judge
from fairlane.model.job import JobState, Usage
from fairlane.model.run import Cell, RunSpec, cell_of
from fairlane.model.steps import Step

PACK_CHARS = 400
"""Shorter results are stored plain: zlib would save little of them."""

_STATES = {str(state): state for state in JobState}
_NO_USAGE = Usage()
_ONLY_CELL = Cell(row=0, prompt=0, model=0, repetition=0)  # but for its row, which a record has already


@dataclass(frozen=True, slots=True)
class TaskResult:
    """The result of a task job, with the scores that need no call."""

    state: JobState
    output: str | None = None
    error: str | None = None
    usage: Usage = field(default_factory=Usage)
    attempts: int = 0
    latency_ms: int | None = None
    model: str | None = None
    scores: Mapping[str, float | None] = field(default_factory=dict)
    score_errors: Mapping[str, str] = field(default_factory=dict)
    cached: bool = False
    finish_reason: str | None = None
    left_out: tuple[str, ...] = ()

    def to_json(self) -> str:
        """The stored form: JSON with short keys, without what is ``None``."""
        return _compact(
            {
                "s": self.state,
                "o": self.output,
                "e": self.error,
                "u": _usage_list(self.usage),
                "a": self.attempts,
                "l": self.latency_ms,
                "m": self.model,
                "sc": dict(self.scores) or None,
                "se": dict(self.score_errors) or None,
                "c": 1 if self.cached else None,
                "f": self.finish_reason,
                "x": self.left_out or None,
            }
        )

    @classmethod
    def from_json(cls, text: str | bytes) -> TaskResult:
        """Parse the stored form, packed or plain; unknown keys are ignored."""
        data = _parsed(text)
        return cls(
            state=_state(data),
            output=data.get("o"),
            error=data.get("e"),
            usage=_usage(data.get("u")),
            attempts=data.get("a", 0),
            latency_ms=data.get("l"),
            model=data.get("m"),
            scores=data.get("sc", {}),
            score_errors=data.get("se", {}),
            cached=bool(data.get("c")),
            finish_reason=data.get("f"),
            left_out=tuple(data.get("x", ())),
        )


@dataclass(frozen=True, slots=True)
class JudgeResult:
    """The result of an evaluation job. ``answer`` is the reason for its score, or the judge's own text."""

    state: JobState
    score: float | None = None
    answer: str | None = None
    error: str | None = None
    usage: Usage = field(default_factory=Usage)
    attempts: int = 0
    cached: bool = False
    left_out: tuple[str, ...] = ()

    def to_json(self) -> str:
        """The stored form: JSON with short keys, without what is ``None``."""
        return _compact(
            {
                "s": self.state,
                "v": self.score,
                "o": self.answer,
                "e": self.error,
                "u": _usage_list(self.usage),
                "a": self.attempts,
                "c": 1 if self.cached else None,
                "x": self.left_out or None,
            }
        )

    @classmethod
    def from_json(cls, text: str | bytes) -> JudgeResult:
        """Parse the stored form, packed or plain; unknown keys are ignored."""
        data = _parsed(text)
        return cls(
            state=_state(data),
            score=data.get("v"),
            answer=data.get("o"),
            error=data.get("e"),
            usage=_usage(data.get("u")),
            attempts=data.get("a", 0),
            cached=bool(data.get("c")),
            left_out=tuple(data.get("x", ())),
        )


@dataclass(frozen=True, slots=True)
class Record:
    """The one terminal record of an item: its task's outcome and every evaluator's score.

    ``scores`` maps evaluator names to scores; ``None`` if there is none, then ``score_errors`` says why.
    ``output`` is ``None`` unless the task succeeded. ``eval_usage`` has the tokens of each evaluation's call,
    ``arguments`` the reasons that agents and judges gave for their scores, by the same names. ``notes`` says
    which parameters a call went without, since its model does not support them: by the same names, and under
    ``task``.

    ``attempts``: how many of its `RetryPolicy.max_attempts` the task has used, its last call included.
    Calls that cost none (429s, overloads, outages) are not in it; 0: no call was made, or the cache answered.
    """

    item: int
    row: Mapping[str, Any]
    model: str
    prompt: int
    repetition: int
    state: JobState
    output: str | None
    scores: Mapping[str, float | None]
    score_errors: Mapping[str, str]
    usage: Usage
    attempts: int
    error: str | None
    latency_ms: int | None = None
    cached: bool = False
    eval_usage: Mapping[str, Usage] = field(default_factory=dict)
    finish_reason: str | None = None
    arguments: Mapping[str, str] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)


def assemble(
    spec: RunSpec,
    item: int,
    row: Mapping[str, Any],
    stored: Sequence[str | bytes | None],
    missing: JobState = JobState.CANCELLED,
) -> Record:
    """The record of an item from its stored results, task first. ``missing``: the state of the rest."""
    # Not by `TaskResult` and `Cell`: of a million records, a third of the time would go into making those.
    task: dict[str, Any] = _parsed(stored[0]) if stored[0] else {"s": missing}
    cell = cell_of(spec, item) if spec.cells_per_row > 1 else _ONLY_CELL
    scores: dict[str, float | None] = task.get("sc") or {}
    errors: dict[str, str] = task.get("se") or {}
    used: dict[str, Usage] = {}
    arguments: dict[str, str] = {}
    left_out = task.get("x")
    notes = {"task": note_of(left_out)} if left_out else {}
    for step, text in zip(spec.evals, stored[1:], strict=True):
        result = JudgeResult.from_json(text) if text else JudgeResult(missing, error=str(missing))
        if result.usage.total is not None and not result.cached:
            used[step.name] = result.usage
        if result.left_out:
            notes[step.name] = note_of(result.left_out)
        if step.batch:
            continue
        if reason := reason_of(step, result):
            arguments[step.name] = reason
        scores[step.name] = result.score
        if result.error:
            errors[step.name] = result.error
    return Record(
        item=item,
        row=row,
        model=task.get("m") or (spec.models[cell.model] if spec.models else ""),
        prompt=cell.prompt,
        repetition=cell.repetition,
        state=_state(task),
        output=task.get("o"),
        scores=scores,
        score_errors=errors,
        usage=_usage(task.get("u")),
        attempts=task.get("a", 0),
        error=task.get("e"),
        latency_ms=task.get("l"),
        cached=bool(task.get("c")),
        eval_usage=used,
        arguments=arguments,
        notes=notes,
        finish_reason=task.get("f"),
    )


def reason_of(step: Step, result: JudgeResult) -> str | None:
    """Why an agent or a judge scored as it did; ``None`` for a choice alone, and for other evaluators."""
    if not isinstance(step.evaluator, Judge):
        return result.answer if step.criterion is not None else None
    bare = {choice.casefold() for choice in step.evaluator.choices}
    said = result.answer or ""
    return None if said.strip(" \n.!*\"'`").casefold() in bare else said or None


def note_of(left_out: Sequence[str]) -> str:
    """What a record says of parameters that a call went without."""
    return f"sent without {', '.join(left_out)}: the model does not support it"


def read_score(answer: str) -> float:
    """The score in a function's answer: a finite number or a truth value, as JSON. Raises ``ValueError``."""
    value = json.loads(answer)
    if not isinstance(value, bool | int | float) or not math.isfinite(value):
        raise ValueError(f"a score is a finite number or a truth value, the function returned {answer[:200]}")
    return float(value)


def packed(text: str) -> str | bytes:
    """A result in its stored form: compressed from `PACK_CHARS` characters on."""
    if len(text) < PACK_CHARS:
        return text
    return b"z" + zlib.compress(text.encode(errors="replace"), 1)


def unpacked(stored: str | bytes) -> str | bytes:
    """The inverse of `packed`."""
    return zlib.decompress(stored[1:]) if isinstance(stored, bytes) and stored[:1] == b"z" else stored


def _compact(data: dict[str, Any]) -> str:
    return json.dumps({key: value for key, value in data.items() if value is not None}, separators=(",", ":"))


def _usage_list(usage: Usage) -> list[int | None] | None:
    if usage.total is None:
        return None
    cached = [] if usage.cached_tokens is None else [usage.cached_tokens]
    return [usage.input_tokens, usage.output_tokens, *cached]


def _state(data: Mapping[str, Any]) -> JobState:
    return _STATES.get(data["s"]) or JobState(data["s"])


def _usage(stored: list[int | None] | None) -> Usage:
    return Usage(*stored[:3]) if stored else _NO_USAGE  # a newer version may store more


def _parsed(stored: str | bytes) -> dict[str, Any]:
    """The JSON of a result. pydantic's parser is three times as fast, and reads no lone surrogate."""
    text = unpacked(stored)
    data: dict[str, Any]
    try:
        data = from_json(text)
    except ValueError:
        data = json.loads(text)
    return data


SKIPPED_JUDGE = JudgeResult(JobState.SKIPPED, error="the task has no output to judge").to_json()
