"""Solves what a question contains: a calculation, or a choice among lettered options."""

import re
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction

from fairlane.lab.simulator.model.answers import Known, last_number

MOST_CHARS = 4000
"""Characters at the end of a prompt that are searched: what is asked comes last."""

_NUMBER = r"\d+(?:,\d{3})*(?:\.\d+)?"
_OPERATORS = {
    **dict.fromkeys(("+", "plus"), "+"),
    **dict.fromkeys(("-", "−", "minus"), "-"),
    **dict.fromkeys(("*", "×", "x", "times", "multiplied by"), "*"),
    **dict.fromkeys(("/", "÷", "divided by"), "/"),
}
_OPERATOR = "|".join(re.escape(each) for each in sorted(_OPERATORS, key=len, reverse=True))
_EXPRESSION = re.compile(
    rf"(?<![\w.,])-?{_NUMBER}(?:\s*(?:{_OPERATOR})\s*-?{_NUMBER})+(?![\w]|[.,]\d)", re.IGNORECASE
)
_STEP = re.compile(rf"\s*({_OPERATOR})\s*(-?{_NUMBER})", re.IGNORECASE)
_SUM_OF = re.compile(
    rf"\b(?:sum of|add(?: up)?)\s+(-?{_NUMBER}(?:(?:\s*,\s*and\s+|\s*,\s*|\s+and\s+)-?{_NUMBER})+)",
    re.IGNORECASE,
)
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_OPTION = re.compile(r"^[ \t]*\(?([A-J])[).:][ \t]+(\S.*)$", re.MULTILINE)


def calculated(text: str) -> Known | None:
    """The last calculation in ``text`` and its value: ``12 + 30``, ``7 times 8``, ``the sum of 3 and 4``."""
    text = text[-MOST_CHARS:]
    found: re.Match[str] | None = None
    for match in (*_EXPRESSION.finditer(text), *_SUM_OF.finditer(text)):
        if not _DATE.fullmatch(match[0]) and (found is None or match.start() > found.start()):
            found = match
    if found is None:
        return None
    value = _sum(found[1]) if found.re is _SUM_OF else _value(found[0])
    return None if value is None else Known(found[0], _written(value))


def options_of(text: str) -> Mapping[str, str]:
    """The lettered options that ``text`` ends with, from A on; empty with fewer than two."""
    options: dict[str, str] = {}
    for letter, said in _OPTION.findall(text[-MOST_CHARS:]):
        if letter == "A":
            options = {}
        if letter == chr(ord("A") + len(options)):
            options[letter] = said.strip()
    return options if len(options) > 1 else {}


def letter_of(options: Mapping[str, str], answer: str) -> str | None:
    """The option that says ``answer``, or that it names by its letter."""
    if answer.strip().upper() in options:
        return answer.strip().upper()
    number = last_number(answer)
    for letter, said in options.items():
        if said.casefold().rstrip(".") == answer.casefold().strip().rstrip("."):
            return letter
        if number is not None and last_number(said) == number:
            return letter
    return None


def _sum(listed: str) -> Fraction:
    return sum((Fraction(each.replace(",", "")) for each in re.findall(rf"-?{_NUMBER}", listed)), Fraction(0))


def _value(expression: str) -> Fraction | None:
    """The value, products before sums; ``None`` for a division by zero."""
    first = re.match(rf"-?{_NUMBER}", expression)
    if first is None:
        return None
    terms = [Fraction(first[0].replace(",", ""))]
    for word, written in _STEP.findall(expression[first.end() :]):
        operand = Fraction(written.replace(",", ""))
        match _OPERATORS[word.lower()]:
            case "+":
                terms.append(operand)
            case "-":
                terms.append(-operand)
            case "*":
                terms[-1] *= operand
            case _ if operand:
                terms[-1] /= operand
            case _:
                return None
    return sum(terms, Fraction(0))


def _written(value: Fraction) -> str:
    if value.denominator == 1:
        return str(value.numerator)
    return f"{Decimal(value.numerator) / value.denominator:.6g}"
