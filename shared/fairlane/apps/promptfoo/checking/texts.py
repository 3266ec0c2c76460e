"""Assertions that compare texts: distances, overlaps, lengths."""

import math
from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from fairlane.apps.promptfoo.checking.treebank import words_of
from fairlane.apps.promptfoo.subjects import CheckError, Result, met
from fairlane.core.figures import figure, plain_number

CLOSE, MOST_CHARS = 5, 100_000
"""The distance that ``levenshtein`` allows where none is given, and the characters of a text it compares."""

ROUGE_ENOUGH, BLEU_ENOUGH = 0.75, 0.5
_ORDERS = 4
_SMALL = 1e-7  # replaces 0 under a logarithm


def levenshtein(text: str, value: Any, threshold: float | None) -> Result:
    """Whether at most ``threshold`` UTF-16 units differ, as in JavaScript. Needs the extra ``promptfoo``."""
    try:
        from rapidfuzz.distance import Levenshtein
    except ImportError:
        remedy = "pip install 'fairlane[promptfoo]'"
        raise CheckError(f"levenshtein needs the package rapidfuzz: {remedy}") from None
    if max(len(text), len(str(value))) > MOST_CHARS:
        raise CheckError(f"levenshtein compares texts of at most {MOST_CHARS:,} characters")
    most = CLOSE if threshold is None else threshold
    distance = Levenshtein.distance(_units(text), _units(str(value)))
    return met(distance <= most, f"{distance} characters differ, at most {most:g} may")


def _units(text: str) -> "array[int]":
    return array("H", text.encode("utf-16-le", "surrogatepass"))


def rouge(text: str, value: Any, threshold: float | None) -> Result:
    """ROUGE-1: the harmonic mean of the shares of words that both have (Lin 2004)."""
    least = ROUGE_ENOUGH if threshold is None else threshold
    one, other = words_of(text.lower()), words_of(str(value).lower())
    common = sum((Counter(one) & Counter(other)).values())
    score = 2 * common / (len(one) + len(other)) if common else 0.0
    return Result(score >= least, score, f"ROUGE-N is {figure(score)}, {figure(least)} at least is asked for")


def bleu(text: str, value: Any, threshold: float | None) -> Result:
    """BLEU over words, up to four in a row, against the best of the references."""
    least = BLEU_ENOUGH if threshold is None else threshold
    references = [
        str(each).lower().split() or [""] for each in (value if isinstance(value, list) else [value])
    ]
    words = text.lower().split()
    score = _bleu(words, references) if words and references else 0.0
    return Result(score >= least, score, f"BLEU is {figure(score)}, {figure(least)} at least is asked for")


def _bleu(words: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    logs: list[float] = []
    for order in range(1, min(_ORDERS, len(words)) + 1):
        found = _grams(words, order)
        most = max(sum((found & _grams(each, order)).values()) for each in references)
        logs.append(math.log(most / found.total() or _SMALL))
    closest = min((abs(len(each) - len(words)), len(each)) for each in references)[1]
    brevity = 1.0 if len(words) > closest else math.exp(1 - closest / len(words))
    return brevity * math.exp(math.fsum(logs) / len(logs))


def _grams(words: Sequence[str], order: int) -> Counter[tuple[str, ...]]:
    return Counter(tuple(words[at : at + order]) for at in range(len(words) - order + 1))


def length(text: str, value: Any, *, least: bool) -> Result:
    """Whether a text has at least, or at most, ``value`` characters."""
    bound = _number(value, "a number of characters")
    passed = len(text) >= bound if least else len(text) <= bound
    return met(
        passed, f"it has {len(text):,} characters, {'at least' if least else 'at most'} {bound:g} may be"
    )


def word_count(text: str, value: Any) -> Result:
    """Whether the number of words is ``value``, or between its ``min`` and ``max``."""
    count = len(text.split())
    if isinstance(value, Mapping):
        low = _number(value.get("min", 0), "a number of words")
        high = _number(value.get("max", math.inf), "a number of words")
    else:
        low = high = _number(value, "a number of words")
    return met(low <= count <= high, f"it has {count} words")


def _number(value: Any, wanted: str) -> float:
    try:
        return plain_number(value) if isinstance(value, str) else float(value)
    except (TypeError, ValueError):
        raise CheckError(f"its value is not {wanted}") from None
