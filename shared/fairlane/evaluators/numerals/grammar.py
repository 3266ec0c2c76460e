"""The grammar of one number: its sign, its digits in groups, fractions, powers and exponents."""

import re
from fractions import Fraction

from fairlane.evaluators.numerals.notation import DASH

MONEY = "$€£¥₹₩₽"

_MOST_DIGITS = 400
"""Longer numbers are not compared; a float has at most 309."""

_TOO_LARGE = Fraction(10) ** 308

# A sign counts unless a word, number or bracket ends before it: "10-5" ends in 5, "x = -5" and "-$5" in -5.
LEAD = re.compile(
    rf"(?:(?<![\w)\]}}%°])(?<![0-9][{MONEY}])(?P<sign>[-+{DASH}]))?(?:[{MONEY}][ ]?(?P<inner>[-{DASH}])?)?\Z"
)
"""The sign and currency before a number's digits, if any."""

LONGEST_LEAD = 6
"""Most characters before the digits that `LEAD` matches."""

MINUS = ("-", DASH)

_DIGITS = re.compile(
    r"(?:[1-9][0-9]{0,2}(?:(?:,[0-9]{3})+|(?:'[0-9]{3})+|(?:_[0-9]{3})+|(?:[ ][0-9]{3})+)(?![0-9])|[0-9]+)"
    r"(?:\.[0-9]+)?|(?<![\w.])\.[0-9]+"
)
_GAPS = re.compile(r"[,'_ ]")

_PART = r"-?[0-9]{1,20}(?:\.[0-9]{1,20})?"
_FRAC = re.compile(
    rf"\\[dtc]?frac\s?(?:\{{\s?(?P<above>{_PART})\s?\}}|(?P<one_above>[0-9]))"
    rf"\s?(?:\{{\s?(?P<below>{_PART})\s?\}}|(?P<one_below>[0-9]))"
)
_MIXED = re.compile(r"(?:[ ]|[ ]and[ ])(?P<above>[0-9]{1,20})[ ]?/[ ]?(?P<below>[0-9]{1,20})(?![0-9])")

_POWER = r"\s?(?:\{\s?[-+]?[0-9]{1,3}\s?\}|\([-+]?[0-9]{1,3}\)|[-+]?[0-9]{1,3}(?![0-9]))"
_SUFFIX = re.compile(
    r"[eE](?P<exponent>[-+]?[0-9]{1,3})(?!\w)"
    rf"|\s{{0,3}}[x×*·⋅]\s{{0,3}}10(?:\^|\*\*)(?P<scale>{_POWER})"
    rf"|(?:\^|\*\*)(?P<power>{_POWER})"
    r"|[ ]?/[ ]?(?P<over>[0-9]{1,20})(?![0-9])"
)


def read(text: str, start: int) -> tuple[Fraction | None, int] | None:
    """The number whose digits begin at ``start``, without its sign, and where it ends; ``None`` if none does.

    The value is ``None`` where there is no finite one.
    """
    fraction = _FRAC.match(text, start)
    if fraction is not None:
        return _fraction(fraction), fraction.end()
    digits = _DIGITS.match(text, start)
    if digits is None:
        return None
    end = digits.end()
    if digits.end() - start > _MOST_DIGITS:
        return None, end
    value = Fraction(_GAPS.sub("", digits[0]))
    if "." not in digits[0]:
        rest = _MIXED.match(text, end) or _FRAC.match(text, end + text.startswith(" ", end))
        part = _fraction(rest) if rest is not None else None
        if rest is not None and part is not None and 0 < part < 1:
            return value + part, rest.end()
    suffix = _SUFFIX.match(text, end)
    return (_finite(value), end) if suffix is None else (_finite(_with(value, suffix)), suffix.end())


def _fraction(found: re.Match[str]) -> Fraction | None:
    parts = found.groupdict()
    above, below = parts["above"] or parts["one_above"], parts["below"] or parts["one_below"]
    return Fraction(above) / Fraction(below) if Fraction(below) else None


def _with(value: Fraction, suffix: re.Match[str]) -> Fraction | None:
    if suffix["over"]:
        return value / int(suffix["over"]) if int(suffix["over"]) else None
    if suffix["power"]:
        return _raised(value, _whole(suffix["power"]))
    return value * Fraction(10) ** _whole(suffix["exponent"] or suffix["scale"])


def _whole(power: str) -> int:
    return int(power.strip().strip("{()}"))


def _raised(base: Fraction, power: int) -> Fraction | None:
    """A power; ``None`` where it takes long to compute, exceeds a float, or divides by 0."""
    digits = max(len(str(base.numerator)), len(str(base.denominator)))
    if (digits - 1) * abs(power) > _MOST_DIGITS or (not base and power < 0):
        return None
    return base**power


def _finite(value: Fraction | None) -> Fraction | None:
    return None if value is None or value >= _TOO_LARGE else value
