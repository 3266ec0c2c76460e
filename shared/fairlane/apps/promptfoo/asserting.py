"""The assertions of a test: those that its row carries, and those that a model judges."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fairlane.apps.promptfoo.files import DATA, FILE, Files
from fairlane.apps.promptfoo.problems import Place, Problems
from fairlane.apps.promptfoo.providers import Provider, Providers
from fairlane.apps.promptfoo.templates import filled
from fairlane.apps.promptfoo.yaml12 import YamlError, parse_yaml
from fairlane.evaluators.assertions import NOT, TYPES, value_problem

RUBRIC, SIMILAR = "llm-rubric", "similar"
SIMILAR_ENOUGH = 0.75
"""The threshold of promptfoo's ``similar`` where it names none."""

_JSON = frozenset(("is-json", "contains-json"))
_KEYS = frozenset(("type", "value", "weight", "threshold", "metric", "provider"))
_NO_PROGRAMS = (
    "programs are not run: write a scorer in Python that workers may call, or use regex or llm-rubric"
)

_REMEDIES = {
    "javascript": _NO_PROGRAMS,
    "python": _NO_PROGRAMS,
    "ruby": _NO_PROGRAMS,
    "webhook": "nothing but models is called",
    "cost": "see the tokens in the results; a budget is an option of submit",
    "latency": "see latency_ms in the results: calls wait for their turn before it is measured",
    "assert-set": "write its assertions one by one",
    "factuality": "use llm-rubric, with the facts in its text",
    "model-graded-factuality": "use llm-rubric, with the facts in its text",
    "model-graded-closedqa": "use llm-rubric",
    "g-eval": "use llm-rubric",
    "select-best": "outputs are judged one by one",
}


@dataclass(frozen=True, slots=True)
class Rubric:
    """What a model judges, or compares by embeddings; ``met`` is whether it should find it met.

    ``threshold`` is the least cosine of what is compared; ``None`` where a model judges.
    """

    text: str
    judge: Provider
    met: bool
    weight: float
    metric: str | None
    threshold: float | None = None


