"""What is stored of a job that is over, and how an item's results become its record."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fairlane.job import JobState, Usage
from fairlane.run import Record, RunSpec, cell_of


@dataclass(frozen=True, slots=True)
class TaskResult:
    """A task job's end, with the scores that were computed beside it."""

    state: JobState
    output: str | None = None
    error: str | None = None
    usage: Usage = field(default_factory=Usage)
    attempts: int = 0
    latency_ms: int | None = None
    model: str | None = None
    scores: Mapping[str, float | None] = field(default_factory=dict)
    score_errors: Mapping[str, str] = field(default_factory=dict)

    def to_json(self) -> str:
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
            }
        )

    @classmethod
    def from_json(cls, text: str | bytes) -> TaskResult:
        data: dict[str, Any] = json.loads(text)
        return cls(
            state=JobState(data["s"]),
            output=data.get("o"),
            error=data.get("e"),
            usage=_usage(data.get("u")),
            attempts=data.get("a", 0),
            latency_ms=data.get("l"),
            model=data.get("m"),
            scores=data.get("sc", {}),
            score_errors=data.get("se", {}),
        )


@dataclass(frozen=True, slots=True)
class JudgeResult:
    """A judge job's end. ``answer`` is what the judge said."""

    state: JobState
    score: float | None = None
    answer: str | None = None
    error: str | None = None
    usage: Usage = field(default_factory=Usage)
    attempts: int = 0

    def to_json(self) -> str:
        return _compact(
            {
                "s": self.state,
                "v": self.score,
                "o": self.answer,
                "e": self.error,
                "u": _usage_list(self.usage),
                "a": self.attempts,
            }
        )

    @classmethod
    def from_json(cls, text: str | bytes) -> JudgeResult:
        data: dict[str, Any] = json.loads(text)
        return cls(
            state=JobState(data["s"]),
            score=data.get("v"),
            answer=data.get("o"),
            error=data.get("e"),
            usage=_usage(data.get("u")),
            attempts=data.get("a", 0),
        )


def assemble(
    spec: RunSpec, item: int, row: Mapping[str, Any], stored: Sequence[str | bytes | None]
) -> Record:
    """The record of an item from its stored results, task first. What was never recorded was cancelled."""
    cell = cell_of(spec, item)
    task = TaskResult.from_json(stored[0]) if stored[0] else TaskResult(JobState.CANCELLED)
    scores, errors = dict(task.scores), dict(task.score_errors)
    for judge, text in zip(spec.judges, stored[1:], strict=True):
        result = JudgeResult.from_json(text) if text else JudgeResult(JobState.CANCELLED, error="cancelled")
        scores[judge.name] = result.score
        if result.error:
            errors[judge.name] = result.error
    return Record(
        item=item,
        row=row,
        model=task.model or spec.models[cell.model],
        prompt=cell.prompt,
        repetition=cell.repetition,
        state=task.state,
        output=task.output,
        scores=scores,
        score_errors=errors,
        usage=task.usage,
        attempts=task.attempts,
        error=task.error,
        latency_ms=task.latency_ms,
    )


def _compact(data: dict[str, Any]) -> str:
    return json.dumps({key: value for key, value in data.items() if value is not None}, separators=(",", ":"))


def _usage_list(usage: Usage) -> list[int | None] | None:
    if usage.total is None:
        return None
    cached = [] if usage.cached_tokens is None else [usage.cached_tokens]
    return [usage.input_tokens, usage.output_tokens, *cached]


def _usage(stored: list[int | None] | None) -> Usage:
    return Usage(*stored) if stored else Usage()


SKIPPED_JUDGE = JudgeResult(JobState.SKIPPED, error="the task has no output to judge").to_json()
