"""Stored results of jobs: their formats, and how records are made of them."""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic_core import from_json

from fairlane.model.job import JobState
from fairlane.model.outcome import Success
from fairlane.model.record import Record, RecordDraft, note_of, reason_of
from fairlane.model.run import Cell, RunSpec, cell_of
from fairlane.model.steps import Step
from fairlane.model.tokens import NO_UNKEPT, Unkept, Usage, UsageDraft

PACK_CHARS = 400
"""Shorter results are stored plain: zlib would save little of them."""

_STATES = {str(state): state for state in JobState}
_SUCCESS = JobState.SUCCEEDED
_SUCCEEDED = str(_SUCCESS)
_NO_USAGE = Usage()
_NOTHING: Mapping[str, Any] = {}
_ONLY_CELL = Cell(row=0, prompt=0, model=0, repetition=0)  # except for its row, which a record has already

_PARSED_AT_ONCE = 64
"""Items at a time. A record has ten objects, and Python's garbage collector runs when 700 new ones are alive:
that would take longer than all else."""


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
    unkept: Unkept = NO_UNKEPT
    notes: tuple[str, ...] = ()

    def as_success(self) -> Success:
        """The `Success` that it was made from, as far as a record shows it."""
        more: dict[str, Any] = {"left_out": self.left_out, "notes": self.notes}
        return Success(self.output or "", self.usage, self.finish_reason, **more)

    def to_json(self, *, short: bool = False) -> str:
        """The stored form: JSON with short keys, without what is ``None``.

        ``short``: a success becomes the list that `_by_key` reads, half as long. Earlier versions do not
        read it.
        """
        usage = _usage_list(self.usage)
        rest = {
            "m": self.model,
            "sc": dict(self.scores) or None,
            "se": dict(self.score_errors) or None,
            "c": 1 if self.cached else None,
            "x": self.left_out or None,
            "n": self.notes or None,
            "w": self.unkept.to_list(),
        }
        if short and self.state is JobState.SUCCEEDED and self.error is None:
            places = [self.output, *_places(usage), self.attempts, self.latency_ms]
            return _compact_list(places, [self.finish_reason], rest | _more_usage(usage))
        first = {
            "s": self.state,
            "o": self.output,
            "e": self.error,
            "u": usage,
            "a": self.attempts,
            "l": self.latency_ms,
            "f": self.finish_reason,
        }
        return _compact(first | rest)

    @classmethod
    def from_json(cls, text: str | bytes) -> TaskResult:
        """Parse a stored form, packed or plain; unknown keys and further places of a list are ignored."""
        data = _by_key(_parsed(text), _TASK_PLACES)
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
            unkept=Unkept.from_list(data.get("w")),
            notes=tuple(data.get("n", ())),
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
    unkept: Unkept = NO_UNKEPT

    @property
    def answered(self) -> bool:
        """Whether its own call was answered; the answer of a batch is its batch call's."""
        return bool(self.attempts) and (self.state is _SUCCESS or self.answer is not None)

    def to_json(self, *, short: bool = False) -> str:
        """The stored form, as of a `TaskResult`."""
        usage = _usage_list(self.usage)
        rest: dict[str, Any] = {"c": 1 if self.cached else None, "x": self.left_out or None}
        rest["w"] = self.unkept.to_list()
        if short and self.state is JobState.SUCCEEDED and self.error is None:
            places = [self.score, self.answer, *_places(usage), self.attempts]
            return _compact_list(places, [], rest | _more_usage(usage))
        first = {
            "s": self.state,
            "v": self.score,
            "o": self.answer,
            "e": self.error,
            "u": usage,
            "a": self.attempts,
        }
        return _compact(first | rest)

    @classmethod
    def from_json(cls, text: str | bytes) -> JudgeResult:
        """Parse a stored form, as of a `TaskResult`."""
        return cls._of(_parsed(text))

    @classmethod
    def _of(cls, parsed: Any) -> JudgeResult:
        data = _by_key(parsed, _JUDGE_PLACES)
        return cls(
            state=_state(data),
            score=data.get("v"),
            answer=data.get("o"),
            error=data.get("e"),
            usage=_usage(data.get("u")),
            attempts=data.get("a", 0),
            cached=bool(data.get("c")),
            left_out=tuple(data.get("x", ())),
            unkept=Unkept.from_list(data.get("w")),
        )


