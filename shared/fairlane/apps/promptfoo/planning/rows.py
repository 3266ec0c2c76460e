"""Tests become rows: one for every combination of their variables, with what their outputs must meet."""

import itertools
import json
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from fairlane.apps.promptfoo.checking.assertions import AssertionReader
from fairlane.apps.promptfoo.checking.checks import COMPARES, SIMILAR
from fairlane.apps.promptfoo.grading.judges import Judges, Rubric
from fairlane.apps.promptfoo.hooks.before import TestHooks
from fairlane.apps.promptfoo.programs.child import ProgramError
from fairlane.apps.promptfoo.programs.programs import is_program
from fairlane.apps.promptfoo.reading.case import Case
from fairlane.apps.promptfoo.reading.earlier import variables_key
from fairlane.apps.promptfoo.reading.places import FILE, MEDIA, Place, is_pattern
from fairlane.apps.promptfoo.reading.prompts import PromptText
from fairlane.apps.promptfoo.reading.templates import compiled, filled, read_by, rendered
from fairlane.apps.promptfoo.subjects import transformed
from fairlane.evaluators.assertions import NOT
from fairlane.model.choices import CONVERSATION

ASSERTIONS, RUBRICS, THRESHOLD = "__assert", "__rubrics", "__threshold"
CHECKS, TRANSFORM, SCORING = "__checks", "__transform", "__scoring"
TEST, REQUEST, PROMPT, ASKED = "__test", "__request", "__prompt_number", "__asked"
STEP = "__step"
SERIAL, STORE_AS, CONVERSATION_ID = "__serial", "__store_as", "__conversation_id"
DESCRIPTION = "__description"
"""Fields of a row beside its variables; no variable begins with ``__``."""


