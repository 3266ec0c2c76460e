"""Means and standard errors of scores, a value at a time: items of one row are one observation.

The standard error is the cluster-robust one of Miller, "Adding Error Bars to Evals" (2024), section 2.2,
with the usual factor for few clusters. With one item a row it is the plain ``s / √n``.
"""

import math
from collections.abc import Iterable, Sequence
from copy import copy

from fairlane.model.run_status import Scores


class Moments:
    """Mean, extremes and the spread of rows' sums. It uses the updates of Welford (1962) and West (1979),
    which subtract no large sums.
    """

    __slots__ = ("_count", "_maximum", "_mean", "_minimum", "_rows")

    def __init__(self) -> None:
        """No values yet."""
        self._count, self._mean, self._rows = 0, 0.0, _Rows()
        self._minimum, self._maximum = math.inf, -math.inf

    def add(self, value: float) -> None:
        """Add a value; `end_row` follows for its row."""
        self._count += 1
        self._mean += value / self._count - self._mean / self._count
        self._minimum, self._maximum = min(self._minimum, value), max(self._maximum, value)

    def end_row(self, count: int, mean: float) -> None:
        """Record that a row is complete, with ``count`` values of this mean."""
        self._rows.add(count, mean)

    def scores(self, items: int, unended: Iterable[tuple[int, float]] = ()) -> Scores:
        """The scores so far, of ``items`` items; ``unended``: counts and means of incomplete rows."""
        if not self._count:
            return Scores(0, items)
        rows = copy(self._rows)
        for count, mean in unended:
            rows.add(count, mean)
        error = rows.standard_error(self._mean, self._count)
        return Scores(
            self._count, items - self._count, self._mean, error, self._minimum, self._maximum, rows.count
        )


class _Rows:
    """Rows' means, each weighted by the square of its count: ``Σ n²(m − mean)²`` without a list of them.

    ``squares`` is ``Σ w(m − centre)²`` around their weighted mean, the ``centre``.
    """

    __slots__ = ("centre", "count", "squares", "weight")

    def __init__(self) -> None:
        self.count, self.weight, self.centre, self.squares = 0, 0.0, 0.0, 0.0

    def add(self, count: int, mean: float) -> None:
        self.count += 1
        added = float(count) * count
        whole = self.weight + added
        off = mean - self.centre
        self.squares += self.weight * added / whole * off * off
        self.centre += added / whole * mean - added / whole * self.centre
        self.weight = whole

    def standard_error(self, mean: float, values: int) -> float | None:
        """``√(G/(G − 1) · Σ(row's sum − its count · mean)²) / values`` over G rows.

        None for fewer than two, and where a square leaves the range of a float.
        """
        if self.count < 2:
            return None
        off = self.centre - mean
        squares = self.squares + self.weight * off * off
        error = math.sqrt(self.count / (self.count - 1) * squares) / values
        return error if math.isfinite(error) else None


class OpenRows:
    """Adds scores to their moments row by row.

    A row ends with its last item. Items that come in their order leave one row open at a time. Any other
    order costs memory for the rows that are open.
    """

    def __init__(self, items_per_row: int) -> None:
        """``items_per_row``: prompts × models × repetitions."""
        self._items = items_per_row
        self._open: dict[int, _OpenRow] = {}

    def add(self, item: int, values: Sequence[tuple[Moments, float]]) -> None:
        """Add an item's scores, which may be empty; call it once for each item."""
        for moments, value in values:
            moments.add(value)
        if self._items == 1:
            for moments, value in values:
                moments.end_row(1, value)
            return
        number = item // self._items
        row = self._open.get(number)
        if row is None:
            row = self._open[number] = _OpenRow()
        row.add(values)
        if row.items == self._items:
            row.end()
            del self._open[number]

    def of(self, moments: Moments) -> list[tuple[int, float]]:
        """The counts and means of open rows that have a value of ``moments``."""
        return [row.means[moments] for row in self._open.values() if moments in row.means]


class _OpenRow:
    """The scores of a row so far: their count and mean, by moments."""

    __slots__ = ("items", "means")

    def __init__(self) -> None:
        self.items, self.means = 0, dict[Moments, tuple[int, float]]()

    def add(self, values: Sequence[tuple[Moments, float]]) -> None:
        self.items += 1
        for moments, value in values:
            count, mean = self.means.get(moments, (0, 0.0))
            count += 1
            self.means[moments] = (count, mean + (value / count - mean / count))

    def end(self) -> None:
        for moments, (count, mean) in self.means.items():
            moments.end_row(count, mean)