@dataclass(frozen=True, slots=True)
class Portion:
    """Items of a run with their rows and stored results: one, or ``None``, for each of their jobs.
    ``missing`` is the state of jobs without a result, and ``why`` says how the run ended. Iterating makes the
    records, one at a time.
    """

    spec: RunSpec
    items: Sequence[int]
    rows: Sequence[Mapping[str, Any]]
    stored: Sequence[bytes | None]
    missing: JobState
    why: str | None = None

    def __iter__(self) -> Iterator[Record]:
        """Make the records.

        It makes no `TaskResult` and no `Cell`, and calls no constructor of a `Record` and no function for a
        success: of a million records, half of the time would go there.
        """
        spec, steps, evals, models = self.spec, self.spec.steps, self.spec.evals, self.spec.models
        cells, cell = spec.cells_per_row, _ONLY_CELL
        rest: Mapping[str, Any]
        for first in range(0, len(self.items), _PARSED_AT_ONCE):
            end, place = first + _PARSED_AT_ONCE, 0
            parsed = parsed_results(self.stored[first * steps : end * steps])
            for item, row in zip(self.items[first:end], self.rows[first:end], strict=True):
                task: Any = parsed[place]
                draft: Any = RecordDraft()
                if type(task) is list:
                    output, read, written, attempts, latency_ms, *more = task
                    rest = more[1] if len(more) > 1 else _NOTHING
                    draft.state, draft.output, draft.error, draft.attempts = _SUCCESS, output, None, attempts
                    draft.latency_ms, draft.finish_reason = latency_ms, more[0] if more else None
                    draft.usage = _usage(rest.get("u") or (read, written))
                else:
                    rest = task or {"s": self.missing}
                    draft.state, draft.output = _state(rest), rest.get("o")
                    draft.error = rest.get("e") or (None if draft.state is _SUCCESS else self.why)
                    draft.attempts, draft.latency_ms = rest.get("a", 0), rest.get("l")
                    draft.finish_reason, draft.usage = rest.get("f"), _usage(rest.get("u"))
                if cells > 1:
                    cell = cell_of(spec, item)
                draft.item, draft.row, draft.model = item, row, models[cell.model] if models else ""
                draft.prompt, draft.repetition = cell.prompt, cell.repetition
                draft.scores, draft.score_errors, draft.cached = {}, {}, False
                draft.eval_usage, draft.arguments, draft.notes, draft.unkept = {}, {}, {}, {}
                if rest:
                    _add_rest(draft, rest)
                if evals:
                    add_evaluations(draft, evals, parsed[place + 1 : place + steps], self.missing, self.why)
                place += steps
                draft.__class__ = Record
                yield draft


def assemble(
    spec: RunSpec,
    item: int,
    row: Mapping[str, Any],
    stored: Sequence[str | bytes | None],
    missing: JobState = JobState.CANCELLED,
) -> Record:
    """The record of an item from its stored results, task first. ``missing``: the state of the rest."""
    found = [(each.encode() if isinstance(each, str) else each) or None for each in stored]
    return next(iter(Portion(spec, (item,), (row,), found, missing)))


def _add_rest(draft: Any, rest: Mapping[str, Any]) -> None:
    """Set the fields that few results have."""
    draft.model = rest.get("m") or draft.model
    draft.scores, draft.score_errors = rest.get("sc") or {}, rest.get("se") or {}
    draft.cached = bool(rest.get("c"))
    if note := note_of(rest.get("x") or (), rest.get("n") or ()):
        draft.notes["task"] = note
    if unkept := rest.get("w"):
        draft.unkept["task"] = Unkept.from_list(unkept)


def add_evaluations(
    draft: Any, steps: Sequence[Step], parsed: Sequence[Any], missing: JobState, why: str | None
) -> None:
    """Add the parsed results of each evaluation step to the record of an item or a session.

    ``missing`` and ``why`` as in a `Portion`.
    """
    for step, each in zip(steps, parsed, strict=True):
        result = JudgeResult._of(each) if each else JudgeResult(missing)
        if not result.cached and (result.usage.total is not None or (result.answered and step.calls_model)):
            draft.eval_usage[step.name] = result.usage
        if result.left_out:
            draft.notes[step.name] = note_of(result.left_out)
        if result.unkept.answers:
            draft.unkept[step.name] = result.unkept
        if step.batch:
            continue
        if reason := reason_of(step, result.answer):
            draft.arguments[step.name] = reason
        draft.scores[step.name] = result.score
        if unscored := result.error or (None if result.state is _SUCCESS else why or str(result.state)):
            draft.score_errors[step.name] = unscored


