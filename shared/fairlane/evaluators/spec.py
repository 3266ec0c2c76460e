"""Evaluators as data: what travels with a run. `scorers` computes pure ones, workers call the judges."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field


class _Spec(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str = Field(pattern=r"^[A-Za-z0-9_.\-]{1,64}$")


class ExactMatch(_Spec):
    """1 if the output equals the row's field ``expected``, else 0."""

    kind: Literal["exact_match"] = "exact_match"
    expected: str
    ignore_case: bool = False
    strip: bool = True


class Contains(_Spec):
    """1 if the output contains the row's field ``expected``, or the fixed ``text``, else 0."""

    kind: Literal["contains"] = "contains"
    expected: str | None = None
    text: str | None = None
    ignore_case: bool = False


class Regex(_Spec):
    """1 if ``pattern`` is found in the output; with ``expected``, if its first group is that row field."""

    kind: Literal["regex"] = "regex"
    pattern: str = Field(max_length=1000)
    expected: str | None = None


class JsonValid(_Spec):
    """1 if the output is valid JSON; with ``required``, an object that has all these keys."""

    kind: Literal["json_valid"] = "json_valid"
    required: tuple[str, ...] = ()


class NumericMatch(_Spec):
    """1 if the last number in the output equals the row's field ``expected`` within ``tolerance``."""

    kind: Literal["numeric_match"] = "numeric_match"
    expected: str
    tolerance: float = Field(default=1e-6, ge=0)


class Judge(_Spec):
    """An LLM call over the row and its ``output``; ``choices`` maps an answer to its score."""

    kind: Literal["llm_judge"] = "llm_judge"
    model: str
    template: str
    choices: dict[str, float] = Field(min_length=1, max_length=100)
    params: dict[str, Any] = Field(default_factory=dict)


EvaluatorSpec = Annotated[
    ExactMatch | Contains | Regex | JsonValid | NumericMatch | Judge, Field(discriminator="kind")
]
