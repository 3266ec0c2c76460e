"""Means and standard errors of scores, a value at a time: items of one row are one observation.

The standard error is the cluster-robust one of Miller, "Adding Error Bars to Evals" (2024), section 2.2,
with the usual factor for few clusters. With one item a row it is the plain ``s / √n``.
"""

import math
from collections.abc import Iterable, Sequence
from copy import copy

from fairlane.model.run_status import Scores

_LEAST_EXPONENT = 1074
"""The smallest float is ``2 ** -1074``."""


def units(value: float) -> int:
    """A finite float as a whole number of the smallest float: sums of these are exact in any order."""
    numerator, denominator = value.as_integer_ratio()
    return numerator << _LEAST_EXPONENT + 1 - denominator.bit_length()


def mean_of(total: int, count: int) -> float:
    """The float nearest to the mean of ``count`` values, whose `units` sum up to ``total``."""
    return total / (count << _LEAST_EXPONENT)


class Moments:
    """Mean, extremes and the spread of rows' sums. The mean is exact; the spread uses the updates of Welford
    (1962) and West (1979), which subtract no large sums.
    """

    __slots__ = ("_count", "_maximum", "_minimum", "_rows", "_total")

    def __init__(self) -> None:
        """No values yet."""
        self._count, self._total, self._rows = 0, 0, _Rows()
        self._minimum, self._maximum = math.inf, -math.inf

    def add(self, value: float) -> None:
        """Add a finite value; `end_row` follows for its row."""
        self._count += 1
        self._total += units(value)
        self._minimum, self._maximum = min(self._minimum, value), max(self._maximum, value)

    @property
    def mean(self) -> float:
        """The mean of the values so far, of which there is one at least."""
        return mean_of(self._total, self._count)

    def end_row(self, count: int, mean: float) -> None:
        """Record that a row is complete, with ``count`` values of this mean."""
        self._rows.add(count, mean)

    def scores(self, items: int, unended: Iterable[tuple[int, float]] = ()) -> Scores:
        """The scores so far, of ``items`` items; ``unended``: counts and means of incomplete rows."""
        if not self._count:
            return Scores(0, items)
        rows, mean = copy(self._rows), self.mean
        for each in unended:
            rows.add(*each)
        error = rows.standard_error(mean, self._count)
        return Scores(self._count, items - self._count, mean, error, self._minimum, self._maximum, rows.count)


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
        return [row.mean(moments) for row in self._open.values() if moments in row.sums]


class _OpenRow:
    """The scores of a row so far: their count and the sum of their `units`, by moments."""

    __slots__ = ("items", "sums")

    def __init__(self) -> None:
        self.items, self.sums = 0, dict[Moments, tuple[int, int]]()

    def add(self, values: Sequence[tuple[Moments, float]]) -> None:
        self.items += 1
        for moments, value in values:
            count, total = self.sums.get(moments, (0, 0))
            self.sums[moments] = (count + 1, total + units(value))

    def mean(self, moments: Moments) -> tuple[int, float]:
        """The count and the mean of these scores."""
        count, total = self.sums[moments]
        return count, mean_of(total, count)

    def end(self) -> None:
        for moments in self.sums:
            moments.end_row(*self.mean(moments))
