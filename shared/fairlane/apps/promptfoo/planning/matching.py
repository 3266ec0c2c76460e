"""Tests of a configuration that are those of earlier results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fairlane.apps.promptfoo.reading.case import Case
from fairlane.apps.promptfoo.selecting.earlier import variables_key

Combinations = Callable[[Case], Iterable[tuple[Mapping[str, Any], Mapping[str, Any]]]]
"""Each set of variables that a test has: as it is written, and as it is asked."""


@dataclass(frozen=True, slots=True)
class Earlier:
    """Keeps tests whose variables are those of ``results``."""

    results: Sequence[Mapping[str, Any]]
    combinations: Combinations

    def kept(self, tests: Sequence[Case], default: Case) -> list[Case]:
        """The tests, each once. Of one with lists of values, those that did not pass, at the end."""
        wanted = {variables_key(each) for each in self.results}
        whole, parts, seen = list[Case](), list[Case](), set[str]()
        for test in tests:
            found = list(self.combinations(test.after(default)))
            for written, asked in found:
                key = variables_key(asked)
                if key in seen or not {key, variables_key(written)} & wanted:
                    continue
                seen.add(key)
                if len(found) == 1:
                    whole.append(test)
                else:
                    parts.append(_alone(test, written))
        return [*whole, *parts]


def _alone(test: Case, written: Mapping[str, Any]) -> Case:
    """A test with one of its sets of variables."""
    variables = {
        name: (value, test.variables[name][1] if name in test.variables else test.place)
        for name, value in written.items()
    }
    return replace(test, variables=variables, options={**test.options, "disableVarExpansion": True})
