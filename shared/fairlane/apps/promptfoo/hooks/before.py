"""Lets hooks change the suite, and each test for each provider, before any call."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fairlane.apps.promptfoo.hooks.hooks import Hooks
from fairlane.apps.promptfoo.programs.child import ProgramError
from fairlane.apps.promptfoo.reading.case import Case
from fairlane.apps.promptfoo.reading.cases import read_test
from fairlane.apps.promptfoo.reading.places import Place
from fairlane.apps.promptfoo.reading.prompts import PromptText, prompt_of
from fairlane.apps.promptfoo.reading.providers import Provider


@dataclass(slots=True)
class SuiteHooks:
    """Shows ``beforeAll`` a suite, and reads what it changed.

    ``prompts`` and ``derived`` then have the hooks' changes.
    """

    hooks: Hooks
    place: Place
    prompts: Sequence[PromptText]
    providers: Sequence[Provider]
    derived: Any
    description: str

    def __call__(self, default: Any, tests: Sequence[Case], scenarios: Any) -> tuple[Any, list[Case], Any]:
        """``defaultTest``, tests and scenarios as the hooks leave them."""
        if not self.hooks.have("beforeAll"):
            return default, list(tests), scenarios
        given = self._suite(default, tests, scenarios)
        try:
            left = self.hooks.before_all(given)
        except ProgramError as error:
            self.place.refuse(str(error))
            return default, list(tests), scenarios
        self.derived = left.get("derivedMetrics")
        self.prompts = list(self._prompts(left.get("prompts")))
        found = list(self._tests(left.get("tests"), tests))
        return left.get("defaultTest"), found, left.get("scenarios")

    def _suite(self, default: Any, tests: Sequence[Case], scenarios: Any) -> dict[str, Any]:
        own = dict(default) if isinstance(default, Mapping) else {}
        return {
            "description": self.description,
            "prompts": [{"raw": each.raw, "label": each.label} for each in self.prompts],
            "providers": [{"id": each.identity, "label": each.label} for each in self.providers],
            "tests": [described(each) for each in tests],
            "scenarios": scenarios,
            "defaultTest": {**own, "assert": own.get("assert") or []},
            "derivedMetrics": self.derived,
        }

    def _prompts(self, left: Any) -> Iterator[PromptText]:
        known = {(each.raw, each.label): each for each in self.prompts}
        for number, each in enumerate(left if isinstance(left, list) else []):
            raw, label = (each.get("raw"), each.get("label")) if isinstance(each, Mapping) else (each, None)
            same = known.get((str(raw), str(label)))
            if same is not None:
                yield same
            elif label not in {each.label for each in self.prompts}:
                self.place.note(
                    f"the prompt {label!r} that beforeAll adds is asked of no provider, as in promptfoo"
                )
            elif isinstance(raw, str):
                yield from prompt_of(raw, self.place / "prompts" / number, label)

    def _tests(self, left: Any, tests: Sequence[Case]) -> Iterator[Case]:
        known = {_key(described(each)): each for each in tests}
        for number, each in enumerate(left if isinstance(left, list) else []):
            same = known.get(_key(each))
            where = (
                tests[number].place
                if number < len(tests)
                else self.place.within(self.place.file) / "tests" / number
            )
            yield same if same is not None else read_test(each, where)


@dataclass(frozen=True, slots=True)
class TestHooks:
    """Shows ``beforeEach`` each test, once for each prompt and provider that it goes to, and repetition."""

    hooks: Hooks
    place: Place
    prompts: Sequence[PromptText]
    providers: Sequence[Provider]
    repetitions: int

    def cases(self, made: Iterable[tuple[Case, Mapping[str, Any]]]) -> Iterator[Case]:
        """Tests with one set of variables each. A test that hooks change by prompt or provider becomes
        several.
        """
        for number, (case, written) in enumerate(made):
            if case.options.get("transformVars"):
                case.place.refuse("beforeEach is not supported with transformVars")
                return
            before = described(case, written)
            try:
                steps = list(self._steps(case, before))
            except ProgramError as error:
                self.place.refuse(str(error))
                return
            after = {_key(test) for _, _, test in steps}
            if len(after) <= 1:
                test = steps[0][2] if steps else before
                yield self._one(case, test, written)
                continue
            first: dict[tuple[str, str], Mapping[str, Any]] = {}
            for prompt, provider, test in steps:
                if _key(first.setdefault((prompt, provider), test)) != _key(test):
                    self.place.refuse("beforeEach returns another test at each repetition: leave out repeat")
                    return
            for (prompt, provider), test in first.items():
                own = self._one(case, test, written)
                yield replace(own, group=f"hook {number}", only=(prompt, provider))

    def _steps(self, case: Case, before: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
        for _ in range(self.repetitions):
            for provider in self.providers:
                for prompt in self.prompts:
                    if case.gets(prompt.label, (provider.label, provider.identity)):
                        yield prompt.label, provider.label, self.hooks.before_each(before)

    def _one(self, case: Case, test: Mapping[str, Any], written: Mapping[str, Any]) -> Case:
        if _key(test) == _key(described(case, written)):
            return case.with_values(written)
        made = read_test(test, case.place)
        return replace(made, options={**made.options, "disableVarExpansion": True})


def described(case: Case, variables: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A test as a configuration has it; ``variables`` in place of its own."""
    own = {name: value for name, (value, _) in case.variables.items()} if variables is None else variables
    test: dict[str, Any] = {"vars": dict(own), "assert": [raw for raw, _ in case.assertions]}
    test |= {"options": dict(case.options), "metadata": dict(case.metadata)}
    named = {
        "description": case.description or None,
        "threshold": case.threshold,
        "assertScoringFunction": case.scoring[0] if case.scoring else None,
        "prompts": list(case.prompts) if case.prompts is not None else None,
        "providers": list(case.providers) if case.providers is not None else None,
    }
    return {**test, **{name: value for name, value in named.items() if value is not None}}


def _key(test: Any) -> str:
    return json.dumps(test, sort_keys=True, ensure_ascii=False, default=str)
