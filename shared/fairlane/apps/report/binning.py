"""How numbers are distributed: bins for a histogram, and quantiles."""

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

FEW = 12
"""Most different values that get a bar each."""

LEAST_BINS, MOST_BINS = 8, 40
LEAST = 0.1
"""Smaller values count as this one on a logarithmic axis: 0 ms would take most of its decades."""

QUANTILES = (0.5, 0.9, 0.95, 0.99)


class Bin(NamedTuple):
    """``held`` values from ``low`` to below ``high``; the two are equal if the bin is one value."""

    low: float
    high: float
    held: int


def bins_of(values: Sequence[float], *, logarithmic: bool = False) -> list[Bin]:
    """A bar for each value where there are few different ones, else bins of equal width.

    Their number is that of Freedman and Diaconis (1981), within bounds. ``logarithmic``: of equal ratio.
    """
    counted: Counter[float] = Counter()
    for value in values:
        counted[value] += 1
        if len(counted) > FEW:
            break
    else:
        return [Bin(value, value, counted[value]) for value in sorted(counted)]
    ordered = sorted(math.log(max(value, LEAST)) if logarithmic else value for value in values)
    least, most = ordered[0], ordered[-1]
    count = _number_of_bins(ordered)
    edges = [least * (1 - n / count) + most * (n / count) for n in range(1, count)]
    counts = [0] * count
    for value in ordered:
        counts[bisect_right(edges, value)] += 1
    inner = map(math.exp, edges) if logarithmic else edges
    ends = (max(end, LEAST) if logarithmic else end for end in (min(values), max(values)))
    whole = sorted([*ends, *inner])
    return [Bin(whole[n], whole[n + 1], counts[n]) for n in range(count)]


def quantile(ordered: Sequence[float], share: float) -> float:
    """The value that ``share`` of the ordered values do not exceed, interpolated linearly."""
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    low, high, part = ordered[below], ordered[above], place - below
    if math.isfinite(high - low):
        return low + (high - low) * part
    return low * (1 - part) + high * part


def nice_steps(most: float) -> list[float]:
    """About four numbers from 0 to at least ``most``: multiples of 1, 2 or 5 times a power of ten."""
    if most <= 0:
        return [0.0, 1.0]
    rough = most / 4
    power = math.pow(10, math.floor(math.log10(rough)))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= rough * (1 - 1e-9))
    return [step * n for n in range(math.ceil(most / step - 1e-9) + 1)]


def _number_of_bins(ordered: Sequence[float]) -> int:
    spread = quantile(ordered, 0.75) / 2 - quantile(ordered, 0.25) / 2  # halves are finite
    width = 2 * spread / math.pow(len(ordered), 1 / 3)
    if width <= 0:
        return LEAST_BINS * 2
    return math.ceil(max(LEAST_BINS, min(MOST_BINS, (ordered[-1] / 2 - ordered[0] / 2) / width)))
