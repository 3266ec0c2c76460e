"""Reads the numbers of a text exactly, or reports that it cannot; never reads a part of a number."""

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction

from fairlane.evaluators.numerals import surroundings
from fairlane.evaluators.numerals.grammar import LEAD, LONGEST_LEAD, MINUS, read
from fairlane.evaluators.numerals.notation import one_notation

MAX_CHARS = 20_000
"""Characters at the end of a text that are searched for numbers: a bound for hostile outputs. Each takes up
to 10 µs."""

_TOKEN = re.compile(
    rf"(?P<digits>[0-9]|(?<![\w.])\.[0-9]|\\[dtc]?frac(?![A-Za-z]))|(?P<function>{surroundings.FUNCTION})"
    rf"|(?:{surroundings.WORD})"
)
_GAP = re.compile(r"\s")
_BOX = r"\\(?:boxed|fbox)\s?\{(?P<boxed>(?>(?:[^{}]|\{(?>(?:[^{}]|\{(?>(?:[^{}]|\{[^{}]*+\})*)\})*)\})*))\}"
_MARK = re.compile(rf"####(?P<marked>[^\n#][^\n]*+)|{_BOX}")
_ANSWER = re.compile(
    r"[\s*_$\\(\[]*(?:(?:the\s)?(?:final\s)?(?:answer|result)(?:\sis)?\s*:?[\s*_$\\(\[]*)?"
    r"(?:\w{1,12}\s?[=≈]\s?)?(?:-|minus|negative)?\s*(?=[\d$€£¥+√.\-−–¼-¾⅐-⅞]|\\[dt]?frac|\\sqrt)",
    re.IGNORECASE,
)
_NUMBERED = re.compile(r"\s*[0-9]+[.):]\s+[^\W\d_]")


@dataclass(frozen=True, slots=True)
class Number:
    """A number in a text. ``value`` is ``None`` if it is infinite or unreadable; ``problem`` says why."""

    text: str
    value: Fraction | None
    problem: str | None = None


def numbers_in(text: str) -> Iterator[Number]:
    """All numbers at the end of a text, in order, including those that cannot be read."""
    text = one_notation(_end_of(text))
    at = 0
    while (token := _TOKEN.search(text, at)) is not None:
        at = token.end()
        if token["digits"] is not None:
            number, at = _number(text, token.start())
            yield number
        elif token["function"] is not None or surroundings.is_power(token[0], token["raised"] or ""):
            at = _rest(text, at)
            yield _misunderstood(text[token.start() : at])


def last_number(text: str) -> Fraction | None:
    """The value of the last number; ``None`` if there is none, or if it cannot be read."""
    found = deque(numbers_in(text), maxlen=1)
    return found[0].value if found else None


def marked_answer(text: str) -> str:
    """The text behind the last ``####`` or in LaTeX's last box; without either, the whole text. Markdown
    headings also begin with ``####``, so a text counts only if it begins with a number.
    """
    answer = None
    for mark in _MARK.finditer(text):
        content = mark["boxed"] if mark["marked"] is None else mark["marked"]
        if content.strip() and (mark["marked"] is None or _begins_with_number(content)):
            answer = content
    return text if answer is None else answer


def exact(number: float) -> Fraction:
    """The decimal value of a float as printed: 0.01 is a hundredth."""
    return Fraction(str(number))


def _begins_with_number(line: str) -> bool:
    return _ANSWER.match(line) is not None and _NUMBERED.match(line) is None


def _number(text: str, digits: int) -> tuple[Number, int]:
    """The number whose digits begin at ``digits``, and the position after it."""
    before = text[max(0, digits - LONGEST_LEAD) : digits]
    lead = LEAD.search(before)
    start = digits - (0 if lead is None else len(lead[0]))
    found = read(text, digits)
    if found is None:
        end = _rest(text, digits)
        return _misunderstood(text[start:end]), max(end, digits + 1)
    value, end = found
    if (multiplier := surroundings.MULTIPLIED.match(text, end)) is not None:
        end = _rest(text, max(end, multiplier.end()))
        return _misunderstood(text[start:end], f"{multiplier[0].strip(' -')!r} is not multiplied"), end
    if surroundings.joined(text, end) or surroundings.depends(text, start):
        end = _rest(text, end)
        return _misunderstood(text[start:end]), end
    minus = lead is not None and (lead["inner"] or lead["sign"] or "+") in MINUS
    if not (lead is not None and (lead["sign"] or lead["inner"])):
        minus = surroundings.negated(text, start)
    return Number(text[start:end], -value if minus and value is not None else value), end


def _end_of(text: str) -> str:
    """At most `MAX_CHARS` from the end of a text, from the beginning of a word on."""
    if len(text) <= MAX_CHARS:
        return text
    cut = _GAP.search(text, len(text) - MAX_CHARS)
    return "" if cut is None else text[cut.end() :]


def _rest(text: str, end: int) -> int:
    rest = surroundings.REST.match(text, end)
    return end if rest is None else rest.end()


def _misunderstood(text: str, problem: str = "it is not understood") -> Number:
    return Number(text, None, problem)
