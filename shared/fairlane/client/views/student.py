"""Student's t: how many standard errors an interval of 95 % has where the spread itself is an estimate."""

import math
from functools import lru_cache

CONFIDENCE = 0.95

_NORMAL = 1.959963984540054
"""Of the normal distribution, which Student's nears."""

_EXACT = 100
"""Degrees of freedom up to which the probability is summed up; beyond, the expansion has ten digits."""

_STEPS = 100
"""Of the bisection: a float has fewer bits."""


@lru_cache(maxsize=1024)
def critical(degrees: int) -> float:
    """The t within which 95 % of Student's distribution lie: 12.71 for 1 degree of freedom, 4.30 for 2."""
    if degrees > _EXACT:
        return _expanded(degrees)
    low, high = 0.0, 20.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        low, high = (low, middle) if within(middle, degrees) > CONFIDENCE else (middle, high)
    return (low + high) / 2


def within(t: float, degrees: int) -> float:
    """The probability of a value from -t to t (Abramowitz & Stegun, 26.7.3 and 26.7.4)."""
    angle = math.atan(t / math.sqrt(degrees))
    sine, square = math.sin(angle), math.cos(angle) ** 2
    odd = degrees % 2
    term = math.cos(angle) if odd else 1.0
    total = 0.0
    for k in range(1, (degrees - odd) // 2 + 1):
        total += term
        term *= square * (2 * k - 1 + odd) / (2 * k + odd)
    return 2 / math.pi * (angle + sine * total) if odd else sine * total


def _expanded(degrees: int) -> float:
    """Abramowitz & Stegun, 26.7.5."""
    x, n = _NORMAL, degrees
    first = (x**3 + x) / 4
    second = (5 * x**5 + 16 * x**3 + 3 * x) / 96
    third = (3 * x**7 + 19 * x**5 + 17 * x**3 - 15 * x) / 384
    fourth = (79 * x**9 + 776 * x**7 + 1482 * x**5 - 1920 * x**3 - 945 * x) / 92160
    return x + first / n + second / n**2 + third / n**3 + fourth / n**4
