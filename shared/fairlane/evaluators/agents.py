"""Reads the structured answers of agents."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from fairlane.model.evaluators import Criterion

_FENCE = "```"


class _Entry(BaseModel):
    """One evaluation in an answer: ``{"criterion_id", "score", "argument"}``."""

    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)

    criterion_id: str
    score: float
    argument: str = ""


class _Opinion(BaseModel):
    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)

    score: float
    argument: str = ""


@dataclass(frozen=True, slots=True)
class Opinion:
    """An agent's score by one criterion, and why."""

    score: float
    argument: str = ""


@dataclass(frozen=True, slots=True)
class BatchAnswer:
    """A parsed batch answer: opinions by criterion, and malformed entries as the model wrote them.

    A criterion without an opinion gets a call of its own.
    """

    opinions: dict[str, Opinion] = field(default_factory=dict)
    malformed: tuple[str, ...] = ()


def read_opinion(answer: str, criterion: Criterion) -> Opinion:
    """Read the answer for one criterion. Raises ``ValueError`` with the flaw."""
    try:
        answered = _Opinion.model_validate(json_answer(answer))
    except ValidationError as error:
        raise ValueError(_first(error)) from None
    return _within(answered.score, answered.argument, criterion)


def flaw(answer: str, criterion: Criterion) -> str | None:
    """The flaw of an answer for one criterion; ``None`` if it is valid."""
    try:
        read_opinion(answer, criterion)
    except ValueError as error:
        return str(error) or "it is no JSON"
    return None


def read_batch(answer: str, criteria: Sequence[Criterion]) -> BatchAnswer:
    """Read a batch answer: its valid entries count, whatever else it has. Nothing raises."""
    try:
        document = json_answer(answer)
        entries = document.get("evaluations") if isinstance(document, dict) else document
        if not isinstance(entries, list):
            raise ValueError("there is no list of evaluations")  # noqa: TRY301, TRY004
    except ValueError:
        return BatchAnswer(malformed=(answer,))
    known = {each.id: each for each in criteria}
    opinions: dict[str, Opinion] = {}
    malformed: list[str] = []
    for entry in entries:
        try:
            answered = _Entry.model_validate(entry)
            opinions.setdefault(
                answered.criterion_id,
                _within(answered.score, answered.argument, known[answered.criterion_id]),
            )
        except (ValueError, KeyError):
            malformed.append(json.dumps(entry, ensure_ascii=False))
    return BatchAnswer(opinions, tuple(malformed))


def _within(score: float, argument: str, criterion: Criterion) -> Opinion:
    if not (math.isfinite(score) and criterion.minimum <= score <= criterion.maximum):
        raise ValueError(f"score {score:g} is not within {criterion.minimum:g} and {criterion.maximum:g}")
    return Opinion(score, argument)


def json_answer(answer: str) -> Any:
    """The JSON of an answer, perhaps in a fenced block or as a tool's arguments. Raises ``ValueError``."""
    text = answer.rpartition("</think>")[2].strip()
    if text.startswith(_FENCE):
        text = text.strip("`").removeprefix("json").strip()
    try:
        document = json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error
    match document:
        case {"tool_calls": [{"arguments": dict(arguments)}, *_]}:
            return arguments
    return document


def _first(error: ValidationError) -> str:
    detail = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in detail["loc"])
    return f"{where}: {detail['msg']}" if where else str(detail["msg"])
