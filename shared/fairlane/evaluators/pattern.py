"""Regular expressions a stranger wrote: which of them may be searched, and in how long a text.

Python's engine backtracks, holds the interpreter while it does and cannot be interrupted: one bad pattern
would stop a worker with every call in flight in it. So its syntax tree is judged before it is used:

- Where a repeat has repeats or alternatives inside, the next character alone must decide between them
  (LL(1)). Else the ways to match can double with every character, as in ``(a+)+$``.
- Repeats in a row that can match the same text multiply: ``.*a.*b`` takes cubic time, as the search itself
  tries every start. How many there are, the degree, bounds the length that is searched.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from re import _constants as op  # type: ignore[attr-defined]
from re import _parser  # type: ignore[attr-defined]
from typing import Any, TypeAlias

STEPS = 50_000_000
"""Steps of the engine that one search may take at the very worst; about a second of a slow machine."""

_MOST_CHARS = 1_000_000
_LEAST_CHARS = 500
_ENDLESS = 100  # a repeat with more choices than this counts as endless

Chars: TypeAlias = frozenset[int]
Node: TypeAlias = tuple[Any, Any]

# Characters are ASCII codes, and four that stand for all others of a kind.
_WORD, _SPACE, _DIGIT, _OTHER = 128, 129, 130, 131
_ALL: Chars = frozenset(range(132))
_CATEGORIES: dict[Any, Chars] = {
    op.CATEGORY_DIGIT: frozenset({*(c for c in range(128) if chr(c).isdigit()), _DIGIT}),
    op.CATEGORY_SPACE: frozenset({*(c for c in range(128) if chr(c).isspace()), _SPACE}),
    op.CATEGORY_WORD: frozenset({*(c for c in range(128) if chr(c).isalnum()), ord("_"), _WORD, _DIGIT}),
}
_CATEGORIES |= {
    op.CATEGORY_NOT_DIGIT: _ALL - _CATEGORIES[op.CATEGORY_DIGIT],
    op.CATEGORY_NOT_SPACE: _ALL - _CATEGORIES[op.CATEGORY_SPACE],
    op.CATEGORY_NOT_WORD: _ALL - _CATEGORIES[op.CATEGORY_WORD],
}
_REPEATS = (op.MAX_REPEAT, op.MIN_REPEAT, op.POSSESSIVE_REPEAT)


class UnsafePatternError(ValueError):
    """The pattern may take longer than anybody waits, or is no pattern; the message says which part."""


@dataclass(frozen=True, slots=True)
class SafePattern:
    """A compiled pattern and the longest text it may be searched in."""

    compiled: re.Pattern[str]
    max_chars: int


@lru_cache(maxsize=256)
def safe_pattern(pattern: str) -> SafePattern:
    """Compile and judge ``pattern``. Raises `UnsafePatternError`."""
    try:
        compiled = re.compile(pattern)
        tree = list(_parser.parse(pattern))
        judge = _Judge(anchored=not compiled.flags & re.MULTILINE)
        judge.follow(tree, {(_ALL, frozenset()): 1})
    except (re.error, RecursionError, OverflowError) as error:
        raise UnsafePatternError(f"is no regular expression: {error}") from error
    longest = (STEPS * math.factorial(judge.degree) / judge.choices) ** (1 / judge.degree)
    if longest < _LEAST_CHARS:
        raise UnsafePatternError("has too many repeats that can match the same text")
    return SafePattern(compiled, min(_MOST_CHARS, int(longest)))


_Reaching: TypeAlias = dict[tuple[Chars, frozenset[Chars]], int]
"""Endless repeats that were passed, as what they match and what has to be matched since → their degree."""


class _Judge:
    """Walks a pattern once; then a search takes at most about choices × length^degree steps."""

    def __init__(self, *, anchored: bool) -> None:
        self.degree, self.choices = 1, 1
        self._anchored = anchored

    def follow(self, nodes: Iterable[Node], reaching: _Reaching) -> _Reaching:
        for kind, value in nodes:
            reaching = self._pass(kind, value, reaching)
        return reaching

    def _pass(self, kind: Any, value: Any, reaching: _Reaching) -> _Reaching:
        if kind in _REPEATS:
            least, most, body = value
            return self._repeat(least, most, body, reaching)
        if kind is op.SUBPATTERN:
            return self.follow(value[-1], reaching)
        if kind is op.ATOMIC_GROUP:
            return self.follow(value, reaching)
        if kind is op.BRANCH:
            self.choices *= len(value[1])
            ends = [self.follow(each, reaching) for each in value[1]]
            return _joined(*ends)
        if kind is op.AT:
            self._may_fail(reaching)
            start = value is op.AT_BEGINNING_STRING or (value is op.AT_BEGINNING and self._anchored)
            return {} if start else reaching
        if kind in (op.ASSERT, op.ASSERT_NOT):
            self._may_fail(self.follow(value[1], reaching))
            return reaching
        if kind is op.GROUPREF:
            return self._endless(_ALL, _ALL, reaching)
        self._may_fail(reaching)
        chars = _chars(kind, value)
        return _joined(
            {(loop, since | {chars}): degree for (loop, since), degree in reaching.items() if loop & chars}
        )

    def _repeat(self, least: int, most: int, body: Sequence[Node], reaching: _Reaching) -> _Reaching:
        first, nullable = _first(body)
        if most > 1:
            if nullable and any(kind is not op.AT for kind, _ in body):
                raise UnsafePatternError("repeats what can be empty")
            _decided(body, first)
        if least:
            reaching = self.follow(body, reaching)
        if most == least:
            return reaching
        if most - least > _ENDLESS:
            return self._endless(_alphabet(body), first, reaching)
        self.choices *= most - least + 1
        return _joined(reaching, self.follow(body, reaching))

    def _endless(self, chars: Chars, first: Chars, reaching: _Reaching) -> _Reaching:
        degree = 1 + max(
            (
                degree
                for (loop, since), degree in reaching.items()
                if loop & first and all(passed & chars for passed in since)
            ),
            default=0,
        )
        return _joined(reaching, {(chars, frozenset()): degree})

    def _may_fail(self, reaching: _Reaching) -> None:
        """Here a match can fail, and then every repeat before is tried at every other length."""
        self.degree = max(self.degree, *reaching.values(), 1)


def _joined(*parts: _Reaching) -> _Reaching:
    joined: _Reaching = {}
    for part in parts:
        for key, degree in part.items():
            joined[key] = max(degree, joined.get(key, 0))
    if len(joined) > _LEAST_CHARS:
        raise UnsafePatternError("has too many repeats")
    return joined


def _decided(nodes: Sequence[Node], after: Chars) -> None:
    """Refuse a sequence, repeated itself, in which the next character does not decide how to go on."""
    for position, (kind, value) in enumerate(nodes):
        rest, nullable = _first(nodes[position + 1 :])
        follow = rest | after if nullable else rest
        if kind in _REPEATS:
            least, most, body = value
            first, _ = _first(body)
            if least != most and first & follow:
                raise UnsafePatternError("repeats a part whose own repeat can end in several places")
            _decided(body, first | follow if most > 1 else follow)
        elif kind is op.BRANCH:
            seen: Chars = frozenset()
            for each in value[1]:
                first, empty = _first(each)
                first = first | follow if empty else first
                if seen & first:
                    raise UnsafePatternError("repeats alternatives that can begin alike")
                seen |= first
                _decided(each, follow)
        elif kind is op.SUBPATTERN:
            _decided(value[-1], follow)
        elif kind is op.ATOMIC_GROUP:
            _decided(value, follow)
        elif kind in (op.ASSERT, op.ASSERT_NOT, op.GROUPREF):
            raise UnsafePatternError("repeats a look-around or a back-reference")


def _first(nodes: Iterable[Node]) -> tuple[Chars, bool]:
    """The characters a sequence can begin with, and whether it can match nothing at all."""
    first: Chars = frozenset()
    for kind, value in nodes:
        begin, nullable = _first_of(kind, value)
        first |= begin
        if not nullable:
            return first, False
    return first, True


def _first_of(kind: Any, value: Any) -> tuple[Chars, bool]:
    if kind in _REPEATS:
        first, nullable = _first(value[2])
        return first, nullable or value[0] == 0
    if kind is op.SUBPATTERN:
        return _first(value[-1])
    if kind is op.ATOMIC_GROUP:
        return _first(value)
    if kind is op.BRANCH:
        firsts = [_first(each) for each in value[1]]
        return frozenset().union(*(first for first, _ in firsts)), any(empty for _, empty in firsts)
    if kind in (op.AT, op.ASSERT, op.ASSERT_NOT):
        return frozenset(), True
    return (_ALL, True) if kind is op.GROUPREF else (_chars(kind, value), False)


def _alphabet(nodes: Iterable[Node]) -> Chars:
    """Every character a sequence can match anywhere."""
    chars: Chars = frozenset()
    for kind, value in nodes:
        if kind in _REPEATS or kind is op.SUBPATTERN:
            chars |= _alphabet(value[-1])
        elif kind is op.ATOMIC_GROUP:
            chars |= _alphabet(value)
        elif kind is op.BRANCH:
            chars = chars.union(*(_alphabet(each) for each in value[1]))
        elif kind is not op.AT:
            chars |= _chars(kind, value)
    return chars


def _chars(kind: Any, value: Any) -> Chars:
    """The characters of one position; letters in both cases, since flags may say so."""
    if kind is op.LITERAL:
        return _both_cases(value)
    if kind is op.NOT_LITERAL:
        return _ALL - {value}
    if kind is op.ANY:
        return _ALL
    if kind is not op.IN:
        raise UnsafePatternError(f"uses {str(kind).lower()}, which is not available")
    chars: set[int] = set()
    negated = False
    for item, detail in value:
        if item is op.NEGATE:
            negated = True
        elif item is op.CATEGORY:
            chars |= _CATEGORIES[detail]
        elif negated:  # taking too little away is the safe side
            low, high = detail if item is op.RANGE else (detail, detail)
            chars.update(range(low, min(high, 127) + 1))
        elif item is op.RANGE:
            chars.update(*(_both_cases(code) for code in range(detail[0], min(detail[1], 127) + 1)))
            if detail[1] > 127:
                chars |= {_WORD, _SPACE, _DIGIT, _OTHER}
        else:
            chars |= _both_cases(detail)
    return _ALL - chars if negated else frozenset(chars)


def _both_cases(code: int) -> Chars:
    character = chr(code)
    if code > 127:
        kinds = ((character.isdigit(), _DIGIT), (character.isspace(), _SPACE), (character.isalnum(), _WORD))
        return frozenset({next((kind for fits, kind in kinds if fits), _OTHER)})
    return frozenset({code, ord(character.lower()), ord(character.upper())})
