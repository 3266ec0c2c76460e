"""Assigns judges to rubrics: each model has as many as the test with the most rubrics needs."""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from fairlane.apps.promptfoo.reading.providers import Provider
from fairlane.evaluators.rubrics import MET, UNMET, has_room_for_reasons, rubric_template
from fairlane.model.evaluators import EvaluatorSpec, Judge, Similarity

RUBRIC_WORDS = rubric_template("{{ rubric }}")
"""The prompt of a judge that gets the rubric as a variable."""


@dataclass(frozen=True, slots=True)
class Rubric:
    """A text that a model judges, or compares by embeddings; ``met``: whether the output should meet it.

    ``threshold`` is the least cosine of a comparison; ``None`` where a model judges.
    """

    text: str
    judge: Provider
    met: bool
    weight: float
    metric: str | None
    threshold: float | None = None


_RubricKey: TypeAlias = tuple[str, str, bool, float | None, int]
"""Model, parameters, whether it should be met, threshold, and its number among equal ones of a row."""


@dataclass(slots=True)
class Judges:
    """Assigns an evaluator, a judge or a similarity, to each rubric of a row; rows share evaluators."""

    _specs: dict[_RubricKey, Judge | Similarity] = field(default_factory=dict)

    def names(self, rubrics: Sequence[Rubric]) -> list[str]:
        """The evaluator of each of one row's rubrics; no two have the same."""
        taken: Counter[tuple[str, str, bool, float | None]] = Counter()
        names: list[str] = []
        for rubric in rubrics:
            params: dict[str, Any] = dict(rubric.judge.params)
            key = (rubric.judge.model, json.dumps(params, sort_keys=True), rubric.met, rubric.threshold)
            place = (*key, taken[key])
            taken[key] += 1
            if place not in self._specs:
                self._specs[place] = self._judge(rubric, params)
            names.append(self._specs[place].name)
        return names

    def _judge(self, rubric: Rubric, params: dict[str, Any]) -> Judge | Similarity:
        number, model = len(self._specs) + 1, rubric.judge.model
        if rubric.threshold is not None:
            name = f"similar-{number}"
            field = self.field(name)
            return Similarity(
                name=name, model=model, expected=field, threshold=rubric.threshold, params=params, when=field
            )
        name = f"rubric-{number}"
        return Judge(
            name=name,
            model=model,
            template=rubric_template(f"{{{{ {self.field(name)} }}}}"),
            choices={MET: float(rubric.met), UNMET: float(not rubric.met)},
            params=params,
            when=self.field(name),
            reasons=has_room_for_reasons(params) or None,
        )

    def field(self, name: str) -> str:
        """The row's field that holds the rubric for the evaluator ``name``."""
        return f"__{name.replace('-', '_')}"

    def specs(self) -> list[EvaluatorSpec]:
        """All judges, in the order in which they were first needed."""
        return list(self._specs.values())
