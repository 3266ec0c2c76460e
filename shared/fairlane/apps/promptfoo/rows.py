"""Tests become rows: one for every combination of their variables, with what their outputs must meet."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fairlane.apps.promptfoo.asserting import SIMILAR, AssertionReader, Rubric
from fairlane.apps.promptfoo.cases import Case
from fairlane.apps.promptfoo.files import DATA, FILE, Files
from fairlane.apps.promptfoo.judges import Judges
from fairlane.apps.promptfoo.problems import Place, Problems
from fairlane.apps.promptfoo.prompts import PromptText
from fairlane.apps.promptfoo.templates import compiled, filled, rendered
from fairlane.evaluators.assertions import NOT
from fairlane.pipeline.conversation import CONVERSATION

ASSERTIONS, RUBRICS, THRESHOLD = "__assert", "__rubrics", "__threshold"
SERIAL, STORE_AS, CONVERSATION_ID = "__serial", "__store_as", "__conversation_id"
DESCRIPTION = "__description"
"""Fields of a row beside its variables; no variable begins with ``__``."""


@dataclass(slots=True)
class RowMaker:
    """Makes rows, and checks that every prompt can be rendered for each."""

    files: Files
    problems: Problems
    assertions: AssertionReader
    judges: Judges

    def rows(self, cases: Sequence[Case], prompts: Sequence[PromptText]) -> list[dict[str, Any]]:
        """A row for each combination, in the order of the tests."""
        remembers = any(case.options.get("storeOutputAs") for case in cases)
        made = [(case, names) for case in cases for names in self._combinations(case)]
        self._check(made, prompts)
        return [self._row(case, names, remembers=remembers) for case, names in made]

    def _check(self, made: Sequence[tuple[Case, dict[str, Any]]], prompts: Sequence[PromptText]) -> None:
        """Render every prompt for every row, in the order in which they will be asked."""
        templates = [
            (prompt.place, template)
            for prompt in prompts
            for text in prompt.texts
            if (template := compiled(text, prompt.place, self.problems)) and not template.constant
        ]
        memory: dict[str, Any] = {CONVERSATION: []}
        for case, names in sorted(made, key=lambda each: not each[0].options.get("runSerially")):
            for place, template in templates:
                rendered(template, {"row": names, **memory, **names}, place, self.problems)
            if store := case.options.get("storeOutputAs"):
                memory[str(store)] = ""

    def _combinations(self, case: Case) -> Iterator[dict[str, Any]]:
        spread = not case.options.get("disableVarExpansion")
        values = [
            value if spread and isinstance(value, list) and value and isinstance(value[0], str) else [value]
            for value, _ in case.variables.values()
        ]
        for chosen in itertools.product(*values):
            raw = dict(zip(case.variables, chosen, strict=True))
            names: dict[str, Any] = dict(raw)
            for name, (_, place) in case.variables.items():
                read = self._read(raw[name], place)
                names[name] = filled(read, {**names, "row": names}, place, self.problems)
            yield names

    def _read(self, value: Any, place: Place) -> Any:
        """What a variable's file holds, where it names one."""
        if not (isinstance(value, str) and value.startswith(FILE)):
            return value
        path = self.files.find(value, place)
        if path is None:
            return None
        if path.suffix in DATA:
            return self.files.data(path, place)
        return (self.files.text(path, place) or "").strip()

    def _row(self, case: Case, names: Mapping[str, Any], *, remembers: bool) -> dict[str, Any]:
        asserted = self.assertions.read(case.assertions, {**names, "row": names}, case.options, case.place)
        row: dict[str, Any] = {**names, ASSERTIONS: asserted.plain}
        if asserted.rubrics:
            row[RUBRICS] = list(self._rubrics(asserted.rubrics, row))
        if case.threshold is not None:
            row[THRESHOLD] = case.threshold
        if case.description:
            row[DESCRIPTION] = case.description
        if case.options.get("runSerially"):
            row[SERIAL] = True
        if remembers:
            row[STORE_AS] = str(case.options.get("storeOutputAs") or "")
        if (conversation := case.metadata.get("conversationId")) is not None:
            row[CONVERSATION_ID] = conversation
        return row

    def _rubrics(self, rubrics: Sequence[Rubric], row: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Where each rubric of a row is judged; puts its text into the field that its judge reads."""
        for name, rubric in zip(self.judges.names(rubrics), rubrics, strict=True):
            row[self.judges.field(name)] = rubric.text
            described: dict[str, Any] = {"evaluator": name, "weight": rubric.weight}
            if rubric.metric:
                described["metric"] = rubric.metric
            if rubric.threshold is not None:
                described["type"] = SIMILAR if rubric.met else NOT + SIMILAR
            yield described