def packed(text: str) -> str | bytes:
    """A result in its stored form: compressed from `PACK_CHARS` characters on."""
    if len(text) < PACK_CHARS:
        return text
    return b"z" + zlib.compress(text.encode(errors="replace"), 1)


def unpacked(stored: str | bytes) -> str | bytes:
    """The inverse of `packed`."""
    return zlib.decompress(stored[1:]) if isinstance(stored, bytes) and stored[:1] == b"z" else stored


def parsed_results(stored: Sequence[bytes | None]) -> list[Any]:
    """The JSON of many results; ``None`` for those that are missing. One parse for all."""
    texts: list[Any] = [
        b"null" if each is None else each if each[:1] != b"z" else unpacked(each) for each in stored
    ]
    found: list[Any]
    try:
        found = from_json(b"[%b]" % b",".join(texts))
    except ValueError:
        found = []
    if len(found) == len(stored):
        return found
    return [None if each is None else _parsed(each) for each in stored]


def stored_state(stored: str | bytes) -> str:
    """The state in a stored result of any job; empty where there is none."""
    data = _parsed(stored)
    return _SUCCEEDED if isinstance(data, list) else str(data.get("s", ""))


def long_form(stored: str | bytes) -> Any:
    """The JSON of an evaluation's stored result in the form that earlier versions read."""
    return _by_key(_parsed(stored), _JUDGE_PLACES)


def _compact(data: Mapping[str, Any]) -> str:
    return _dumped({key: value for key, value in data.items() if value is not None})


def _compact_list(places: list[Any], optional: list[Any], rest: Mapping[str, Any]) -> str:
    """A list of values by place. Its last place is an object of whatever else has a value, by key."""
    more = {key: value for key, value in rest.items() if value is not None}
    if more:
        return _dumped([*places, *optional, more])
    return _dumped([*places, *(each for each in optional if each is not None)])


def _dumped(data: Any) -> str:
    """JSON whose texts are UTF-8; a lone surrogate, which UTF-8 cannot hold, is escaped."""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(data, separators=(",", ":"))
    return text


_TASK_PLACES = ("o", "read", "written", "a", "l", "f")
_JUDGE_PLACES = ("v", "o", "read", "written", "a")


def _by_key(parsed: Any, places: Sequence[str]) -> dict[str, Any]:
    """A stored result by its short keys; a list is the form of a success (`_compact_list`)."""
    if not isinstance(parsed, list):
        data: dict[str, Any] = parsed
        return data
    data = {key: value for key, value in zip(places, parsed, strict=False) if value is not None}
    used = [data.pop("read", None), data.pop("written", None)]
    if used != [None, None]:
        data["u"] = used
    rest = parsed[len(places)] if len(parsed) > len(places) else {}
    return {"s": _SUCCEEDED} | data | rest


def _usage_list(usage: Usage) -> list[int | None] | None:
    if usage.total is None:
        return None
    counts = [usage.input_tokens, usage.output_tokens, usage.cached_tokens, usage.written_tokens]
    while len(counts) > 2 and counts[-1] is None:
        counts.pop()
    return counts


def _places(usage: list[int | None] | None) -> list[int | None]:
    return usage[:2] if usage else [None, None]


def _more_usage(usage: list[int | None] | None) -> dict[str, Any]:
    """All token counts, if there are more than the two that have places in the list."""
    return {"u": usage} if usage and len(usage) > 2 else {}


def _state(data: Mapping[str, Any]) -> JobState:
    return _STATES.get(data["s"]) or JobState(data["s"])


def _usage(stored: Sequence[int | None] | None) -> Usage:
    if not stored:
        return _NO_USAGE
    draft: Any = UsageDraft()
    draft.input_tokens, draft.output_tokens = stored[0], stored[1]
    draft.cached_tokens = stored[2] if len(stored) > 2 else None
    draft.written_tokens = stored[3] if len(stored) > 3 else None  # a newer version may store more
    draft.__class__ = Usage
    usage: Usage = draft
    return usage


def _parsed(stored: str | bytes) -> Any:
    """The JSON of a result. pydantic's parser is three times as fast, and reads no lone surrogate."""
    text = unpacked(stored)
    try:
        return from_json(text)
    except ValueError:
        return json.loads(text)
