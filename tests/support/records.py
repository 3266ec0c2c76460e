"""Makes records and run specs for tests."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any, TypeVar

from hypothesis import strategies as st

from fairlane.model.choices import Message
from fairlane.model.evaluators import EvaluatorSpec
from fairlane.model.job import JobState
from fairlane.model.record import Record
from fairlane.model.run import RunSpec
from fairlane.model.tokens import NO_UNKEPT, Unkept, Usage

T = TypeVar("T")


def make_record(item: int = 0, **fields: Any) -> Record:
    """A record of an item that succeeded."""
    whole: dict[str, Any] = {
        "item": item,
        "row": {},
        "model": "sim:fast",
        "prompt": 0,
        "repetition": 0,
        "state": JobState.SUCCEEDED,
        "output": f"answer {item}",
        "scores": {},
        "score_errors": {},
        "usage": Usage(10, 5),
        "attempts": 1,
        "error": None,
    }
    return Record(**whole | fields)


def spec_of(evaluators: Sequence[EvaluatorSpec] = (), **fields: Any) -> RunSpec:
    """The spec of a run with one prompt over the field ``question``."""
    whole: dict[str, Any] = {
        "run": "r1",
        "team": "search",
        "name": "mine",
        "prompts": ((Message(role="user", content="{{ question }}"),),),
        "models": ("sim:fast",),
        "evaluators": tuple(evaluators),
        "rows": 0,
        "page_rows": 500,
        "submitted_ms": 0,
    }
    return RunSpec(**whole | fields)


_SOME = st.builds(
    Unkept, st.integers(1, 9), st.builds(Usage, st.integers(0, 99), st.none() | st.integers(0, 9))
)
UNKEPT = st.just(NO_UNKEPT) | _SOME


def drawn(kind: type[T], **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[T]:
    """Draws a data class. Each of its fields must be given, so that a later one is drawn, too."""
    own = {each.name for each in dataclasses.fields(kind)}  # type: ignore[arg-type]
    assert fields.keys() == own, f"{kind.__name__}: draw {own ^ fields.keys()} here, too"
    return st.builds(kind, **fields)
