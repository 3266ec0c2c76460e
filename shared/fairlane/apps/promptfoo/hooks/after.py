"""What hooks see of results, and the scores that they add."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fairlane.apps.promptfoo.hooks.before import described
from fairlane.apps.promptfoo.hooks.hooks import Hooks
from fairlane.apps.promptfoo.programs.child import ProgramError
from fairlane.apps.promptfoo.reading.cases import Case
from fairlane.apps.promptfoo.rows import ASKED, STEP
from fairlane.apps.promptfoo.scoring.tally import Cell
from fairlane.apps.promptfoo.scoring.verdicts import Part, Verdict
from fairlane.cli.output import say
from fairlane.model.results import Record

_REASONS = {"passed": 0, "failed": 1, "error": 2}
"""promptfoo's ``failureReason``."""


@dataclass(slots=True)
class ResultHooks:
    """Calls ``afterEach`` for each result and ``afterAll`` at the end. ``cases`` and ``names`` are by row."""

    hooks: Hooks
    cases: Sequence[Case]
    names: Sequence[Mapping[str, Any]]
    results: list[dict[str, Any]] = field(default_factory=list)
    failed: bool = False
    _told: set[str] = field(default_factory=set)

    def seen(self, cell: Cell, record: Record, verdict: Verdict) -> tuple[Verdict, dict[str, float]]:
        """The verdict with the scores that ``afterEach`` adds, and these scores by name."""
        if STEP not in record.row or not self.hooks.have("afterEach", "afterAll"):
            return verdict, {}
        number = record.row[STEP]
        test = described(self.cases[number], self.names[number])
        result, added = _result(cell, record, verdict, test, number), dict[str, float]()
        if self.hooks.have("afterEach"):
            try:
                after = self.hooks.after_each(test, result)
            except ProgramError as error:
                self._tell(str(error))
            else:
                before = result["namedScores"]
                added = {k: v for k, v in after["namedScores"].items() if before.get(k) != v}
                result = {**result, **after}
        if self.hooks.have("afterAll"):
            self.results.append(result)
        return (_with_scores(verdict, added) if added else verdict), added

    def end(self, evaluation: str, runs: Sequence[str]) -> None:
        """Show ``afterAll`` the results. If it fails, the error is printed and the evaluation has failed."""
        if not self.hooks.have("afterAll"):
            return
        prompts = list(
            dict.fromkeys((each["prompt"]["raw"], each["prompt"]["label"]) for each in self.results)
        )
        context = {
            "results": self.results,
            "prompts": [{"raw": raw, "label": label} for raw, label in prompts],
            "suite": {"description": evaluation},
            "config": {"description": evaluation},
            "evalId": runs[0] if runs else "",
        }
        try:
            self.hooks.after_all(context)
        except ProgramError as error:
            self._tell(str(error))
            self.failed = True

    def _tell(self, problem: str) -> None:
        if problem not in self._told and len(self._told) < 5:
            say(problem)
        self._told.add(problem)


def _result(
    cell: Cell, record: Record, verdict: Verdict, test: Mapping[str, Any], number: int
) -> dict[str, Any]:
    named: dict[str, float] = {}
    for part in verdict.parts:
        if part.metric is not None and part.score is not None:
            named[part.metric] = named.get(part.metric, 0.0) + part.score
    usage = record.usage
    tokens = {"prompt": usage.input_tokens or 0, "completion": usage.output_tokens or 0}
    passed, reason = verdict.outcome == "passed", "; ".join(verdict.reasons)
    components = [
        {"pass": part.passed, "score": part.score or 0.0, "reason": part.sentence} for part in verdict.parts
    ]
    return {
        "success": passed,
        "score": verdict.score,
        "namedScores": named,
        "failureReason": _REASONS[verdict.outcome],
        "error": reason or None,
        "vars": test["vars"],
        "testCase": test,
        "testIdx": number,
        "description": test.get("description"),
        "prompt": {"raw": record.row.get(ASKED) or cell.prompt, "label": cell.prompt},
        "provider": {"id": record.model, "label": cell.provider},
        "response": {
            "output": record.output,
            "tokenUsage": {**tokens, "total": sum(tokens.values())},
            "metadata": {},
        },
        "gradingResult": {
            "pass": passed,
            "score": verdict.score,
            "reason": reason,
            "namedScores": named,
            "componentResults": components,
        },
        "latencyMs": record.latency_ms,
        "metadata": dict(test["metadata"]),
    }


def _with_scores(verdict: Verdict, added: Mapping[str, float]) -> Verdict:
    """The verdict with these scores of metrics in place of those that it has of the same names."""
    kept = tuple(replace(part, metric=None) if part.metric in added else part for part in verdict.parts)
    own = tuple(
        Part("afterEach", score, 1.0, metric, passed=True, compared=True) for metric, score in added.items()
    )
    return replace(verdict, parts=(*kept, *own))
