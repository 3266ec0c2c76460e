"""Regular expressions that others wrote: compiled once, and searched for no longer than a moment."""

from __future__ import annotations

from functools import lru_cache

import regex

PatternError = regex.error

SEARCH_S = 0.1
"""Seconds a pattern may be searched for. The worker's other calls stand still meanwhile, and no pattern that
does not repeat repeats needs a tenth of it."""


@lru_cache(maxsize=256)
def compile_pattern(pattern: str) -> regex.Pattern[str]:
    """The compiled pattern. Raises `PatternError`."""
    return regex.compile(pattern)


class SearchError(Exception):
    """A pattern could not be searched for; the message says why."""


def search(pattern: str, text: str) -> regex.Match[str] | None:
    """Where ``pattern`` is found in ``text``. Raises `SearchError`."""
    try:
        return compile_pattern(pattern).search(text, timeout=SEARCH_S)
    except PatternError as error:
        raise SearchError(f"the pattern is no regular expression: {error}") from None
    except TimeoutError:
        problem = f"the pattern was searched for {SEARCH_S:g} s without an end: simplify its repeats"
        raise SearchError(problem) from None
