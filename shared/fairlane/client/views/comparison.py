"""Compares two runs: differences of their scores, item by item, with standard errors over rows."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol, TypeAlias

from fairlane.client.following.records import require_spec
from fairlane.client.views.html import Cell, note, table
from fairlane.client.views.student import critical
from fairlane.core.errors import SubmissionError
from fairlane.core.figures import figure
from fairlane.datasets.row_json import digest_of
from fairlane.evaluators.scorers import as_text
from fairlane.export.moments import Moments, mean_of, units
from fairlane.model.record import Record
from fairlane.model.run import RunSpec

Key: TypeAlias = tuple[bytes, bytes, int]
"""An item: its row, the rest of its identity, and how many alike came before it."""


@dataclass(frozen=True, slots=True)
class Difference:
    """One evaluator's paired difference, the second run's score minus the first's.

    ``pairs`` items have a score in both runs; ``rows`` distinct rows have such an item. ``mean`` is the mean
    over rows of each row's mean difference: repetitions, prompts and models of one row are not independent.
    ``first_mean`` and ``second_mean`` are over the same rows and pairs, so that ``mean`` is their difference.
    ``standard_error`` is that of this mean, ``s / √rows``; there is none for fewer than two rows. A value
    beyond the range of a float is ``None``, too. ``better``, ``worse`` and ``equal`` count pairs. ``missing``
    matched items lack a score in either run.
    """

    pairs: int
    rows: int
    missing: int
    first_mean: float | None
    second_mean: float | None
    mean: float | None
    standard_error: float | None
    better: int
    worse: int
    equal: int

    @property
    def interval(self) -> tuple[float, float] | None:
        """95 %: the mean ± `margin`; ``None`` without a standard error."""
        if self.mean is None or self.margin is None:
            return None
        return self.mean - self.margin, self.mean + self.margin

    @property
    def margin(self) -> float | None:
        """Half of the interval: so many standard errors as Student's t with ``rows - 1`` degrees says."""
        return None if self.standard_error is None else critical(self.rows - 1) * self.standard_error


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two runs, compared item by item.

    ``matched`` items are in both; ``only_first`` and ``only_second`` are in one alone. ``matched_by`` says
    what makes two items the same, and ``left_out`` in sentences what no difference includes.
    """

    first: str
    second: str
    matched: int
    only_first: int
    only_second: int
    scores: Mapping[str, Difference]
    only_first_scores: tuple[str, ...]
    only_second_scores: tuple[str, ...]
    matched_by: str
    left_out: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Everything above, ready for JSON."""
        return asdict(self)

    def _repr_html_(self) -> str:
        return _table(self)


class ScoredRun(Protocol):
    """The part of `Run` that a comparison reads."""

    @property
    def id(self) -> str:
        """The run's id within its team."""
        ...

    @property
    def name(self) -> str:
        """The name it was given, else its id."""
        ...

    @property
    def spec(self) -> RunSpec | None:
        """The submitted spec; ``None`` where it cannot be read."""
        ...

    def results(self) -> Iterator[Record]:
        """Every item's record, in item order."""
        ...


def compare_runs(first: ScoredRun, second: ScoredRun, by: str | Sequence[str] | None = None) -> Comparison:
    """Compare ``second`` with ``first``; see `Run.compare`.

    Where no values of ``by`` are equal, their texts are compared: a CSV has texts and JSON lines numbers.
    """
    fields = (by,) if isinstance(by, str) else tuple(by or ()) or None
    specs = require_spec(first.id, first.spec), require_spec(second.id, second.spec)
    found = _compared(first, second, _Identity(*specs, fields))
    if fields is None or found.matched:
        return found
    as_texts = _compared(first, second, _Identity(*specs, fields, as_texts=True))
    return as_texts if as_texts.matched else found


def _compared(first: ScoredRun, second: ScoredRun, identity: _Identity) -> Comparison:
    before = {key: dict(record.scores) for key, record in identity.keyed(first)}
    names_before = {name for scores in before.values() for name in scores}
    names_after: set[str] = set()
    sums: defaultdict[str, _Paired] = defaultdict(_Paired)
    matched = only_second = 0
    for key, record in identity.keyed(second):
        names_after |= record.scores.keys()
        old = before.pop(key, None)
        if old is None:
            only_second += 1
            continue
        matched += 1
        for name in old.keys() | record.scores.keys():
            sums[name].add(key[0], old.get(name), record.scores.get(name))
    identity.require_fields()
    both = sorted(names_before & names_after)
    titles = _titles(first, second)
    found = Comparison(
        first=titles[0],
        second=titles[1],
        matched=matched,
        only_first=len(before),
        only_second=only_second,
        scores={name: sums[name].difference() for name in both},
        only_first_scores=tuple(sorted(names_before - names_after)),
        only_second_scores=tuple(sorted(names_after - names_before)),
        matched_by=identity.in_words(),
        left_out=(),
    )
    return _with_sentences(found)


def _titles(first: ScoredRun, second: ScoredRun) -> tuple[str, str]:
    """The names of the runs, or their ids where the names are alike."""
    return (first.name, second.name) if first.name != second.name else (first.id, second.id)


