"""Finds the JSON of a model's answer: alone, in a fenced block, or with nothing but prose around it."""

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NoReturn

from fairlane.core.reasoning import without_reasoning

MOST_OBJECTS = 20
"""Objects in one answer that are compared; an answer with more has no JSON of its own."""

_BLANKS = " \t\r\n\ufeff\u00a0\u200b"
_FENCED = re.compile(r"```[^\n`]*\n(.*?)```", re.DOTALL)
_BEGINS = re.compile(r"\{\s*[\"'“]|\[\s*\{\s*\"")
"""How an object of JSON begins, or of what is meant to be JSON. Braces of prose and LaTeX begin otherwise."""

_LEADS = re.compile(r"(?:^|[\n:.!?…。\uff1a\uff01\uff1f`]|```\w*)\**[ \t]*\Z")
_ENDS = re.compile(r"[ \t]*(?:\Z|[\r\n]|```)")
"""The text before and after an object that is no part of a sentence."""

_OPENS = re.compile(r"(?:(?<!`)(?P<mark>`|\*\*|__)|<(?P<tag>\w{1,20})>)\s*\Z")
_TRAILS = re.compile(r"\s*(?:</s>|<\|[^|<>\n]{1,40}\|>)|\.(?=\s*\Z)")
"""What may stand around an object without a meaning: pairs of marks or tags, special tokens, a full stop."""

_STRING = r'"(?:[^"\\]|\\.)*+\\?(?:"|\Z)'
_TOKEN = re.compile(rf"{_STRING}|[\u00a0\u2000-\u200b\u202f\u3000\ufeff]", re.DOTALL)
_BRACKET = re.compile(rf"{_STRING}|[{{}}\[\]]", re.DOTALL)
_ESCAPE = re.compile(r'\\(["\\/bfnrt]|u[0-9a-fA-F]{4})|\\')