@dataclass(slots=True)
class RowMaker:
    """Makes rows, and checks that every prompt can be rendered for each.

    With ``steps``, rows have their number, for hooks that see results.
    """

    assertions: AssertionReader
    judges: Judges
    steps: bool = False
    cases: list[Case] = field(default_factory=list)
    names: list[dict[str, Any]] = field(default_factory=list)

    def rows(
        self, cases: Sequence[Case], prompts: Sequence[PromptText], hooks: TestHooks
    ) -> list[dict[str, Any]]:
        """A row for each combination, in the order of the tests, which ``hooks`` may change first."""
        remembers = any(case.options.get("storeOutputAs") for case in cases)
        if hooks.hooks.have("beforeEach"):
            written = ((case, raw) for case in cases for raw, _ in self.combinations(case, prompts))
            cases = list(hooks.cases(written))
        made = [(case, names) for case in cases for _, names in self.combinations(case, prompts)]
        self._check_stored(cases)
        self._check(made, prompts)
        self.cases = [case for case, _ in made]
        self.names = [names for _, names in made]
        rows = [
            self._row(case, names, number, remembers=remembers) for number, (case, names) in enumerate(made)
        ]
        if any(CONVERSATION_ID in row for row in rows):
            for row in rows:
                row.setdefault(CONVERSATION_ID, "")  # promptfoo's tests without an id are one conversation
        return rows

    def _check_stored(self, cases: Sequence[Case]) -> None:
        """Note variables and assertions that read what a test stores: they are filled before any call."""
        stored = {str(store) for case in cases if (store := case.options.get("storeOutputAs"))}
        for case in cases if stored else ():
            for value, place in (*case.variables.values(), *case.assertions):
                for name in sorted(stored & read_by(value)):
                    place.refuse(f"reads {name!r}, which a test stores: only prompts read it")

    def _check(self, made: Sequence[tuple[Case, dict[str, Any]]], prompts: Sequence[PromptText]) -> None:
        """Render every prompt for every row, in the order in which they will be asked."""
        templates = [
            (prompt.place, template)
            for prompt in prompts
            for text in prompt.texts
            if (template := compiled(text, prompt.place)) and not template.constant
        ]
        memory: dict[str, Any] = {CONVERSATION: []}
        for case, names in sorted(made, key=lambda each: not each[0].options.get("runSerially")):
            for place, template in templates:
                rendered(template, {"row": names, **memory, **names}, place)
            if store := case.options.get("storeOutputAs"):
                memory[str(store)] = ""

    def matching(
        self,
        results: Sequence[Mapping[str, Any]],
        prompts: Sequence[PromptText],
        tests: Sequence[Case],
        default: Case,
    ) -> list[Case]:
        """The tests whose variables are those of ``results``, each once.

        Of a test with lists of values, only the combinations that did not pass, after all whole tests.
        """
        wanted = {variables_key(each) for each in results}
        whole, parts, seen = list[Case](), list[Case](), set[str]()
        for test in tests:
            with test.place.problems.suppressed():
                found = list(self.combinations(test.with_defaults(default), prompts))
            for written, asked in found:
                key = variables_key(asked)
                if key in seen or not {key, variables_key(written)} & wanted:
                    continue
                seen.add(key)
                if len(found) == 1:
                    whole.append(test)
                else:
                    parts.append(test.with_values(written))
        return [*whole, *parts]

    def combinations(
        self, case: Case, prompts: Sequence[PromptText]
    ) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        """Each set of variables of a test: as it is written, and as prompts and assertions see it."""
        spread = not case.options.get("disableVarExpansion")
        written = {name: self._expanded(value, place) for name, (value, place) in case.variables.items()}
        values = [
            value if spread and isinstance(value, list) and value and isinstance(value[0], str) else [value]
            for value in written.values()
        ]
        for chosen in itertools.product(*values):
            raw = dict(zip(case.variables, chosen, strict=True))
            names: dict[str, Any] = dict(raw)
            for name, (_, place) in case.variables.items():
                read = self._read(raw[name], name, raw, prompts, place)
                names[name] = filled(read, {**names, "row": names}, place)
            yield raw, self._transformed(case, names)

    def _expanded(self, value: Any, place: Place) -> Any:
        """The references that a pattern such as ``file://articles/*`` stands for; else the value."""
        if not (isinstance(value, str) and value.startswith(FILE) and is_pattern(value)):
            return value
        return [f"{FILE}{path}" for path in place.matching(value)] or None

    def _transformed(self, case: Case, names: dict[str, Any]) -> dict[str, Any]:
        """The variables as the test's ``transformVars`` makes them."""
        code = case.options.get("transformVars")
        if not code:
            return names
        place = case.place / "options" / "transformVars"
        code = self.assertions.transform(code, place)
        try:
            context = {"uuid": str(uuid.uuid4()), "prompt": {}}
            found = transformed(code, names, context, place.programs, name="vars") if code else None
        except ProgramError as error:
            place.refuse(f"transformVars: {error}")
            return names
        if code and not isinstance(found, Mapping):
            place.refuse("transformVars returned no object")
        return {str(name): each for name, each in found.items()} if isinstance(found, Mapping) else names

    def _read(
        self, value: Any, name: str, raw: Mapping[str, Any], prompts: Sequence[PromptText], place: Place
    ) -> Any:
        """A variable's value: its own, its file's contents, or what its program returns."""
        if not (isinstance(value, str) and value.startswith(FILE)):
            return value
        if is_program(value):
            return self._of_program(value, name, raw, prompts, place)
        path = place.find(value)
        if path is None:
            return None
        return place.base64(path) if path.suffix.lower() in MEDIA else place.contents(path)

    def _of_program(
        self, value: str, name: str, raw: Mapping[str, Any], prompts: Sequence[PromptText], place: Place
    ) -> Any:
        """The ``output`` of a function that gets the variable's name, the first prompt and all variables."""
        program = place.program(value)
        if program is None:
            return None
        path, function = program
        arguments = [name, prompts[0].raw if prompts else "", dict(raw), {}]
        if path.suffix == ".py":
            arguments.pop()
        try:
            found = place.programs.file(path, function, arguments, default="get_var")
        except ProgramError as error:
            place.refuse(f"{value.removeprefix(FILE)}: {error}")
            return None
        problem = found.get("error") if isinstance(found, Mapping) else None
        if problem or not isinstance(found, Mapping) or "output" not in found:
            place.refuse(f"{value.removeprefix(FILE)}: {problem or 'it returned no output'}")
            return None
        return found["output"]

    def _row(self, case: Case, names: Mapping[str, Any], number: int, *, remembers: bool) -> dict[str, Any]:
        asserted = self.assertions.read(case.assertions, {**names, "row": names}, case.options, case.place)
        row: dict[str, Any] = {**names, ASSERTIONS: asserted.plain}
        if asserted.checks:
            row[CHECKS] = asserted.checks
        if any(each["type"] in COMPARES for each in asserted.checks):
            row[TEST] = number if case.group is None else case.group
        if self.steps:
            row[STEP] = number
        code = case.options.get("transform") or case.options.get("postprocess")
        if code:
            row[TRANSFORM] = self.assertions.transform(code, case.place / "options" / "transform")
        if case.scoring:
            row[SCORING] = self.assertions.transform(*case.scoring)
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
            row[CONVERSATION_ID] = _as_key(conversation)
        return row

    def _rubrics(self, rubrics: Sequence[Rubric], row: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """The evaluator of each rubric of a row; also puts its text into the field that the evaluator
        reads.
        """
        for name, rubric in zip(self.judges.names(rubrics), rubrics, strict=True):
            row[self.judges.field(name)] = rubric.text
            described: dict[str, Any] = {"evaluator": name, "weight": rubric.weight}
            if rubric.metric:
                described["metric"] = rubric.metric
            if rubric.threshold is not None:
                described["type"] = SIMILAR if rubric.met else NOT + SIMILAR
            yield described


def _as_key(value: object) -> str:
    """A conversationId as promptfoo keeps conversations by it, in a text: 7, 7.0 and "7" are one."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, ensure_ascii=False)
