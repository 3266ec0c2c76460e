"""The assertions of a test: those that workers check, those that judges score, and those checked here."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fairlane.apps.promptfoo.checking.checks import PROGRAMS, SETS, VALUELESS
from fairlane.apps.promptfoo.checking.kinds import GRADED, RUBRIC, SIMILAR, refusal_of
from fairlane.apps.promptfoo.grading.judges import Rubric
from fairlane.apps.promptfoo.grading.models import SIMILAR_ENOUGH, Graders
from fairlane.apps.promptfoo.programs.programs import is_program
from fairlane.apps.promptfoo.reading.files import DATA, FILE, Files
from fairlane.apps.promptfoo.reading.problems import Place, Problems
from fairlane.apps.promptfoo.reading.templates import filled
from fairlane.apps.promptfoo.reading.yaml12 import YamlError, parse_yaml
from fairlane.evaluators.assertions import NOT, TYPES, value_problem

_JSON = frozenset(("is-json", "contains-json"))
_KEYS = frozenset(
    (
        *("type", "value", "weight", "threshold", "metric", "provider", "config", "transform"),
        *("rubricPrompt", "contextTransform", "assert"),
    )
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
    """Reads assertions. ``here``: none is left to workers, as outputs change shape."""

    files: Files
    problems: Problems
    graders: Graders
    here: bool = False

    def read(
        self,
        written: tuple[tuple[Any, Place], ...],
        names: Mapping[str, Any],
        options: Mapping[str, Any],
        place: Place,
    ) -> Asserted:
        """Each of them, its value rendered with the variables ``names``."""
        found = Asserted()
        here = self.here or any(options.get(name) for name in ("transform", "postprocess"))
        for raw, where in written:
            if not isinstance(raw, Mapping) or not isinstance(kind := raw.get("type"), str):
                self.problems.add(where, "an assertion needs a type")
                continue
            if kind == SETS:
                found.checks.extend(self._set(raw, names, options, where, place))
                continue
            if refused := refusal_of(kind):
                self.problems.add(where, refused)
                continue
            self._note_unknown(raw, where)
            name = kind.removeprefix(NOT)
            by_workers = not here and not raw.get("transform")
            if by_workers and name in TYPES:
                plain = self._plain(raw, kind, names, where)
                found.plain.extend([plain] if plain else [])
            elif by_workers and name in (RUBRIC, SIMILAR) and self._is_simple(raw, options):
                rubric = self._rubric(raw, kind, names, options, where, place)
                found.rubrics.extend([rubric] if rubric else [])
            else:
                check = self._check(raw, kind, names, options, where, place)
                found.checks.extend([check] if check else [])
        return found

    def _set(
        self,
        raw: Mapping[str, Any],
        names: Mapping[str, Any],
        options: Mapping[str, Any],
        where: Place,
        test: Place,
    ) -> list[dict[str, Any]]:
        """An ``assert-set`` with its own assertions, all of which are checked here."""
        listed = raw.get("assert")
        if not isinstance(listed, list):
            self.problems.add(where, "an assert-set has a list of assertions under assert")
            return []
        written = tuple((each, where / "assert" / number) for number, each in enumerate(listed))
        inner = AssertionReader(self.files, self.problems, self.graders, here=True)
        checks = inner.read(written, names, options, test).checks
        return [{"type": SETS, "assert": checks, **self._common(raw, names, where, threshold=True)}]

    def _is_simple(self, raw: Mapping[str, Any], options: Mapping[str, Any]) -> bool:
        """Whether a worker can ask the judge: for a yes or no, in our words, or for one cosine."""
        if raw.get("rubricPrompt") or options.get("rubricPrompt") or isinstance(raw.get("value"), list):
            return False
        return raw["type"].removeprefix(NOT) == SIMILAR or raw.get("threshold") is None

    def _note_unknown(self, raw: Mapping[str, Any], where: Place) -> None:
        for name in raw.keys() - _KEYS:
            self.problems.unknown(where / str(name), "an assertion", _KEYS)

    def _plain(
        self, raw: Mapping[str, Any], kind: str, names: Mapping[str, Any], place: Place
    ) -> dict[str, Any] | None:
        value = self._value(raw.get("value"), kind, names, place / "value")
        if problem := value_problem(kind, value):
            self.problems.add(place / "value", f"{kind}: {problem}")
            return None
        return {"type": kind, "value": value, **self._common(raw, names, place)}

    def _check(
        self,
        raw: Mapping[str, Any],
        kind: str,
        names: Mapping[str, Any],
        options: Mapping[str, Any],
        place: Place,
        test: Place,
    ) -> dict[str, Any] | None:
        name = kind.removeprefix(NOT)
        written = raw.get("value")
        program = isinstance(written, str) and written.startswith(FILE) and is_program(written)
        if program and name in PROGRAMS:
            value: Any = self._program(str(written), place / "value")
            if value is None:
                return None
        elif name in PROGRAMS and not self._can_run(name, place):
            return None
        else:
            value = self._value(written, kind, names, place / "value")
        if name == RUBRIC and value is None and (raw.get("rubricPrompt") or options.get("rubricPrompt")):
            value = ""
        if problem := self._problem(name, value, raw):
            self.problems.add(place / "value" if name in TYPES else place, f"{kind}: {problem}")
            return None
        check = {"type": kind, "value": value, **self._common(raw, names, place, threshold=True)}
        if raw.get("config") is not None:
            check["config"] = raw["config"]
        for key in ("transform", "contextTransform"):
            if code := raw.get(key):
                check[key] = self.transform(code, place / key)
        if name in GRADED:
            check |= self.graders.read(name, raw, options, place, test)
        return check

    def transform(self, code: Any, place: Place) -> str:
        """The code of a transform, or the absolute reference of its file; a problem where it cannot run."""
        if isinstance(code, str) and code.startswith(FILE) and is_program(code):
            return self._program(code, place) or ""
        if not isinstance(code, str) or code.startswith(FILE):
            self.problems.add(
                place, "a transform is an expression in JavaScript, or a file of JavaScript or Python"
            )
            return ""
        self._can_run("javascript", place)
        return code

    def _can_run(self, language: str, place: Place) -> bool:
        problem = self.files.programs.problem(".py" if language == "python" else ".js")
        if problem:
            self.problems.add(place, problem)
        return problem is None

    def _program(self, reference: str, place: Place) -> str | None:
        program = self.files.program(reference, place)
        if program is None:
            return None
        path, function = program
        return f"{FILE}{path}" + (f":{function}" if function else "")

    def _problem(self, name: str, value: Any, raw: Mapping[str, Any]) -> str | None:
        """Why an assertion that is checked here cannot be; ``None`` if it can."""
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
        find = self.graders.embedder if alike else self.graders.judge
        judge = find(raw.get("provider"), options, place, test)
        if not isinstance(text, str) or not text.strip():
            self.problems.add(place / "value", f"{kind} needs a text that says what to look for")
            return None
        common = self._common(raw, names, place)
        threshold = self._cosine(raw, place) if alike else None
        met = not kind.startswith(NOT)
        weight, metric = common.get("weight", 1.0), common.get("metric")
        return Rubric(text, judge, met, weight, metric, threshold) if judge else None

    def _cosine(self, raw: Mapping[str, Any], place: Place) -> float:
        threshold = raw.get("threshold", SIMILAR_ENOUGH)
        if isinstance(threshold, int | float) and not isinstance(threshold, bool) and -1 <= threshold <= 1:
            return float(threshold)
        self.problems.add(place / "threshold", "the threshold of similar is a number from -1 to 1")
        return SIMILAR_ENOUGH

    def _value(self, raw: Any, kind: str, names: Mapping[str, Any], place: Place) -> Any:
        json = kind.removeprefix(NOT) in _JSON
        if isinstance(raw, str) and raw.startswith(FILE):
            path = self.files.find(raw, place)
            if path is None:
                return raw
            raw = self._of_file(path, place)
        elif isinstance(raw, list):
            raw = [self._listed(each, place / number) for number, each in enumerate(raw)]
        value = filled(raw, names, place, self.problems)
        if json and isinstance(value, str):
            try:
                return parse_yaml(value) if value.strip() else None
            except (YamlError, ValueError):
                return value
        return value

    def _listed(self, raw: Any, place: Place) -> Any:
        path = self.files.find(raw, place) if isinstance(raw, str) and raw.startswith(FILE) else None
        return self._of_file(path, place) if path else raw

    def _of_file(self, path: Path, place: Place) -> Any:
        if path.suffix in DATA:
            return self.files.data(path, place)
        return (self.files.text(path, place) or "").strip()

    def _common(
        self, raw: Mapping[str, Any], names: Mapping[str, Any], place: Place, *, threshold: bool = False
    ) -> dict[str, Any]:
        """Weight and metric, and the threshold where that is asked for; those that are there."""
        metric = raw.get("metric")
        common = {
            "weight": self._weight(raw, place),
            "metric": None if metric is None else str(filled(metric, names, place / "metric", self.problems)),
            "threshold": self._threshold(raw, place) if threshold else None,
        }
        return {name: each for name, each in common.items() if each is not None}

    def _weight(self, raw: Mapping[str, Any], place: Place) -> float | None:
        weight = raw.get("weight")
        if weight is None or _is_number(weight, 0):
            return weight
        self.problems.add(place / "weight", "a weight is a number from 0 on")
        return None

    def _threshold(self, raw: Mapping[str, Any], place: Place) -> float | None:
        threshold = raw.get("threshold")
        if threshold is None or _is_number(threshold, -math.inf):
            return threshold
        self.problems.add(place / "threshold", "a threshold is a number")
        return None


def _is_number(value: Any, least: float) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and least <= value < math.inf
