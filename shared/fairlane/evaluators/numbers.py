"""Reads numbers in prose exactly: decimals, fractions and powers of ten."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from fractions import Fraction

MAX_CHARS = 100_000
"""Characters at the end of a text that are searched for numbers: a bound for hostile outputs."""

_MOST_DIGITS = 400
"""Longer ones are no numbers that anybody compares; a float ends at 309."""

# A sign counts where no word ends before it: "10-5" ends in 5, "x = -5", "-$5" and "$-5" in -5. Letters may
# follow a number ("18kg") but not precede it ("GPT4").
_SIGN = r"(?:(?<![\w)\]])(?P<sign>[-+−]))?(?:[$€£¥](?P<inner>[-−])?)?"
_DIGITS = (
    r"(?P<digits>(?<![\w.])\.[0-9]+|(?<!\w)(?<![0-9]\.)"
    r"(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?)"
)
_POWER = r"\s{0,3}(?:[x×*·⋅]|\\times|\\cdot)\s{0,3}10(?:\^|\*\*)\{?(?P<power>[-+−]?[0-9]{1,3})\}?(?![\w^])"
_TEN = r"(?<![\w.,)^/])10(?:\^|\*\*)\{?(?P<ten>[-+−]?[0-9]{1,3})\}?(?![\w^])"
_OVER = r"(?<![0-9]/)/(?P<over>[0-9]{1,20})(?![\w/]|[.,][0-9])"
_NUMBER = re.compile(
    rf"{_SIGN}(?:{_TEN}|\\[dt]?frac\{{\s?(?P<above>[0-9]{{1,20}})\s?\}}\{{\s?(?P<below>[0-9]{{1,20}})\s?\}}"
    rf"|{_DIGITS}(?:(?P<exponent>[eE][-+]?[0-9]{{1,3}}(?!\w))|{_POWER}|(?<!/[0-9]){_OVER})?)"
)
_MARKED = re.compile(r"####[ \t]*([^\n]*)|\\boxed\{((?:[^{}]|\{[^{}]*\})*)\}")


def numbers_in(text: str) -> Iterator[Fraction | None]:
    """All numbers at the end of a text, in order; ``None`` for one without a finite value."""
    for found in _NUMBER.finditer(text[-MAX_CHARS:]):
        yield _value(found)


def last_number(text: str) -> Fraction | None:
    """The last number of ``1,234.5``, ``-$3``, ``12%``, ``3/4``, ``3 x 10^5``, ``#### 18.`` and the like."""
    found = deque(numbers_in(text), maxlen=1)
    return found[0] if found else None


def marked_answer(text: str) -> str:
    """What stands behind the last ``####``, or in LaTeX's last box; without any, the whole text."""
    marks = deque(_MARKED.finditer(text), maxlen=1)
    return (marks[0][1] or marks[0][2] or "") if marks else text


def exact(number: float) -> Fraction:
    """A number as it is written: 0.01 is a hundredth."""
    return Fraction(str(number))


def _value(found: re.Match[str]) -> Fraction | None:
    sign = -1 if found["inner"] or found["sign"] in ("-", "−") else 1
    if found["ten"]:
        return sign * _ten_to(found["ten"])
    if found["above"]:
        return sign * Fraction(int(found["above"]), int(found["below"])) if int(found["below"]) else None
    digits = found["digits"].replace(",", "")
    if len(digits) > _MOST_DIGITS:
        return None
    value = sign * Fraction(digits + (found["exponent"] or ""))
    if found["power"]:
        value *= _ten_to(found["power"])
    if found["over"]:
        return value / int(found["over"]) if int(found["over"]) else None
    return value if abs(value) < _TOO_LARGE else None


_TOO_LARGE = Fraction(10) ** 308


def _ten_to(power: str) -> Fraction:
    return Fraction(10) ** int(power.replace("−", "-"))
