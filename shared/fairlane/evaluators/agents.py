"""Reads the structured answers of agents."""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, ValidationError

from fairlane.core.figures import plain_number
from fairlane.core.json_answers import json_in
from fairlane.core.section import first_flaw
from fairlane.model.evaluators import Criterion


def _number(value: object) -> object:
    """Reject what Pydantic would read as a number: truth values, and texts like ``"1_0"``."""
    if isinstance(value, bool):
        raise ValueError("a number was expected, got a truth value")  # noqa: TRY004  pydantic reports it
    return plain_number(value) if isinstance(value, str) else value


def _words(value: object) -> object:
    return "" if value is None else value


class _Opinion(BaseModel):
    """The JSON of an answer for one criterion: ``{"score", "argument"}``. The score may be a text of a
    number.
    """

    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)

    score: Annotated[float, BeforeValidator(_number)]
    argument: Annotated[str, BeforeValidator(_words)] = ""


class _Entry(_Opinion):
    """One evaluation in a batch answer: it names its criterion."""

    criterion_id: str


@dataclass(frozen=True, slots=True)
class Opinion:
    """An agent's score by one criterion, and why."""

    score: float
    argument: str = ""


@dataclass(frozen=True, slots=True)
class BatchAnswer:
    """A parsed batch answer: opinions by criterion, and malformed entries as the model wrote them.

    Fairlane makes a further call for each criterion without an opinion.
    """

    opinions: dict[str, Opinion] = field(default_factory=dict)
    malformed: tuple[str, ...] = ()


def read_opinion(answer: str, criterion: Criterion) -> Opinion:
    """Read the answer for one criterion. Raises ``ValueError`` with the flaw."""
    try:
        answered = _Opinion.model_validate(json_answer(answer))
    except ValidationError as error:
        where, _, problem = first_flaw(error)
        raise ValueError(f"{where}: {problem}" if where else problem) from None
    return _within(answered.score, answered.argument, criterion)


def flaw(answer: str, criterion: Criterion) -> str | None:
    """The flaw of an answer for one criterion; ``None`` if it is valid."""
    try:
        read_opinion(answer, criterion)
    except ValueError as error:
        return str(error)
    return None


def read_batch(answer: str, criteria: Sequence[Criterion]) -> BatchAnswer:
    """Read the valid entries of a batch answer, whatever else it has. Never raises.

    Entries that score one criterion differently are malformed, all of them.
    """
    try:
        document = json_answer(answer)
        entries = document.get("evaluations") if isinstance(document, dict) else document
        if not isinstance(entries, list):
            raise ValueError("there is no list of evaluations")  # noqa: TRY301, TRY004
    except ValueError:
        return BatchAnswer(malformed=(answer,))
    known = {each.id: each for each in criteria}
    read: list[tuple[Any, str, Opinion | None]] = []
    scores: dict[str, set[float]] = {}
    for entry in entries:
        try:
            answered = _Entry.model_validate(entry)
            name = answered.criterion_id
            opinion = _within(answered.score, answered.argument, known[name])
            scores.setdefault(name, set()).add(opinion.score)
            read.append((entry, name, opinion))
        except (ValueError, KeyError):
            read.append((entry, "", None))
    opinions: dict[str, Opinion] = {}
    malformed: list[str] = []
    for entry, name, each in read:
        if each is None or len(scores[name]) > 1:
            malformed.append(json.dumps(entry, ensure_ascii=False))
        else:
            opinions.setdefault(name, each)
    return BatchAnswer(opinions, tuple(malformed))


def _within(score: float, argument: str, criterion: Criterion) -> Opinion:
    if not (math.isfinite(score) and criterion.minimum <= score <= criterion.maximum):
        raise ValueError(f"score {score:g} is not within {criterion.minimum:g} and {criterion.maximum:g}")
    return Opinion(score, argument)


def json_answer(answer: str) -> Any:
    """The JSON of an answer, perhaps between prose or as a tool's arguments. Raises `JsonProblem`."""
    return tool_arguments(json_in(answer))


def tool_arguments(document: Any) -> Any:
    """The arguments of the first tool that an output calls; any other document as it is."""
    match document:
        case {"tool_calls": [{"arguments": dict(arguments)}, *_]}:
            return arguments
    return document
