"""Shows results to hooks, and adds the scores that they return."""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from fairlane.apps.promptfoo.hooks.before import described
from fairlane.apps.promptfoo.hooks.hooks import Hooks
from fairlane.apps.promptfoo.planning.rows import ASKED, STEP
from fairlane.apps.promptfoo.programs.child import ProgramError
from fairlane.apps.promptfoo.reading.case import Case
from fairlane.apps.promptfoo.scoring.tally import Cell
from fairlane.apps.promptfoo.scoring.verdicts import Part, Verdict
from fairlane.cli.output import say
from fairlane.model.record import Record

_REASONS = {"passed": 0, "failed": 1, "error": 2}
"""promptfoo's ``failureReason``."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What ``afterEach`` left of a result: the scores that it added, and the metadata."""

    added: Mapping[str, float] = field(default_factory=dict)
    metadata: Mapping[str, Any] | None = None


@dataclass(slots=True)
class ResultHooks:
    """Calls ``afterEach`` for each result and ``afterAll`` at the end. ``cases`` and ``names`` are by row."""

    hooks: Hooks
    cases: Sequence[Case]
    names: Sequence[Mapping[str, Any]]
    results: list[dict[str, Any]] = field(default_factory=list)
    seen: deque[Seen] = field(default_factory=deque)
    failed: bool = False
    _reported: set[str] = field(default_factory=set)

    def see(self, cell: Cell, record: Record, verdict: Verdict) -> None:
        """Show ``afterEach`` a result, before outputs are compared. `conclude` follows in the same order."""
        self.seen.append(self._after_each(cell, record, verdict))

    def conclude(self, cell: Cell, record: Record, verdict: Verdict) -> tuple[Verdict, Mapping[str, float]]:
        """The final verdict with the scores that ``afterEach`` has added, and these scores by name."""
        seen = self.seen.popleft()
        if STEP in record.row and self.hooks.have("afterAll"):
            result = self._result(cell, record, verdict)
            named = {**result["namedScores"], **seen.added}
            metadata = result["metadata"] if seen.metadata is None else seen.metadata
            self.results.append({**result, "namedScores": named, "metadata": metadata})
        return (_with_scores(verdict, seen.added) if seen.added else verdict), seen.added

    def _after_each(self, cell: Cell, record: Record, verdict: Verdict) -> Seen:
        if STEP not in record.row or not self.hooks.have("afterEach"):
            return Seen()
        result = self._result(cell, record, verdict)
        try:
            after = self.hooks.after_each(result["testCase"], result)
        except ProgramError as error:
            self._report(str(error))
            return Seen()
        before = result["namedScores"]
        added = {name: score for name, score in after["namedScores"].items() if before.get(name) != score}
        return Seen(added, after["metadata"])

    def _result(self, cell: Cell, record: Record, verdict: Verdict) -> dict[str, Any]:
        number = record.row[STEP]
        test = described(self.cases[number], self.names[number])
        named = verdict.named_scores
        usage = record.usage
        tokens = {"prompt": usage.input_tokens or 0, "completion": usage.output_tokens or 0}
        passed, reason = verdict.outcome == "passed", "; ".join(verdict.reasons)
        components = [
            {"pass": part.passed, "score": part.score or 0.0, "reason": part.sentence}
            for part in verdict.parts
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

    def end(self, evaluation: str, runs: Sequence[str]) -> None:
        """Show ``afterAll`` the results. If it fails, the error is printed and the evaluation has failed."""
        if not self.hooks.have("afterAll"):
            return
        prompts = {tuple(each["prompt"].values()): each["prompt"] for each in self.results}
        context = {
            "results": self.results,
            "prompts": list(prompts.values()),
            "suite": {"description": evaluation},
            "config": {"description": evaluation},
            "evalId": runs[0] if runs else "",
        }
        try:
            self.hooks.after_all(context)
        except ProgramError as error:
            self._report(str(error))
            self.failed = True

    def _report(self, problem: str) -> None:
        if problem not in self._reported and len(self._reported) < 5:
            say(problem)
        self._reported.add(problem)


def _with_scores(verdict: Verdict, added: Mapping[str, float]) -> Verdict:
    """The verdict with these scores of metrics, which replace its own of the same names."""
    kept = tuple(
        replace(
            part,
            metric=None if part.metric in added else part.metric,
            named={name: each for name, each in part.named.items() if name not in added},
        )
        for part in verdict.parts
    )
    own = tuple(
        Part("afterEach", score, 1.0, metric, passed=True, compared=True) for metric, score in added.items()
    )
    return replace(verdict, parts=(*kept, *own))
