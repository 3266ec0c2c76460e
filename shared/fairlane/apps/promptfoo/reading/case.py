"""A test and an assertion as written in a configuration, before rendering."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from fairlane.apps.promptfoo.reading.places import Place
from fairlane.evaluators.assertions import NOT


@dataclass(frozen=True, slots=True)
class Case:
    """A test or ``defaultTest`` as written, with the places of its parts, before rendering.

    Tests of one ``group`` are forms of one test, and their outputs are compared. ``only`` has the labels of
    the one prompt and provider that a form is for.
    """

    place: Place
    description: str
    variables: Mapping[str, tuple[Any, Place]]
    assertions: tuple[tuple[Any, Place], ...]
    options: Mapping[str, Any]
    threshold: float | None
    metadata: Mapping[str, Any]
    scoring: tuple[str, Place] | None = None
    prompts: tuple[str, ...] | None = None
    providers: tuple[str, ...] | None = None
    group: str | None = None
    only: tuple[str, str] | None = None

    def with_defaults(self, default: Case) -> Case:
        """This test, with the default's values where it has none."""
        inherited = () if self.options.get("disableDefaultAsserts") else default.assertions
        return replace(
            self,
            variables={**default.variables, **self.variables},
            assertions=(*inherited, *self.assertions),
            options={**default.options, **self.options},
            threshold=default.threshold if self.threshold is None else self.threshold,
            metadata={**default.metadata, **self.metadata},
            scoring=self.scoring or default.scoring,
            prompts=default.prompts if self.prompts is None else self.prompts,
            providers=default.providers if self.providers is None else self.providers,
        )

    def with_values(self, values: Mapping[str, Any]) -> Case:
        """This test with one value for each variable, without further expansion of lists."""
        places = {name: place for name, (_, place) in self.variables.items()}
        variables = {name: (value, places.get(name, self.place)) for name, value in values.items()}
        return replace(self, variables=variables, options={**self.options, "disableVarExpansion": True})

    def gets(self, prompt: str, provider: tuple[str, str]) -> bool:
        """Whether this test runs with a prompt of this label and a provider of this label and id."""
        if self.only is not None and self.only != (prompt, provider[0]):
            return False
        asked = self.prompts is None or any(fits(each, prompt) for each in self.prompts)
        return asked and (
            self.providers is None or any(fits(each, name) for each in self.providers for name in provider)
        )


@dataclass(frozen=True, slots=True)
class WrittenAssertion:
    """An assertion as it is written at ``place``, of a test at ``test`` with these variables and options."""

    raw: Mapping[str, Any]
    kind: str
    names: Mapping[str, Any]
    options: Mapping[str, Any]
    place: Place
    test: Place

    @property
    def name(self) -> str:
        """Its type without ``not-``."""
        return self.kind.removeprefix(NOT)

    @property
    def provider(self) -> tuple[Any, Place]:
        """The provider that it names, else that of its test, and where it is written."""
        own = self.raw.get("provider")
        if own is None and self.options.get("provider") is not None:
            return self.options["provider"], self.test / "options" / "provider"
        return own, self.place / "provider"


def fits(wanted: str, label: str) -> bool:
    """Whether a label is the one wanted: the same, or below it (``group:``), or with a star at its end."""
    if wanted.endswith("*"):
        return label.startswith(wanted[:-1])
    return label == wanted or label.startswith(f"{wanted}:")
