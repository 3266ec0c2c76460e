"""Scores the records of an evaluation: by assertions that this process checks, and by those of models."""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from fairlane.apps.promptfoo.checking.checks import COMPARES, SETS, outcome
from fairlane.apps.promptfoo.checking.coded import graded
from fairlane.apps.promptfoo.grading.graders import select_best
from fairlane.apps.promptfoo.grading.questions import AnswerQuestions, Grader, grade
from fairlane.apps.promptfoo.planning.asking import asked_text, text_of
from fairlane.apps.promptfoo.planning.plans import PlannedRun
from fairlane.apps.promptfoo.planning.rows import (
    ASKED,
    CHECKS,
    DESCRIPTION,
    PROMPT,
    REQUEST,
    SCORING,
    TEST,
    THRESHOLD,
    TRANSFORM,
)
from fairlane.apps.promptfoo.programs.child import ProgramError
from fairlane.apps.promptfoo.programs.programs import Programs
from fairlane.apps.promptfoo.reading.prompts import PromptText
from fairlane.apps.promptfoo.reading.providers import CALLED
from fairlane.apps.promptfoo.scoring.verdicts import Part, Verdict, chosen, shown, verdict_of, verdict_over
from fairlane.apps.promptfoo.subjects import CheckError, Result, Subject, located, met, shaped, transformed
from fairlane.export.finish_reasons import is_filtered
from fairlane.model.job import JobState
from fairlane.model.record import Record
from fairlane.model.tokens import Price, cost_usd, price_of

Outcome = Result | CheckError


@dataclass(slots=True)
class Draft:
    """A record on its way to a verdict: the outcomes of its assertions, by their place."""

    record: Record
    plan: PlannedRun
    subject: Subject | None = None
    failure: str | None = None
    outcomes: dict[tuple[int, ...], Outcome] = field(default_factory=dict)
    graders: dict[tuple[int, ...], Grader] = field(default_factory=dict)

    @property
    def checks(self) -> Sequence[Mapping[str, Any]]:
        """The assertions that are checked here."""
        found: Sequence[Mapping[str, Any]] = self.record.row.get(CHECKS, ())
        return found


@dataclass(frozen=True, slots=True)
class Scorer:
    """Scores records. ``ask`` asks models, ``prices`` are those of ``fairlane.toml``.

    ``seen`` is called for each record, in order, with its verdict before outputs are compared, as promptfoo's
    ``afterEach`` is.
    """

    texts: Sequence[PromptText]
    programs: Programs
    ask: AnswerQuestions
    prices: Mapping[str, Price] = field(default_factory=dict)
    seen: Callable[[Record, PlannedRun, Verdict], None] | None = None

    def verdicts(
        self, records: Iterable[tuple[Record, PlannedRun]]
    ) -> Iterator[tuple[Record, PlannedRun, Verdict]]:
        """Each record with its verdict. The first that needs a model, and all after it, come at the end."""
        held: list[Draft] = []
        for record, plan in records:
            draft = self._draft(record, plan)
            if held or draft.graders or any(each["type"] in COMPARES for each in draft.checks):
                held.append(draft)
            else:
                yield draft.record, plan, self._shown(draft)
        self._grade(held)
        before = [self._shown(draft) for draft in held] if self.seen is not None else []
        self._compare(held)
        for number, draft in enumerate(held):
            compared = not before or any(each["type"] in COMPARES for _, each in _leaves(draft.checks))
            yield draft.record, draft.plan, self._verdict(draft) if compared else before[number]

    def _shown(self, draft: Draft) -> Verdict:
        """The current verdict, which it also passes to ``seen``."""
        verdict = self._verdict(draft)
        if self.seen is not None:
            self.seen(draft.record, draft.plan, verdict)
        return verdict

    def _draft(self, record: Record, plan: PlannedRun) -> Draft:
        record = _answered(record)
        draft = Draft(record, plan)
        row = record.row
        if record.state is not JobState.SUCCEEDED or not (
            CHECKS in row or SCORING in row or TRANSFORM in row
        ):
            return draft
        try:
            draft.subject = self._subject(record, plan)
        except ProgramError as error:
            draft.failure = f"the transform failed: {error}"
            return draft
        for place, check in _leaves(draft.checks):
            if check["type"] in COMPARES:
                continue
            try:
                found = outcome(check, draft.subject, self.programs)
            except CheckError as error:
                draft.outcomes[place] = error
                continue
            if isinstance(found, Result):
                draft.outcomes[place] = found
            else:
                draft.graders[place] = found
        return draft

    def _subject(self, record: Record, plan: PlannedRun) -> Subject:
        """The output after the provider's and the test's transforms. Raises `ProgramError`."""
        provider = plan.providers[record.model]
        row = record.row
        variables = {name: each for name, each in row.items() if not name.startswith("__")}
        number = row.get(PROMPT, plan.prompts[record.prompt] if record.prompt < len(plan.prompts) else 0)
        if ASKED in row:
            prompt = row[ASKED]
        elif REQUEST in row:
            prompt = text_of(row[REQUEST])
        else:
            prompt = asked_text(self.texts[number], variables)
        price = price_of(record.model, self.prices)
        cost = cost_usd(record.usage, price) if price is not None else None
        cost = row.get(CALLED, {}).get("cost", cost)
        test = {"vars": variables, "description": row.get(DESCRIPTION, ""), **_threshold(row)}
        answered = shaped(record, provider)
        subject = Subject(answered, answered, prompt, variables, record, provider, cost, test)
        if provider.transform:
            answered = transformed(provider.transform[0], answered, subject.context(), self.programs)
            subject = replace(subject, output=answered, answered=answered)
        if code := row.get(TRANSFORM):
            subject = replace(subject, output=transformed(code, answered, subject.context(), self.programs))
        return subject

    def _grade(self, drafts: Sequence[Draft]) -> None:
        graders: dict[tuple[int, tuple[int, ...]], Grader] = {
            (number, place): grader
            for number, draft in enumerate(drafts)
            for place, grader in draft.graders.items()
        }
        for (number, place), found in grade(graders, self.ask).items():
            drafts[number].outcomes[place] = found

    def _compare(self, drafts: Sequence[Draft]) -> None:
        """Score assertions that compare the outputs of one test, over all prompts and providers."""
        groups: dict[Hashable, list[Draft]] = {}
        for draft in drafts:
            if draft.subject is not None and TEST in draft.record.row:
                groups.setdefault((draft.record.row[TEST], draft.record.repetition), []).append(draft)
        graders: dict[tuple[Hashable, tuple[int, ...]], Grader] = {}
        for key, group in groups.items():
            for place, check in _leaves(group[0].checks):
                if check["type"] == "max-score":
                    _set_best(group, place, _highest(group, self._verdict), check["type"])
                elif check["type"] in COMPARES and len(group) > 1:
                    graders[key, place] = select_best(check, [d.subject for d in group if d.subject])
                elif check["type"] in COMPARES:
                    _fail(group, place, CheckError("there is one output alone: select-best compares several"))
        for (key, place), found in grade(graders, self.ask).items():
            if isinstance(found, CheckError):
                _fail(groups[key], place, found)
            else:
                _set_best(groups[key], place, int(found.score), "select-best")

    def _verdict(self, draft: Draft) -> Verdict:
        if draft.failure is not None:
            return Verdict("error", 0.0, (draft.failure,))
        parts = list(_parts(draft, draft.checks, ()))
        verdict = verdict_of(draft.record, parts)
        scoring = draft.record.row.get(SCORING)
        if scoring is None or draft.subject is None or verdict.outcome == "error":
            return verdict
        return self._overridden(scoring, verdict, draft)

    def _overridden(self, scoring: str, verdict: Verdict, draft: Draft) -> Verdict:
        """The verdict of the test's own scoring function."""
        components = [
            {"pass": part.passed, "score": part.score, "reason": part.sentence} for part in verdict.parts
        ]
        context = {**_threshold(draft.record.row), "componentResults": components}
        path, function = located(scoring)
        try:
            said = self.programs.file(path, function, [verdict.named_scores, context], default="get_score")
            result = graded(said, None)
        except ProgramError as error:
            return Verdict("failed", 0.0, (f"the scoring function failed: {error}",), verdict.parts)
        reasons = () if result.passed else (result.reason,)
        outcome: Literal["passed", "failed"] = "passed" if result.passed else "failed"
        return chosen(Verdict(outcome, result.score, reasons, verdict.parts))