@dataclass(frozen=True, slots=True)
class Asserted:
    """A test's assertions for one set of variables."""

    plain: list[dict[str, Any]] = field(default_factory=list)
    rubrics: list[Rubric] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class AssertionReader:
    """Reads assertions; ``judge`` does where no provider is named."""

    providers: Providers
    files: Files
    problems: Problems
    judge: Provider | None

    def read(
        self,
        written: tuple[tuple[Any, Place], ...],
        names: Mapping[str, Any],
        options: Mapping[str, Any],
        place: Place,
    ) -> Asserted:
        """Each of them, its value rendered with the variables ``names``."""
        found = Asserted()
        for raw, where in written:
            if not isinstance(raw, Mapping) or not isinstance(kind := raw.get("type"), str):
                self.problems.add(where, "an assertion needs a type")
                continue
            if kind.removeprefix(NOT) not in (*TYPES, RUBRIC, SIMILAR):
                self._refuse(kind, where)
                continue
            for name in raw.keys() - _KEYS:
                self.problems.add(where / str(name), f"{name} of an assertion is not supported")
            if kind.removeprefix(NOT) in (RUBRIC, SIMILAR):
                rubric = self._rubric(raw, kind, names, options, where, place)
                found.rubrics.extend([rubric] if rubric else [])
            else:
                plain = self._plain(raw, kind, names, where)
                found.plain.extend([plain] if plain else [])
        return found

    def _plain(
        self, raw: Mapping[str, Any], kind: str, names: Mapping[str, Any], place: Place
    ) -> dict[str, Any] | None:
        value = self._value(raw.get("value"), kind, names, place / "value")
        if problem := value_problem(kind, value):
            self.problems.add(place / "value", f"{kind}: {problem}")
            return None
        common = {"weight": self._weight(raw, place), "metric": self._metric(raw, names, place)}
        return {
            "type": kind,
            "value": value,
            **{name: each for name, each in common.items() if each is not None},
        }

    def _rubric(
        self,
        raw: Mapping[str, Any],
        kind: str,
        names: Mapping[str, Any],
        options: Mapping[str, Any],
        place: Place,
        test: Place,
    ) -> Rubric | None:
        text = self._value(raw.get("value"), kind, names, place / "value")
        alike = kind.removeprefix(NOT) == SIMILAR
        find = self._embedder if alike else self._judge
        judge = find(raw.get("provider"), options, place, test)
        if not isinstance(text, str) or not text.strip():
            self.problems.add(place / "value", f"{kind} needs a text that says what to look for")
            return None
        weight, metric = self._weight(raw, place), self._metric(raw, names, place)
        threshold = self._threshold(raw, place) if alike else None
        met = not kind.startswith(NOT)
        return (
            Rubric(text, judge, met, 1.0 if weight is None else weight, metric, threshold) if judge else None
        )

    def _embedder(self, named: Any, options: Mapping[str, Any], place: Place, test: Place) -> Provider | None:
        where = place / "provider"
        if named is None and options.get("provider") is not None:
            named, where = options["provider"], test / "options" / "provider"
        if isinstance(named, Mapping) and "id" not in named:
            named, where = named.get("embedding"), where / "embedding"
        if named is None:
            remedy = "name it as its provider, like openai:embedding:text-embedding-3-small"
            self.problems.add(place, f"similar needs a model that makes embeddings: {remedy}")
            return None
        return self.providers.one(named, where, embeds=True)

    def _threshold(self, raw: Mapping[str, Any], place: Place) -> float:
        threshold = raw.get("threshold", SIMILAR_ENOUGH)
        if isinstance(threshold, int | float) and not isinstance(threshold, bool) and -1 <= threshold <= 1:
            return float(threshold)
        self.problems.add(place / "threshold", "the threshold of similar is a number from -1 to 1")
        return SIMILAR_ENOUGH

    def _judge(self, named: Any, options: Mapping[str, Any], place: Place, test: Place) -> Provider | None:
        where = place / "provider"
        if named is None and options.get("provider") is not None:
            named, where = options["provider"], test / "options" / "provider"
        if isinstance(named, Mapping) and "id" not in named and "text" in named:
            named, where = named["text"], where / "text"
        if named is not None:
            return self.providers.one(named, where)
        if self.judge is None:
            remedy = "name one in defaultTest.options.provider, or give --judge-model <connection>:<model>"
            self.problems.add(place, f"llm-rubric needs a model that judges: {remedy}")
        return self.judge

    def _value(self, raw: Any, kind: str, names: Mapping[str, Any], place: Place) -> Any:
        json = kind.removeprefix(NOT) in _JSON
        if isinstance(raw, str) and raw.startswith(FILE):
            path = self.files.find(raw, place)
            if path is None:
                return raw
            if path.suffix in DATA:
                raw = self.files.data(path, place)
            else:
                raw = (self.files.text(path, place) or "").strip()
        value = filled(raw, names, place, self.problems)
        if json and isinstance(value, str):
            try:
                return parse_yaml(value) if value.strip() else None
            except (YamlError, ValueError):
                return value
        return value

    def _weight(self, raw: Mapping[str, Any], place: Place) -> float | None:
        weight = raw.get("weight")
        if weight is None or (
            isinstance(weight, int | float) and not isinstance(weight, bool) and 0 <= weight < math.inf
        ):
            return weight
        self.problems.add(place / "weight", "a weight is a number from 0 on")
        return None

    def _metric(self, raw: Mapping[str, Any], names: Mapping[str, Any], place: Place) -> str | None:
        metric = raw.get("metric")
        return None if metric is None else str(filled(metric, names, place / "metric", self.problems))

    def _refuse(self, kind: str, place: Place) -> None:
        name = kind.removeprefix(NOT)
        remedy = _REMEDIES.get(name) or _REMEDIES.get(name.partition(":")[0])
        unsupported = f"the assertion {kind} is not supported"
        self.problems.add(place, f"{unsupported}: {remedy}" if remedy else unsupported)
