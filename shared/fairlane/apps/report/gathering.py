"""Collects a report's data from a stream of records: scores, latencies, cells to compare, examples."""

from __future__ import annotations

import heapq
import math
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from fairlane.client.views.summary import TASK
from fairlane.export.moments import Moments, OpenRows
from fairlane.model.job import JobState
from fairlane.model.record import Record
from fairlane.model.tokens import Usage

MOST_CELLS = 200
"""Most pairs of prompt and model that are compared; rows that name their model may make any number."""


def _numbers() -> array[float]:
    return array("d")


@dataclass(slots=True)
class CellSums:
    """The items of one prompt and one model."""

    prompt: int
    model: str
    items: int = 0
    succeeded: int = 0
    cached: int = 0
    usage: Usage = field(default_factory=Usage)
    latencies_ms: array[float] = field(default_factory=_numbers)
    scores: dict[str, Moments] = field(default_factory=dict)

    def values(self, record: Record) -> list[tuple[Moments, float]]:
        """The record's scores, each with the moments that it belongs to."""
        found = {name: value for name, value in record.scores.items() if value is not None}
        return [(self.scores.setdefault(name, Moments()), value) for name, value in found.items()]


@dataclass(slots=True)
class Gathering:
    """Collects data; memory grows by eight bytes for a score or a latency, and by ``examples`` records."""

    examples: int = 0
    items_per_row: int = 1
    scores: dict[str, array[float]] = field(default_factory=dict)
    latencies_ms: array[float] = field(default_factory=_numbers)
    output_tokens: array[float] = field(default_factory=_numbers)
    cells: dict[tuple[int, str], CellSums] = field(default_factory=dict)
    more_cells: bool = False
    _rows: OpenRows = field(init=False)
    _lowest: list[tuple[float, int, Record]] = field(default_factory=list)
    _highest: list[tuple[float, int, Record]] = field(default_factory=list)

    def __post_init__(self) -> None:
        """No row is open yet."""
        self._rows = OpenRows(self.items_per_row)

    def mean(self, cell: CellSums, name: str) -> tuple[float, float | None] | None:
        """An evaluator's mean and its standard error over rows, if there is one; ``None`` without scores."""
        moments = cell.scores.get(name)
        found = None if moments is None else moments.scores(0, self._rows.of(moments))
        return None if found is None or found.mean is None else (found.mean, found.standard_error)

    def passing(self, records: Iterable[Record]) -> Iterator[Record]:
        """Yield the records unchanged, and collect their data."""
        for record in records:
            self._collect(record)
            yield record

    def chosen(self) -> list[Record]:
        """The examples: half of them with the lowest mean score, half with the highest, in item order.

        Items without a score come first among the lowest; where nothing has one, these are the first items.
        """
        low = [record for _, _, record in sorted(self._lowest, key=_place, reverse=True)]
        high = [record for _, _, record in sorted(self._highest, key=_place, reverse=True)]
        found = {record.item: record for record in high[: self.examples // 2]}
        for record in low:
            if len(found) < self.examples:
                found[record.item] = record
        return [found[item] for item in sorted(found)]

    def _collect(self, record: Record) -> None:
        self._keep(record)
        if record.state is JobState.INVALID:
            self._rows.add(record.item, ())
            return  # its model may be any text of its row
        cell = self._cell(record)
        latency_ms = None if record.cached else record.latency_ms
        if record.state is JobState.SUCCEEDED and latency_ms is not None:
            self.latencies_ms.append(latency_ms)
        if record.usage.output_tokens is not None and not record.cached:
            self.output_tokens.append(record.usage.output_tokens)
        for name, value in record.scores.items():
            if value is not None:
                self.scores.setdefault(name, _numbers()).append(value)
        self._rows.add(record.item, [] if cell is None else cell.values(record))
        if cell is not None:
            _add(cell, record, latency_ms)

    def _cell(self, record: Record) -> CellSums | None:
        key = record.prompt, record.model
        if key not in self.cells:
            if len(self.cells) >= MOST_CELLS:
                self.more_cells = True
                return None
            self.cells[key] = CellSums(*key)
        return self.cells[key]

    def _keep(self, record: Record) -> None:
        if not self.examples:
            return
        known = [value for value in record.scores.values() if value is not None]
        rank = sum(value / len(known) for value in known) if known else -math.inf
        _push(self._lowest, (-rank, -record.item, record), self.examples)
        if known:
            _push(self._highest, (rank, -record.item, record), self.examples // 2)


def _push(heap: list[tuple[float, int, Record]], entry: tuple[float, int, Record], most: int) -> None:
    """Keep the ``most`` greatest entries; items differ, so that records are never compared."""
    if len(heap) < most:
        heapq.heappush(heap, entry)
    elif most:
        heapq.heappushpop(heap, entry)


def _place(entry: tuple[float, int, Record]) -> tuple[float, int]:
    return entry[:2]


def _add(cell: CellSums, record: Record, latency_ms: int | None) -> None:
    cell.items += 1
    cell.cached += record.cached
    cell.succeeded += record.state is JobState.SUCCEEDED
    cell.usage += Usage(0, 0) if record.cached else record.usage
    if TASK in record.unkept:
        cell.usage += record.unkept[TASK].usage
    if latency_ms is not None and record.state is JobState.SUCCEEDED:
        cell.latencies_ms.append(latency_ms)
