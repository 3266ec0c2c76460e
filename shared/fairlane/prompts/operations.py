"""Operators and string methods whose result can be far larger than what they are given, with bounds."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable
from typing import Any

from fairlane.prompts.meter import MeteredContext, WorkLimitError, bounded

_MAX_INT_BITS = 4096
_MAX_FORMAT = 1000
_WIDE_FORMAT = re.compile(r"%(?:\([^)]*\))?[^a-zA-Z%]*(?:\d{4}|\*)")


def multiply(context: MeteredContext, left: Any, right: Any) -> Any:
    """``left * right`` where neither a number nor a repetition grows without bound."""
    if isinstance(left, int) and isinstance(right, (str, list, tuple)):
        left, right = right, left
    if isinstance(left, (str, list, tuple)) and isinstance(right, int):
        bounded(len(left) * max(0, right))
        for _ in range(min(right, 2)):
            context.weigh(left)
        result = left * right
        context.weigh(result)
        return result
    if isinstance(left, int) and isinstance(right, int):
        _bounded_bits(left.bit_length() + right.bit_length())
    return operator.mul(left, right)


def power(left: Any, right: Any) -> Any:
    """``left ** right`` within `_MAX_INT_BITS` bits."""
    if isinstance(left, int) and isinstance(right, int):
        _bounded_bits(left.bit_length() * abs(right))
    return operator.pow(left, right)


def add(context: MeteredContext, left: Any, right: Any) -> Any:
    """``left + right``, weighed before and after."""
    context.weigh(left)
    context.weigh(right)
    if isinstance(left, str) and isinstance(right, str):
        bounded(len(left) + len(right))
    return left + right


def modulo(context: MeteredContext, left: Any, right: Any) -> Any:
    """``left % right``, where a string on the left is a printf format."""
    if not isinstance(left, str):
        return operator.mod(left, right)
    context.weigh(right)
    return printf(left, right)


def printf(template: str, values: Any) -> str:
    """``template % values`` without widths that only produce padding."""
    if len(template) > _MAX_FORMAT:
        raise WorkLimitError(f"a format has at most {_MAX_FORMAT} characters")
    if _WIDE_FORMAT.search(template):
        raise WorkLimitError("a format's width has at most three digits")
    if isinstance(values, dict):  # a key may be named many times
        bounded(template.count("%") * sum(len(str(value)) for value in values.values()))
    filled: str = template % values
    return filled


def replace(text: str, old: str, new: str, count: int = -1) -> str:
    """``text.replace``, refused before it would exceed the longest text allowed."""
    found = text.count(old) if count < 0 else min(count, text.count(old))
    bounded(len(text) + found * (len(new) - len(old)))
    return text.replace(old, new, count)


def join(separator: str, parts: Iterable[str]) -> str:
    """``separator.join``, refused before it would exceed the longest text allowed."""
    pieces = list(parts)
    bounded(sum(map(len, pieces)) + len(separator) * len(pieces))
    return separator.join(pieces)


def _bounded_bits(bits: int) -> None:
    if bits > _MAX_INT_BITS:
        raise WorkLimitError(f"an integer of {bits:,} bits is larger than the {_MAX_INT_BITS:,} allowed")
