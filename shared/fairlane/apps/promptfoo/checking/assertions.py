"""Sorts a test's assertions: those for workers, those for judges, and those that this process checks."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fairlane.apps.promptfoo.checking.checks import (
    GRADED,
    PROGRAMS,
    RUBRIC,
    SETS,
    SIMILAR,
    VALUELESS,
    refusal_of,
)
from fairlane.apps.promptfoo.grading.judges import Rubric
from fairlane.apps.promptfoo.grading.models import SIMILAR_ENOUGH, Graders
from fairlane.apps.promptfoo.programs.programs import is_program
from fairlane.apps.promptfoo.reading.case import WrittenAssertion
from fairlane.apps.promptfoo.reading.places import FILE, Place, is_number, names
from fairlane.apps.promptfoo.reading.templates import filled
from fairlane.apps.promptfoo.reading.yaml12 import YamlError, parse_yaml
from fairlane.evaluators.assertions import NOT, TYPES, value_problem

_JSON = frozenset(("is-json", "contains-json"))
_KEYS = names(
    "type value weight threshold metric provider config transform rubricPrompt contextTransform assert",
)
_THRESHOLDS = frozenset(("cost", "latency"))


@dataclass(frozen=True, slots=True)
class Asserted:
    """A test's assertions for one set of variables: ``checks`` are those that workers cannot check."""

    plain: list[dict[str, Any]] = field(default_factory=list)
    rubrics: list[Rubric] = field(default_factory=list)
    checks: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class AssertionReader:
    """Reads assertions. ``here``: this process checks all of them, since it transforms the outputs."""

    graders: Graders
    here: bool = False

    def read(
        self,
        written: tuple[tuple[Any, Place], ...],
        names: Mapping[str, Any],
        options: Mapping[str, Any],
        place: Place,
    ) -> Asserted:
        """The assertions, with values rendered by the variables ``names``."""
        found = Asserted()
        here = self.here or any(options.get(name) for name in ("transform", "postprocess"))
        for raw, where in written:
            if not isinstance(raw, Mapping) or not isinstance(kind := raw.get("type"), str):
                where.refuse("an assertion needs a type")
                continue
            one = WrittenAssertion(raw, kind, names, options, where, place)
            if kind == SETS:
                found.checks.extend(self._set(one))
                continue
            if refused := refusal_of(kind):
                where.refuse(refused)
                continue
            where.check_names(raw, "an assertion", _KEYS)
            by_workers = not here and not raw.get("transform")
            if by_workers and one.name in TYPES:
                plain = self._plain(one)
                found.plain.extend([plain] if plain else [])
            elif by_workers and one.name in (RUBRIC, SIMILAR) and self._is_simple(one):
                rubric = self._rubric(one)
                found.rubrics.extend([rubric] if rubric else [])
            else:
                check = self._check(one)
                found.checks.extend([check] if check else [])
        return found

    def _set(self, one: WrittenAssertion) -> list[dict[str, Any]]:
        """An ``assert-set`` with its own assertions, all of which are checked here."""
        listed = one.raw.get("assert")
        if not isinstance(listed, list):
            one.place.refuse("an assert-set has a list of assertions under assert")
            return []
        written = tuple((each, one.place / "assert" / number) for number, each in enumerate(listed))
        inner = AssertionReader(self.graders, here=True)
        checks = inner.read(written, one.names, one.options, one.test).checks
        return [{"type": SETS, "assert": checks, **self._common(one, threshold=True)}]

    def _is_simple(self, one: WrittenAssertion) -> bool:
        """Whether a worker can grade it: a rubric with the default prompt and no threshold, or one cosine."""
        if (
            one.raw.get("rubricPrompt")
            or one.options.get("rubricPrompt")
            or isinstance(one.raw.get("value"), list)
        ):
            return False
        return one.name == SIMILAR or one.raw.get("threshold") is None

    def _plain(self, one: WrittenAssertion) -> dict[str, Any] | None:
        value = self._value(one)
        if problem := value_problem(one.kind, value):
            (one.place / "value").refuse(f"{one.kind}: {problem}")
            return None
        return {"type": one.kind, "value": value, **self._common(one)}

    def _check(self, one: WrittenAssertion) -> dict[str, Any] | None:
        raw, name, place = one.raw, one.name, one.place
        written = raw.get("value")
        program = isinstance(written, str) and written.startswith(FILE) and is_program(written)
        if program and name in PROGRAMS:
            value: Any = self._program(str(written), place / "value")
            if value is None:
                return None
        elif name in PROGRAMS and not self._can_run(name, place):
            return None
        else:
            value = self._value(one)
        if name == RUBRIC and value is None and (raw.get("rubricPrompt") or one.options.get("rubricPrompt")):
            value = ""
        if problem := self._problem(name, value, raw):
            (place / "value" if name in TYPES else place).refuse(f"{one.kind}: {problem}")
            return None
        check = {"type": one.kind, "value": value, **self._common(one, threshold=True)}
        if raw.get("config") is not None:
            check["config"] = raw["config"]
        for key in ("transform", "contextTransform"):
            if code := raw.get(key):
                check[key] = self.transform(code, place / key)
        if name in GRADED:
            check |= self.graders.read(one)
        return check

    def transform(self, code: Any, place: Place) -> str:
        """The code of a transform, or the absolute reference of its file; a problem where it cannot run."""
        if isinstance(code, str) and code.startswith(FILE) and is_program(code):
            return self._program(code, place) or ""
        if not isinstance(code, str) or code.startswith(FILE):
            place.refuse("a transform is an expression in JavaScript, or a file of JavaScript or Python")
            return ""
        self._can_run("javascript", place)
        return code

    def _can_run(self, language: str, place: Place) -> bool:
        problem = place.programs.problem(".py" if language == "python" else ".js")
        if problem:
            place.refuse(problem)
        return problem is None

    def _program(self, reference: str, place: Place) -> str | None:
        program = place.program(reference)
        if program is None:
            return None
        path, function = program
        return f"{FILE}{path}" + (f":{function}" if function else "")

    def _problem(self, name: str, value: Any, raw: Mapping[str, Any]) -> str | None:
        """Why this process cannot check an assertion; ``None`` if it can."""
        if name in TYPES:
            return value_problem(name, value)
        threshold = raw.get("threshold")
        if name in _THRESHOLDS and threshold is None:
            return "it needs a threshold"
        if value is None and name not in VALUELESS:
            return "it has no value"
        if value is None and threshold is None and name in ("min-length", "max-length"):
            return "it has no value"
        if name == RUBRIC and not isinstance(value, str):
            return "it needs a text that says what to look for"
        return None

    def _rubric(self, one: WrittenAssertion) -> Rubric | None:
        text = self._value(one)
        alike = one.name == SIMILAR
        find = self.graders.embedder if alike else self.graders.judge
        judge = find(one)
        if not isinstance(text, str) or not text.strip():
            (one.place / "value").refuse(f"{one.kind} needs a text that says what to look for")
            return None
        common = self._common(one)
        threshold = self._cosine(one.raw, one.place) if alike else None
        met = not one.kind.startswith(NOT)
        weight, metric = common.get("weight", 1.0), common.get("metric")
        return Rubric(text, judge, met, weight, metric, threshold) if judge else None

    def _cosine(self, raw: Mapping[str, Any], place: Place) -> float:
        threshold = raw.get("threshold", SIMILAR_ENOUGH)
        if is_number(threshold) and -1 <= threshold <= 1:
            return float(threshold)
        (place / "threshold").refuse("the threshold of similar is a number from -1 to 1")
        return SIMILAR_ENOUGH

    def _value(self, one: WrittenAssertion) -> Any:
        raw, place = one.raw.get("value"), one.place / "value"
        if isinstance(raw, str) and raw.startswith(FILE):
            path = place.find(raw)
            if path is None:
                return raw
            raw = place.contents(path)
        elif isinstance(raw, list):
            raw = [self._listed(each, place / number) for number, each in enumerate(raw)]
        value = filled(raw, one.names, place)
        if one.name in _JSON and isinstance(value, str):
            try:
                return parse_yaml(value) if value.strip() else None
            except (YamlError, ValueError):
                return value
        return value

    def _listed(self, raw: Any, place: Place) -> Any:
        path = place.find(raw) if isinstance(raw, str) and raw.startswith(FILE) else None
        return place.contents(path) if path else raw

    def _common(self, one: WrittenAssertion, *, threshold: bool = False) -> dict[str, Any]:
        """Weight, metric and, with ``threshold``, the threshold, as far as the assertion has them."""
        common: dict[str, Any] = {"weight": self._number(one, "weight", 0, "a weight is a number from 0 on")}
        if (metric := one.raw.get("metric")) is not None:
            common["metric"] = str(filled(metric, one.names, one.place / "metric"))
        if threshold:
            common["threshold"] = self._number(one, "threshold", -math.inf, "a threshold is a number")
        return {name: each for name, each in common.items() if each is not None}

    def _number(self, one: WrittenAssertion, name: str, least: float, wanted: str) -> float | None:
        value = one.raw.get(name)
        if value is None or (is_number(value) and least <= value < math.inf):
            return value
        (one.place / name).refuse(wanted)
        return None
