"""Calls the hooks of ``extensions`` as promptfoo does, and applies the same parts of their answers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from fairlane.apps.promptfoo.programs.child import ProgramError
from fairlane.apps.promptfoo.programs.programs import PYTHON, Programs, is_program
from fairlane.apps.promptfoo.reading.places import FILE, Place, is_number

Moment = Literal["beforeAll", "beforeEach", "afterEach", "afterAll"]
_MOMENTS: Mapping[str, Moment] = {each: each for each in get_args(Moment)}

_SUITE = ("prompts", "tests", "scenarios", "defaultTest", "derivedMetrics")
"""The parts of the suite that ``beforeAll`` may change."""


@dataclass(frozen=True, slots=True)
class Extension:
    """A function of a file. ``only`` is the one hook that its name selects; without it, all hooks call it."""

    reference: str
    path: Path
    function: str | None
    only: Moment | None


@dataclass(frozen=True, slots=True)
class Hooks:
    """The extensions of a configuration. All methods raise `ProgramError`."""

    programs: Programs
    extensions: Sequence[Extension] = field(default_factory=tuple)

    def have(self, *moments: Moment) -> bool:
        """Whether any extension is called at one of these moments."""
        return any(each.only is None or each.only in moments for each in self.extensions)

    def before_all(self, suite: Mapping[str, Any]) -> Mapping[str, Any]:
        """The suite as the hooks leave it."""
        for each in self._of("beforeAll"):
            returned, given = self._call(each, "beforeAll", {"suite": suite})
            suite = given["suite"]
            if returned:
                own = _part(returned, "suite", each)
                suite = {**suite, **{name: own.get(name) for name in _SUITE}}
        return suite

    def before_each(self, test: Mapping[str, Any]) -> Mapping[str, Any]:
        """The test as the hooks leave it."""
        for each in self._of("beforeEach"):
            returned, given = self._call(each, "beforeEach", {"test": test})
            test = _part(returned, "test", each) if returned else given["test"]
        return test

    def after_each(self, test: Mapping[str, Any], result: Mapping[str, Any]) -> Mapping[str, Any]:
        """The result with the scores and the metadata that the hooks add; nothing else of it changes."""
        for each in self._of("afterEach"):
            returned, given = self._call(each, "afterEach", {"test": test, "result": result})
            said = [given["result"]]
            if returned and isinstance(returned, Mapping) and isinstance(returned.get("result"), Mapping):
                said.append(returned["result"])
            for one in said:
                scores = {**result["namedScores"], **_numbers(one.get("namedScores"))}
                metadata = {**result["metadata"], **(one.get("metadata") or {})}
                result = {**result, "namedScores": scores, "metadata": metadata}
        return result

    def after_all(self, context: Mapping[str, Any]) -> None:
        """Show the hooks all results."""
        for each in self._of("afterAll"):
            self._call(each, "afterAll", context)

    def _of(self, moment: Moment) -> list[Extension]:
        return [each for each in self.extensions if each.only in (None, moment)]

    def _call(
        self, extension: Extension, moment: Moment, context: Mapping[str, Any]
    ) -> tuple[Any, Mapping[str, Any]]:
        """What a hook returns, and the context as it left it."""
        new = extension.only is not None
        args = [context, {"hookName": moment}] if new else [moment, context]
        try:
            returned, left = self.programs.hook(extension.path, extension.function, args)
        except ProgramError as error:
            raise ProgramError(
                f"{moment} of {extension.reference.removeprefix(FILE)} failed: {error}"
            ) from error
        return returned, left[0 if new else 1]


def read_hooks(raw: Any, place: Place) -> Hooks:
    """The hooks that ``extensions`` name; what cannot be called becomes a problem."""
    if raw is not None and not isinstance(raw, list):
        place.refuse("extensions are a list of files like file://hooks.js:beforeAll")
        raw = []
    found = []
    for number, each in enumerate(raw or []):
        where = place / number
        if not (isinstance(each, str) and each.startswith(FILE) and is_program(each)):
            remedy = "name one like file://hooks.py:extension_hook"
            where.refuse(f"the extension {each!r} is no file of JavaScript or Python: {remedy}")
        elif program := where.program(each):
            path, function = program
            only = _MOMENTS.get(function or "")
            named = function or ("get_transform" if path.suffix in PYTHON else None)
            found.append(Extension(each, path, named, only))
    return Hooks(place.programs, tuple(found))


def _part(returned: Any, name: str, extension: Extension) -> Mapping[str, Any]:
    found = returned.get(name) if isinstance(returned, Mapping) else None
    if not isinstance(found, Mapping):
        raise ProgramError(f"{extension.reference.removeprefix(FILE)} returned no context with a {name}")
    return found


def _numbers(scores: Any) -> dict[str, float]:
    return {
        str(name): float(each)
        for name, each in (scores.items() if isinstance(scores, Mapping) else ())
        if is_number(each)
    }
