"""Regular expressions of teams: bounded before compilation, with a time limit for each search."""

import re
from collections import deque
from collections.abc import Callable, Iterator
from functools import lru_cache

import regex

PatternError = regex.error

SEARCH_S = 0.1
"""Most seconds of one search. The worker's other calls wait meanwhile; a pattern without nested repeats needs
less than a tenth of it."""

MOST_CHARS = 10_000
"""Characters of a pattern."""

MOST_COPIES = 10_000
"""Copies of its parts that a pattern may ask for: `regex` writes counted repeats out when it compiles them.
Ten thousand take some 20 ms; ``(?:a{1000}){4000}`` takes 11 s and 1.1 GB."""

_COUNTED = re.compile(r"\{(\d*)(?:,(\d*))?\}")
_UNREADABLE = re.compile(r"\(\?[a-zA-Z0-9]*x|\(\?#")
_MANY = MOST_COPIES + 1


@lru_cache(maxsize=256)
def compile_pattern(pattern: str) -> regex.Pattern[str]:
    """The compiled pattern. Raises `PatternError`, also for one that would take long to compile."""
    if len(pattern) > MOST_CHARS:
        raise PatternError(f"it has {len(pattern):,} characters, at most {MOST_CHARS:,} are allowed")
    if copies(pattern) > MOST_COPIES:
        raise PatternError(f"its counted repeats ask for over {MOST_COPIES:,} copies: lower their numbers")
    return regex.compile(pattern)


def copies(pattern: str) -> int:
    """An upper bound of the parts that the pattern has with its counted repeats written out.

    It does not parse sets and comments exactly. With comments it multiplies all repeats; without, it takes
    the larger bound of reading the pattern with sets and without them.
    """
    counted = [_times(found) for found in _COUNTED.finditer(pattern)]
    if _UNREADABLE.search(pattern):
        product = 1
        for times in counted:
            product = min(_MANY, product * max(1, times))
        return min(_MANY, product * max(1, len(pattern))) if counted else 1
    return max(_copies(pattern, sets=True), _copies(pattern, sets=False)) if counted else 1


def _copies(pattern: str, *, sets: bool) -> int:
    outer: list[int] = []
    total = last = at = 0
    while at < len(pattern):
        sign = pattern[at]
        counted = _COUNTED.match(pattern, at) if sign == "{" else None
        if counted is not None:
            total += last * (_times(counted) - 1)
            last = max(last, last * _times(counted))
            at = counted.end()
        elif sign == "(":
            outer.append(total)
            total = last = 0
            at += 1
        elif sign == ")" and outer:
            last = max(1, total)
            total = outer.pop() + last
            at += 1
        else:
            at = _after_set(pattern, at) if sign == "[" and sets else at + (2 if sign == "\\" else 1)
            # Signs such as + and | change nothing: the part before them stays the last one.
            if sign not in "*+?|":
                total, last = total + 1, 1
        if total > MOST_COPIES:
            return _MANY
    return min(_MANY, total + sum(outer))


def _after_set(pattern: str, at: int) -> int:
    """The position after the set of characters that begins at ``at``."""
    at += 2 if pattern.startswith("^", at + 1) else 1
    at += 1 if pattern.startswith("]", at) else 0
    while at < len(pattern) and pattern[at] != "]":
        at += 2 if pattern[at] == "\\" else 1
    return at + 1


def _times(counted: re.Match[str]) -> int:
    """The largest number of a counted repeat; one without an upper bound counts its least plus one."""
    least, most = counted[1], counted[2]
    digits = most or least or "1"
    if len(digits) > len(str(_MANY)):
        return _MANY
    return max(1, int(digits) + (1 if most == "" else 0))


class SearchError(Exception):
    """A search failed; the message says why."""


def search(pattern: str, text: str) -> regex.Match[str] | None:
    """The first match of ``pattern`` in ``text``. Raises `SearchError`."""
    return _bounded(pattern, lambda compiled: compiled.search(text, timeout=SEARCH_S))


def search_last(pattern: str, text: str) -> regex.Match[str] | None:
    """The last match of ``pattern`` in ``text``, of those that do not overlap. Raises `SearchError`."""
    return _bounded(pattern, lambda compiled: _last(compiled.finditer(text, timeout=SEARCH_S)))


def _last(found: Iterator[regex.Match[str]]) -> regex.Match[str] | None:
    last = deque(found, maxlen=1)
    return last[0] if last else None


def _bounded(
    pattern: str, find: Callable[[regex.Pattern[str]], regex.Match[str] | None]
) -> regex.Match[str] | None:
    try:
        return find(compile_pattern(pattern))
    except PatternError as error:
        raise SearchError(f"the pattern is no regular expression: {error}") from None
    except TimeoutError:
        problem = f"the pattern was searched for {SEARCH_S:g} s without an end: simplify its repeats"
        raise SearchError(problem) from None