def _threshold(row: Mapping[str, Any]) -> dict[str, Any]:
    """The test's threshold for a program; nothing where there is none."""
    return {"threshold": row[THRESHOLD]} if row.get(THRESHOLD) is not None else {}


def _leaves(checks: Sequence[Mapping[str, Any]]) -> Iterator[tuple[tuple[int, ...], Mapping[str, Any]]]:
    """Every assertion except sets, with its place."""
    for number, check in enumerate(checks):
        if check["type"] == SETS:
            for place, inner in _leaves(check["assert"]):
                yield (number, *place), inner
        else:
            yield (number,), check


def _parts(draft: Draft, checks: Sequence[Mapping[str, Any]], place: tuple[int, ...]) -> Iterator[Part]:
    for number, check in enumerate(checks):
        where = (*place, number)
        weight, metric, kind = check.get("weight", 1.0), check.get("metric"), check["type"]
        if kind == SETS:
            inner = verdict_over(tuple(_parts(draft, check["assert"], where)), check.get("threshold"))
            why = "; ".join(inner.reasons) or "not met"
            score = None if inner.outcome == "error" else inner.score
            yield Part(f"assert-set: {why}", score, weight, metric, inner.outcome == "passed", inner.metrics)
            continue
        found = draft.outcomes.get(where)
        if found is None:
            continue
        value = "" if check.get("value") in (None, "") else f" {shown(check['value'])}"
        if isinstance(found, CheckError):
            yield Part(f"{kind}{value}: {found}", None, weight, metric, passed=False)
        else:
            compared = kind in COMPARES
            sentence = f"{kind}{value}: {found.reason or 'not met'}"
            named = {name: (score, 1.0) for name, score in found.named.items()}
            yield Part(sentence, found.score, weight, metric, found.passed, named, compared)


def _highest(group: Sequence[Draft], verdict: Callable[[Draft], Verdict]) -> int:
    scores = [verdict(draft).score for draft in group]
    return scores.index(max(scores))


def _set_best(group: Sequence[Draft], place: tuple[int, ...], best: int, kind: str) -> None:
    for number, draft in enumerate(group):
        draft.outcomes[place] = met(number == best, f"{kind} chose another output")


def _fail(group: Sequence[Draft], place: tuple[int, ...], error: CheckError) -> None:
    for draft in group:
        draft.outcomes[place] = error


def _answered(record: Record) -> Record:
    """The record. If a content filter stopped it and its test expects a refusal, the error becomes the
    output. promptfoo makes it the output of every test.
    """
    if record.state is not JobState.FAILED or not is_filtered(record.error):
        return record
    if not any(check["type"].endswith("is-refusal") for _, check in _leaves(record.row.get(CHECKS, ()))):
        return record
    return replace(record, state=JobState.SUCCEEDED, output=record.error, finish_reason="content_filter")
