"""Sums a run's records up as they pass: scores, failures, tokens and cost."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

from fairlane.client.views.summary import TASK, Endings, Failure, Spending, Summary
from fairlane.core.errors import RunArchived
from fairlane.export.finish_reasons import Ending, ending_of
from fairlane.export.moments import Moments, OpenRows
from fairlane.model.evaluators import CallSpec
from fairlane.model.job import JobState
from fairlane.model.lane import FUNCTIONS
from fairlane.model.record import PROMPT_CUT, Record
from fairlane.model.run import RunSpec, RunState
from fairlane.model.run_status import Scores
from fairlane.model.sessions import SessionRecord
from fairlane.model.tokens import NO_UNKEPT, Price, Unkept, Usage, cost_usd, price_of
from fairlane.pipeline.evaluations import NOT_JUDGED
from fairlane.templates.template import plain_template

MOST_FAILURES = 1000
"""Different failures that are counted separately; further ones count as `OTHER_ERRORS`."""

MOST_MODELS = 1000
"""Models of invalid items that are counted: their rows may name a different one each."""

MOST_REASONS = 1000
"""Different finish reasons that are counted: there are few, unless a provider invents them."""

OTHER_ERRORS = "other errors"
ERROR_CHARS = 300

_ONE_OFF = re.compile(
    r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"  # a UUID
    r"|\b(?=\w*\d)\w{12,}\b"  # an id, like req_011CSHoEeqs5C35K
    r"|\b\d{5,}\b"
    r"|\brow [\d,]+(?= has no output)",  # the turn that a conversation lacks
    re.IGNORECASE,
)


class Tally:
    """Sums up a stream of records; memory grows only with models, evaluators and kinds of failure."""

    def __init__(self, spec: RunSpec, prices: Mapping[str, Price]) -> None:
        self._spec, self._names = spec, _score_names(spec)
        self._models = {step.name: step.model for step in spec.evals}
        self._sums = {name: Moments() for name in self._names}
        self._by_model: dict[str, dict[str, Moments]] = {}
        self._rows = OpenRows(spec.cells_per_row)
        self._items_by_model, self._by_state = Counter[str](), Counter[JobState]()
        self._invalid_by_model = Counter[str]()
        self._failures, self._tasks, self._evaluations = _Failures(), _Ledger(prices), _Ledger(prices)
        self._cached = 0
        self._reasons, self._empty = Counter[tuple[str, str | None]](), Counter[str]()
        self._prompts_cut = Counter[str]()

    @property
    def items(self) -> int:
        """Records so far."""
        return self._by_state.total()

    def add(self, record: Record) -> None:
        """Add a record; call it once for each."""
        self._by_state[record.state] += 1
        self._cached += record.cached
        self._failures.add(record)
        if record.state is JobState.INVALID:
            known = record.model in self._invalid_by_model or record.model in self._spec.models
            if known or len(self._invalid_by_model) < MOST_MODELS:
                self._invalid_by_model[record.model] += 1
            self._list(record.scores)
            self._rows.add(record.item, ())
            return
        self._items_by_model[record.model] += 1
        if record.state is JobState.SUCCEEDED:
            self._end(record)
        of_model = self._by_model.setdefault(record.model, {})
        self._list(record.scores)
        found = {name: value for name, value in record.scores.items() if value is not None}
        values = [(self._sums[name], value) for name, value in found.items()]
        values += [(of_model.setdefault(name, Moments()), value) for name, value in found.items()]
        self._rows.add(record.item, values)
        if not record.cached:
            self._tasks.book(record.model, record.usage)
            if (
                record.usage.total is None
                and record.state is JobState.SUCCEEDED
                and self._calls(record.model)
            ):
                self._tasks.missed[record.model] += 1
        for name, usage in record.eval_usage.items():
            self._evaluate(self._models.get(name, name), usage)
        for name, unkept in record.unkept.items():
            if name == TASK:
                self._tasks.book_unkept(record.model, unkept)
            else:
                self._evaluations.book_unkept(self._models.get(name, name), unkept)

    def _evaluate(self, model: str, usage: Usage) -> None:
        self._evaluations.book(model, usage)
        if usage.total is None:
            self._evaluations.missed[model] += 1

    def _end(self, record: Record) -> None:
        ending = (record.model, record.finish_reason)
        known = len(self._reasons) < MOST_REASONS or ending in self._reasons
        self._reasons[ending if known else (record.model, None)] += 1
        if not (record.output or "").strip():
            self._empty[record.model] += 1
        if record.notes and PROMPT_CUT in record.notes.get(TASK, ""):
            self._prompts_cut[record.model] += 1

    def _endings(self) -> Iterator[tuple[str, Endings]]:
        """How outputs ended, for each model with outputs that are cut, empty or refused."""
        outputs, cut, refused = Counter[str](), Counter[str](), Counter[str]()
        for (model, reason), count in self._reasons.items():
            outputs[model] += count
            cut[model] += count if ending_of(reason) is Ending.LENGTH else 0
            refused[model] += count if ending_of(reason) is Ending.CONTENT_FILTER else 0
        for model in sorted(outputs):
            found = Endings(
                outputs[model], cut[model], self._empty[model], refused[model], self._prompts_cut[model]
            )
            if found.in_words():
                yield model, found

    def _calls(self, model: str) -> bool:
        """Whether a task is a call whose tokens count: neither a function nor an existing output."""
        return bool(self._spec.models) and not model.startswith(f"{FUNCTIONS}:")

    def _list(self, scores: Iterable[str]) -> None:
        """Add these names: a scorer of the client, which no spec names, may fail on all items."""
        for name in scores:
            if name not in self._sums:
                self._sums[name] = Moments()

    def add_sessions(self, sessions: Iterable[SessionRecord]) -> dict[str, Scores]:
        """Add the records of sessions, and return their scores."""
        models = {step.name: step.model for step in self._spec.session_evals}
        sums, count, rows = {name: Moments() for name in models}, 0, OpenRows(self._spec.cells_per_row)
        with suppress(RunArchived):
            for session in sessions:
                count += 1
                found = [(sums[name], value) for name, value in session.scores.items() if value is not None]
                rows.add(session.items[0], found)
                for name, error in session.score_errors.items():
                    self._failures.count(name, error, session.items[0])
                for name, usage in session.eval_usage.items():
                    self._evaluate(models[name], usage)
                for name, unkept in session.unkept.items():
                    self._evaluations.book_unkept(models[name], unkept)
        return {name: each.scores(count, rows.of(each)) for name, each in sums.items()} if count else {}

    def summary(self, state: RunState, session_scores: Mapping[str, Scores] | None = None) -> Summary:
        """The summary so far."""
        return Summary(
            run=self._spec.run,
            name=self._spec.name,
            state=state,
            items=self.items,
            by_state=dict(self._by_state),
            cached=self._cached,
            scores={name: self._scores(each, self.items) for name, each in self._sums.items()},
            scores_by_model=dict(self._scores_by_model()),
            session_scores=session_scores or {},
            failures=self._failures.all(),
            tasks=self._tasks.all(),
            evaluations=self._evaluations.all(),
            unreported=dict(sorted((self._tasks.missed + self._evaluations.missed).items())),
            endings=dict(self._endings()),
        )

    def _scores(self, moments: Moments, items: int) -> Scores:
        return moments.scores(items, self._rows.of(moments))

    def _scores_by_model(self) -> Iterator[tuple[str, Mapping[str, Scores]]]:
        """Scores of each model. An invalid item counts where its model is known, as its row may hold any."""
        named = {each for each in self._spec.models if self._invalid_by_model[each] and _is_constant(each)}
        for model in dict.fromkeys((*self._by_model, *sorted(named))):
            found, items = self._by_model.get(model, {}), self._items_by_model[model]
            items += self._invalid_by_model[model]
            if self._sums:
                yield model, {name: self._scores(found.get(name, Moments()), items) for name in self._sums}


def summarise(
    spec: RunSpec,
    state: RunState,
    records: Iterable[Record],
    prices: Mapping[str, Price],
    sessions: Iterable[SessionRecord] = (),
) -> Summary:
    """Sum all records of a run up as they pass."""
    tally = Tally(spec, prices)
    for record in records:
        tally.add(record)
    return tally.summary(state, tally.add_sessions(sessions))


def _is_constant(model: str) -> bool:
    """Whether a model is no template over the row."""
    plain = plain_template(model)
    return plain is not None and not plain.names


def _score_names(spec: RunSpec) -> list[str]:
    """Names of the scores that every item may have."""
    pure = [each.name for each in spec.evaluators if not isinstance(each, CallSpec)]
    return [*pure, *(step.name for step in spec.evals if step.scored)]


class _Failures:
    """Failures by step and error, with the first item of each."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], tuple[int, int]] = {}

    def add(self, record: Record) -> None:
        """Count a record's failures; of a failed task, not its evaluations."""
        if record.state is not JobState.SUCCEEDED:
            self.count(TASK, record.error or str(record.state), record.item)
            return
        for name, error in record.score_errors.items():
            if error != NOT_JUDGED:
                self.count(name, error, record.item)

    def all(self) -> tuple[Failure, ...]:
        found = [Failure(*key, count, item) for key, (count, item) in self._found.items()]
        return tuple(sorted(found, key=lambda each: (-each.count, each.step, each.error)))

    def count(self, step: str, error: str, item: int) -> None:
        key = (step, _ONE_OFF.sub("…", error)[:ERROR_CHARS])
        if key not in self._found and len(self._found) >= MOST_FAILURES:
            key = (step, OTHER_ERRORS)
        count, first = self._found.get(key, (0, item))
        self._found[key] = (count + 1, min(first, item))


