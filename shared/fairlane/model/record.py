"""The record of an item: its state, output, scores and usage once it has ended."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from fairlane.model.evaluators import Judge
from fairlane.model.job import JobState
from fairlane.model.steps import Step
from fairlane.model.tokens import Unkept, Usage


@dataclass(frozen=True, slots=True)
class Record:
    """The one terminal record of an item: its task's outcome and every evaluator's score.

    ``scores`` maps evaluator names to scores; ``None`` if there is none, then ``score_errors`` says why.
    ``output`` is ``None`` unless the task succeeded. ``eval_usage`` has the tokens of each evaluation's call,
    ``None`` for those that its provider did not report; ``arguments`` the reasons that agents and judges gave
    for their scores, by the same names. ``notes`` says which parameters a call went without, since its model
    does not support them: by the same names, and under ``task``. ``unkept`` has answers that were paid for
    but not kept, by the same names as ``notes``.

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
    unkept: Mapping[str, Unkept] = field(default_factory=dict)


PROMPT_CUT = "the server seems to have cut the prompt"
"""The note of a record begins so if the server seems not to have read its whole prompt."""


class RecordDraft:
    """A `Record` under construction: once all its plain attributes are set, its class becomes `Record`.

    The constructor of a frozen class sets each of 19 fields by a call, which takes four times as long.
    """

    __slots__ = tuple(each.name for each in fields(Record))


def reason_of(step: Step, answer: str | None) -> str | None:
    """Why an agent or a judge scored as it did; ``None`` for a choice alone, and for other evaluators."""
    if not isinstance(step.evaluator, Judge):
        return answer if step.criterion is not None else None
    bare = {choice.casefold() for choice in step.evaluator.choices}
    said = answer or ""
    return None if said.strip(" \n.!*\"'`").casefold() in bare else said or None


def note_of(left_out: Sequence[str], notes: Sequence[str] = ()) -> str:
    """The note of a record: the parameters that its call left out, and notes on its answer; "" if none."""
    sent = [f"sent without {', '.join(left_out)}: the model does not support it"] if left_out else []
    return "; ".join([*sent, *notes])