class _Identity:
    """Which items of two runs are the same."""

    def __init__(
        self, first: RunSpec, second: RunSpec, fields: Sequence[str] | None, *, as_texts: bool = False
    ) -> None:
        """``as_texts``: the values of ``fields`` are the same if their texts are, like 1 and "1"."""
        self._specs, self._fields = {first.run: first, second.run: second}, fields
        self._as_texts = as_texts
        self._missing: Counter[str] = Counter()
        self._rows = 0
        self._by_prompt = len(first.prompts) > 1 or len(second.prompts) > 1
        self._by_model = len(first.models) > 1 or len(second.models) > 1

    def keyed(self, run: ScoredRun) -> Iterator[tuple[Key, Record]]:
        """The records of a run with their identities; equal items are matched by their order."""
        spec, seen = self._specs[run.id], Counter[tuple[bytes, bytes]]()
        prompts = [digest_of([message.model_dump() for message in each]) for each in spec.prompts]
        for record in run.results():
            rest: list[Any] = [record.repetition]
            if self._by_prompt:
                rest.append(prompts[record.prompt].hex())
            if self._by_model:
                rest.append(record.model)
            known = record.row or spec.source is None  # else its dataset has other rows, or is gone
            row = self._row(record.row) if known else digest_of([run.id, record.item])
            alike = (row, digest_of(rest))
            yield (*alike, seen[alike]), record
            seen[alike] += 1

    def _row(self, row: Mapping[str, Any]) -> bytes:
        self._rows += 1
        if self._fields is None:
            return digest_of(row)
        self._missing.update(name for name in self._fields if name not in row)
        values = [row.get(name) for name in self._fields]
        return digest_of([as_text(value) for value in values] if self._as_texts else values)

    def require_fields(self) -> None:
        """Raise `SubmissionError` for a field that no row has."""
        for name in self._fields or ():
            if self._rows and self._missing[name] == self._rows:
                problem = "no row of the two runs has this field"
                raise SubmissionError("by", name, problem, "Name one of theirs.")

    def in_words(self) -> str:
        """What makes two items the same."""
        row = "the row's content" if self._fields is None else f"the row's {', '.join(self._fields)}"
        if self._as_texts:
            row += " as text, since the runs have values of other types there,"
        also = [
            "repetition",
            *(["prompt"] if self._by_prompt else []),
            *(["model"] if self._by_model else []),
        ]
        return f"Items are matched by {row} and {' and '.join(also)}."


class _Paired:
    """Sums up pairs of scores, and their differences by row."""

    def __init__(self) -> None:
        self._rows: dict[bytes, tuple[int, int, int]] = {}
        self._signs: Counter[int] = Counter()
        self._missing = 0

    def add(self, row: bytes, first: float | None, second: float | None) -> None:
        """One matched item's scores."""
        if first is None or second is None:
            self._missing += 1
            return
        self._signs[(second > first) - (second < first)] += 1
        count, before, after = self._rows.get(row, (0, 0, 0))
        self._rows[row] = count + 1, before + units(first), after + units(second)

    def difference(self) -> Difference:
        """All pairs so far."""
        sums = (Moments(), Moments(), Moments())
        for count, *totals in self._rows.values():
            before, after = (mean_of(total, count) for total in totals)
            for moments, mean in zip(sums, (before, after, after - before), strict=True):
                if math.isfinite(mean):
                    moments.add(mean)
                    moments.end_row(1, mean)
        firsts, seconds, changes = (moments.scores(len(self._rows)) for moments in sums)
        return Difference(
            pairs=self._signs.total(),
            rows=len(self._rows),
            missing=self._missing,
            first_mean=firsts.mean,
            second_mean=seconds.mean,
            mean=None if changes.missing else changes.mean,
            standard_error=None if changes.missing else changes.standard_error,
            better=self._signs[1],
            worse=self._signs[-1],
            equal=self._signs[0],
        )


def _with_sentences(found: Comparison) -> Comparison:
    sentences = []
    for count, name in ((found.only_first, found.first), (found.only_second, found.second)):
        if count:
            sentences.append(f"Left out: {count:,} {_items(count)} of {name} alone.")
    for name, each in found.scores.items():
        if each.missing:
            items = f"{each.missing:,} matched {_items(each.missing)}"
            sentences.append(f"Left out of {name}: {items} without a score in both.")
    for names, run in ((found.only_first_scores, found.first), (found.only_second_scores, found.second)):
        if names:
            sentences.append(f"Only {run} has scores of {', '.join(names)}.")
    return replace(found, left_out=tuple(sentences))


def _items(count: int) -> str:
    return "item" if count == 1 else "items"


def _table(comparison: Comparison) -> str:
    means = [comparison.first, comparison.second, "difference", "± standard error"]
    rows = [[name, *_cells(each)] for name, each in comparison.scores.items()]
    title = f"{comparison.second} minus {comparison.first}"
    shown = table(title, ["evaluator", *means, "better", "worse", "equal"], rows)
    return shown + "".join(map(note, [comparison.matched_by, *comparison.left_out]))


def _cells(found: Difference) -> list[Cell]:
    numbers = (found.first_mean, found.second_mean, found.mean, found.standard_error)
    return [*map(figure, numbers), found.better, found.worse, found.equal]