def json_or(text: str | bytes, other: Any = None) -> Any:
    """The value of a text that is JSON; ``other`` for a text that is none, or is nested too deep."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return other


class JsonProblem(ValueError):
    """An answer has no JSON of its own; the text says why. ``torn``: it has some that cannot be read."""

    def __init__(self, message: str, *, torn: bool = False) -> None:
        super().__init__(message)
        self.torn = torn


@dataclass(frozen=True, slots=True)
class Found:
    """The JSON of an answer, and the prose ``before`` and ``after`` it."""

    value: Any
    before: str = ""
    after: str = ""


def exact_json(text: str) -> Any:
    """The value of a text that is strict JSON alone. Raises ``ValueError``, also for NaN and for one key with
    two values, and `RecursionError`.
    """
    return _EXACT.decode(text)


def json_in(text: str, *, exact: bool = False) -> Any:
    """The value of the JSON in an answer. Raises `JsonProblem`; for ``exact`` see `find_json`."""
    return find_json(text, exact=exact).value


def find_json(text: str, *, exact: bool = False) -> Found:
    """The one JSON value of an answer, with the prose around it. Raises `JsonProblem`.

    That is the whole text, or what follows its reasoning, or its one fenced block, or its one object outside
    of a sentence. Several objects must be equal. It accepts line ends in strings, LaTeX and unusual spaces,
    but no key with two values; ``exact`` accepts strict JSON alone, in which a key's last value counts.
    """
    answer = without_reasoning(text).strip(_BLANKS)
    for each in dict.fromkeys((text.strip(_BLANKS), answer)):
        with suppress(_NotJson):
            return Found(_whole(each, exact=exact))
    try:
        return _embedded(answer, exact=exact)
    except (_NotJson, RecursionError) as error:
        raise JsonProblem(_flaw(error)) from None


def without_objects(text: str) -> str:
    """A text with a space for each JSON object or attempt at one; one that breaks off takes the rest."""
    kept, start = list[str](), 0
    while begins := _BEGINS.search(text, start):
        kept.append(text[start : begins.start()])
        start = _end_of(text, begins.start()) or len(text)
    return " ".join([*kept, text[start:]])


class _NotJson(ValueError):
    """A text is no JSON."""


def _embedded(text: str, *, exact: bool) -> Found:
    """The JSON in a fenced block or between prose."""
    fences = list(_FENCED.finditer(text))
    if len(fences) == 1:
        (fence,) = fences
        before, after = text[: fence.start()], text[fence.end() :]
        with suppress(_NotJson):
            found = Found(_whole(fence[1].strip(_BLANKS), exact=exact), before, after)
            beside = [each for prose in (before, after) for *_, each in _objects(prose, exact=exact)]
            return _only(found, beside)
    alone, values = list[Found](), list[Any]()
    for begin, end, value in _objects(text, exact=exact):
        values.append(value)
        begin, end = _unwrapped(text, begin, end)
        if _stands_alone(text, begin, end):
            alone.append(Found(value, text[:begin], text[end:]))
    if not alone:
        raise _NotJson("its JSON is part of a sentence" if values else "there is no JSON in it")
    return _only(alone[-1], values)


def _only(found: Found, others: list[Any]) -> Found:
    written = json.dumps(found.value, sort_keys=True)
    if any(json.dumps(other, sort_keys=True) != written for other in others):
        raise JsonProblem("it holds several JSON objects that differ")
    return found


def _objects(text: str, *, exact: bool) -> Iterator[tuple[int, int, Any]]:
    """Where objects and lists of objects begin and end in a text, and their values.

    Raises `JsonProblem` at one that cannot be read.
    """
    start = 0
    for _ in range(MOST_OBJECTS + 1):
        begins = _BEGINS.search(text, start)
        if begins is None:
            return
        begin = begins.start()
        try:
            value, start = _decoder(exact=exact).raw_decode(text, begin)
        except (ValueError, RecursionError) as error:
            _refuse_twice(error)
            value, start = _mended_at(text, begin, error, exact=exact)
        yield begin, start, value
    raise JsonProblem("it holds too many JSON objects")


def _mended_at(text: str, begin: int, error: Exception, *, exact: bool) -> tuple[Any, int]:
    """The object at ``begin``, read leniently, and its end. Raises if it cannot be read."""
    end = _end_of(text, begin)
    if end is not None and not exact:
        with suppress(_NotJson):
            return _whole(text[begin:end], exact=False), end
    if not _LEADS.search(text[max(0, begin - 20) : begin]):
        raise _NotJson("there is no JSON in it")
    said = "breaks off" if end is None else f"cannot be read: {_flaw(error)}"
    raise JsonProblem(f"the JSON {said}", torn=True)


def _unwrapped(text: str, begin: int, end: int) -> tuple[int, int]:
    """The bounds of an object together with the marks and tags around it."""
    while True:
        if trail := _TRAILS.match(text, end):
            end = trail.end()
        opens = _OPENS.search(text[max(0, begin - 30) : begin])
        if opens is None:
            return begin, end
        closing = f"</{opens['tag']}>" if opens["tag"] else opens["mark"]
        closes = re.compile(rf"\s*{re.escape(closing)}(?!`)").match(text, end)
        if closes is None:
            return begin, end
        begin, end = begin - len(opens[0]), closes.end()


def _stands_alone(text: str, begin: int, end: int) -> bool:
    leads = _LEADS.search(text[max(0, begin - 20) : begin]) if begin else True
    return bool(leads and _ENDS.match(text, end))


def _end_of(text: str, begin: int) -> int | None:
    """Where the brackets close that open at ``begin``; ``None`` if the text ends before."""
    depth = 0
    for token in _BRACKET.finditer(text, begin):
        if token[0] in "{[":
            depth += 1
        elif token[0] in "}]":
            depth -= 1
            if not depth:
                return token.end()
    return None


def _whole(text: str, *, exact: bool) -> Any:
    """The value of a text that is JSON and nothing else. Raises `_NotJson`, or `JsonProblem` for two keys."""
    try:
        return _decoder(exact=exact).decode(text)
    except (ValueError, RecursionError) as error:
        _refuse_twice(error)
        if exact or text[:1] not in ("{", "["):
            raise _NotJson(_flaw(error)) from None
    try:
        return _decoder(exact=False).decode(_TOKEN.sub(_mended, text))
    except (ValueError, RecursionError) as error:
        _refuse_twice(error)
        raise _NotJson(_flaw(error)) from None


def _mended(token: re.Match[str]) -> str:
    """A string with its lone backslashes escaped, or a plain space in place of an unusual one."""
    if token[0][0] != '"':
        return " "
    return _ESCAPE.sub(lambda found: found[0] if found[1] else r"\\", token[0])


def _decoder(*, exact: bool) -> json.JSONDecoder:
    return _EXACT if exact else _LENIENT


def _refuse_twice(error: Exception) -> None:
    if isinstance(error, JsonProblem):
        raise error


def _flaw(error: Exception) -> str:
    if isinstance(error, RecursionError):
        return "the JSON is nested too deeply"
    return str(error)


def _one_value_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        for key, value in pairs:
            if json.dumps(found[key], sort_keys=True) != json.dumps(value, sort_keys=True):
                raise JsonProblem(f"the JSON has two values of {key[:40]!r}", torn=True)
    return found


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


_LENIENT = json.JSONDecoder(strict=False, object_pairs_hook=_one_value_each)
_EXACT = json.JSONDecoder(parse_constant=_no_constant, object_pairs_hook=_one_value_each)