class _Ledger:
    """Calls and tokens of each model."""

    def __init__(self, prices: Mapping[str, Price]) -> None:
        self._prices = prices
        self._booked: dict[str, tuple[int, Usage]] = {}
        self._unkept: dict[str, Unkept] = {}
        self.missed = Counter[str]()

    def book_unkept(self, model: str, unkept: Unkept) -> None:
        self._unkept[model] = self._unkept.get(model, NO_UNKEPT) + unkept

    def book(self, model: str, usage: Usage) -> None:
        if usage.total is None:
            return
        calls, so_far = self._booked.get(model, (0, Usage(0, 0, 0, 0)))
        self._booked[model] = (calls + 1, so_far + usage)

    def all(self) -> tuple[Spending, ...]:
        return tuple(map(self._spending, sorted(self._booked.keys() | self._unkept.keys())))

    def _spending(self, model: str) -> Spending:
        calls, used = self._booked.get(model, (0, Usage()))
        unkept = self._unkept.get(model, NO_UNKEPT)
        used += unkept.usage
        return Spending(
            model,
            calls + unkept.answers,
            used.input_tokens or 0,
            used.output_tokens or 0,
            used.cached_tokens or 0,
            self._cost(model, used),
            used.written_tokens or 0,
            unkept.answers,
            unkept.usage.total or 0,
            self._cost(model, unkept.usage) if unkept.answers else None,
        )

    def _cost(self, model: str, used: Usage) -> float | None:
        price = price_of(model, self._prices)
        return None if price is None else cost_usd(used, price)
