"""Evaluators as data of a run's spec. `scorers` computes the pure ones, workers call the others."""

from __future__ import annotations

import json
import sys
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, model_validator

from fairlane.model.choices import MOST_NUMBER, Choice, Score

MOST_FLOAT = sys.float_info.max
NAME = r"^[A-Za-z0-9_.\-]{1,64}$"
"""Names of evaluators and of criteria."""


class _Spec(Choice):
    name: str = Field(pattern=NAME)


class ExactMatch(_Spec):
    """1 if the output equals the row's field ``expected``, or one of the answers that it lists, else 0.

    An object in that field is compared as JSON. ``strip`` also ignores invisible differences: zero-width
    characters, kinds of spaces, and Unicode's normal forms.
    """

    kind: Literal["exact_match"] = "exact_match"
    expected: str
    ignore_case: bool = False
    strip: bool = True


class Contains(_Spec):
    """1 if the output contains the row's field ``expected``, or the fixed ``text``, else 0.

    If that field is a list, one element suffices.
    """

    kind: Literal["contains"] = "contains"
    expected: str | None = None
    text: str | None = None
    ignore_case: bool = False


class Regex(_Spec):
    """1 if ``pattern`` is found in the output.

    With ``expected``, 1 if the first group of the last match is that row field, or one that it lists.
    """

    kind: Literal["regex"] = "regex"
    pattern: str = Field(max_length=1000)
    expected: str | None = None


class JsonValid(_Spec):
    """1 if the output is valid JSON; with ``required``, an object that has all these keys.

    ``fenced``: the JSON may also stand in a fenced block, after reasoning, or between prose.
    """

    kind: Literal["json_valid"] = "json_valid"
    required: tuple[str, ...] = ()
    fenced: bool = False


class NumericMatch(_Spec):
    """1 if the output's answer equals the row's field ``expected`` within ``tolerance``.

    Its answer is the number behind the last ``####`` or in LaTeX's last box, else the last number. A list in
    the field holds accepted numbers.
    """

    kind: Literal["numeric_match"] = "numeric_match"
    expected: str
    tolerance: float = Field(default=1e-6, ge=0, le=MOST_NUMBER)


Level = Literal["item", "session"]
"""An evaluator scores one output, or all outputs of a session in order."""

FUNCTION = r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*[:.][A-Za-z_]\w*$"
"""``package.module:function``, or a Celery task's dotted name."""

FUNCTION_REMEDY = (
    'Give "package.module:function" of a function outside any class, or the name of a Celery task.'
)


class Assertions(_Spec):
    """The share of a row's own assertions that its output meets; the row's field ``field`` lists them."""

    kind: Literal["assertions"] = "assertions"
    field: str


class Judge(_Spec):
    """An LLM call over the row and its ``output``; ``choices`` maps an answer to its score.

    Rows whose field ``when`` is empty or missing are not judged. Where ``reasons`` is set, a JSON schema
    constrains the answer if the connection supports one: to a choice with its reason, or to the choice alone.
    """

    kind: Literal["llm_judge"] = "llm_judge"
    model: str
    template: str
    choices: dict[str, Score] = Field(min_length=1, max_length=100)
    params: dict[str, Any] = Field(default_factory=dict)
    level: Level = "item"
    when: str | None = None
    reasons: bool | None = None


class Criterion(Choice):
    """One thing that an agent scores, from ``minimum`` to ``maximum``."""

    id: str = Field(pattern=NAME)
    description: str = Field(max_length=10_000)
    minimum: Score = 1.0
    maximum: Score = 5.0

    @model_validator(mode="after")
    def _has_a_scale(self) -> Criterion:
        if self.minimum >= self.maximum:
            raise ValueError(
                f"criterion {self.id!r}: minimum ({self.minimum:g}) is not below maximum ({self.maximum:g})"
            )
        return self


class Agent(_Spec):
    """An LLM that scores an output by several criteria; each is a score ``<agent>.<criterion>``.

    It makes one call per criterion. With ``batching`` it makes one structured call for all criteria, then one
    for each that the answer lacks. ``None`` takes the client's default when the run is submitted.
    """

    kind: Literal["agent"] = "agent"
    model: str
    template: str
    criteria: tuple[Criterion, ...] = Field(min_length=1, max_length=100)
    batching: bool | None = None
    params: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _criteria_differ(self) -> Agent:
        seen: set[str] = set()
        for criterion in self.criteria:
            if criterion.id in seen:
                raise ValueError(f"agent {self.name!r} has two criteria with the id {criterion.id!r}")
            seen.add(criterion.id)
        return self


class FunctionScorer(_Spec):
    """A Python function on the workers, ``package.module:function``, that returns the score."""

    kind: Literal["function"] = "function"
    function: str = Field(pattern=FUNCTION, max_length=200)
    lane: str | None = Field(default=None, pattern=r"^[A-Za-z0-9_.:\-]{1,100}$")
    level: Level = "item"


class Similarity(_Spec):
    """The cosine between the embeddings of the output and of the row's field ``expected``, or of ``text``.

    With ``threshold``, 1 if the cosine reaches it, else 0. Rows whose field ``when`` is empty or missing are
    not judged.
    """

    kind: Literal["similarity"] = "similarity"
    model: str
    expected: str | None = None
    text: str | None = None
    threshold: float | None = Field(default=None, ge=-1, le=1)
    params: dict[str, Any] = Field(default_factory=dict)
    when: str | None = None


PureSpec = ExactMatch | Contains | Regex | JsonValid | NumericMatch | Assertions
"""Computed in the process that has the output, without a job."""

CallSpec = Judge | Agent | FunctionScorer | Similarity
"""Each of their scores takes a job."""

EVALUATORS: tuple[type[_Spec], ...] = get_args(PureSpec | CallSpec)
"""The classes of all evaluators."""

EvaluatorSpec = Annotated[
    PureSpec | CallSpec,
    Field(discriminator="kind"),
]


def read_score(answer: str) -> float:
    """The score in a function's answer: a finite number or a truth value, as JSON. Raises ``ValueError``."""
    value = json.loads(answer)
    if not isinstance(value, bool | int | float) or not abs(value) <= MOST_FLOAT:
        raise ValueError(f"a score is a finite number or a truth value, the function returned {answer[:200]}")
    return float(value)
