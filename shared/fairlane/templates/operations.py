"""Bounded versions of operators and string methods whose results can be much larger than their operands."""

import operator
import re
from collections.abc import Callable, Iterable
from typing import Any

from fairlane.templates.meter import MeteredContext, NullError, WorkLimitError, bounded

_MAX_INT_BITS = 4096
_MAX_FORMAT = 1000
_WIDE_FORMAT = re.compile(r"%(?:\([^)]*\))?[^a-zA-Z%]*(?:\d{4}|\*)")


def multiply(context: MeteredContext, left: Any, right: Any) -> Any:
    """``left * right``, with bounds for large numbers and repeated texts."""
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


def arithmetic(operation: Callable[[Any, Any], Any], context: MeteredContext, left: Any, right: Any) -> Any:
    """An operation on numbers of at most `_MAX_INT_BITS` bits: division takes the product of their
    lengths.
    """
    for operand in (left, right):
        if isinstance(operand, int):
            _bounded_bits(operand.bit_length())
    context.weigh(left)
    context.weigh(right)
    return operation(left, right)


def modulo(context: MeteredContext, left: Any, right: Any) -> Any:
    """``left % right``; a string on the left is a printf format."""
    if not isinstance(left, str):
        return arithmetic(operator.mod, context, left, right)
    context.weigh(right)
    return printf(left, right)


def printf(template: str, values: Any) -> str:
    """``template % values`` without widths that only produce padding."""
    if len(template) > _MAX_FORMAT:
        raise WorkLimitError(f"a format has at most {_MAX_FORMAT} characters")
    if _WIDE_FORMAT.search(template):
        raise WorkLimitError("a format's width has at most three digits")
    if None in (values if isinstance(values, tuple) else (values,)):
        raise NullError
    if isinstance(values, dict):  # a key may be named many times
        bounded(template.count("%") * sum(len(str(value)) for value in values.values()))
    filled: str = template % values
    return filled


def replace(text: str, old: str, new: str, count: int = -1) -> str:
    """``text.replace``; raises `WorkLimitError` before the result would be too long."""
    found = text.count(old) if count < 0 else min(count, text.count(old))
    bounded(len(text) + found * (len(new) - len(old)))
    return text.replace(old, new, count)


def rfind(text: str, wanted: str, start: int | None = None, end: int | None = None) -> int:
    """``text.rfind`` in linear time: Python's takes the product of both lengths, and ``find`` does not."""
    first, last, _ = slice(start, end).indices(len(text))
    if start is not None and start > len(text):
        return -1
    found = text[first:last][::-1].find(wanted[::-1])
    return -1 if found < 0 or first > last else last - found - len(wanted)


def rindex(text: str, wanted: str, start: int | None = None, end: int | None = None) -> int:
    """``text.rindex`` by `rfind`."""
    found = rfind(text, wanted, start, end)
    if found < 0:
        raise ValueError("substring not found")
    return found


def rpartition(text: str, separator: str) -> tuple[str, str, str]:
    """``text.rpartition`` in linear time, see `rfind`."""
    after, found, before = text[::-1].partition(separator[::-1])
    return (before[::-1], found[::-1], after[::-1]) if found else ("", "", text)


def rsplit(text: str, sep: str | None = None, maxsplit: int = -1) -> list[str]:
    """``text.rsplit`` in linear time, see `rfind`."""
    if sep is None:
        return text.rsplit(None, maxsplit)
    return [part[::-1] for part in reversed(text[::-1].split(sep[::-1], maxsplit))]


def strip(text: str, chars: str | None = None) -> str:
    """``text.strip`` in linear time: Python's searches all of ``chars`` for each character."""
    return lstrip(rstrip(text, chars), chars)


def lstrip(text: str, chars: str | None = None) -> str:
    """``text.lstrip`` in linear time, see `strip`."""
    if chars is None:
        return text.lstrip()
    known = frozenset(chars)
    return text[next((at for at, sign in enumerate(text) if sign not in known), len(text)) :]


def rstrip(text: str, chars: str | None = None) -> str:
    """``text.rstrip`` in linear time, see `strip`."""
    if chars is None:
        return text.rstrip()
    known, end = frozenset(chars), len(text)
    while end and text[end - 1] in known:
        end -= 1
    return text[:end]


def join(separator: str, parts: Iterable[str]) -> str:
    """``separator.join``; raises `WorkLimitError` before the result would be too long."""
    pieces = list(parts)
    bounded(sum(map(len, pieces)) + len(separator) * len(pieces))
    return separator.join(pieces)


def whole(number: int) -> int:
    """A whole number of at most `_MAX_INT_BITS` bits. Raises `WorkLimitError`."""
    _bounded_bits(number.bit_length())
    return number


def _bounded_bits(bits: int) -> None:
    if bits > _MAX_INT_BITS:
        raise WorkLimitError(f"an integer of {bits:,} bits is larger than the {_MAX_INT_BITS:,} allowed")
