"""Finds the choices of a judge in a text, and whether a text is only a choice."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from unicodedata import normalize

_SIGNS = r"[\s\"'“”„«»`*_#.,;:!…(){}\[\]|$\\•✅✓✔。、「」『』【】《》-]"
SIGNS = re.compile(f"{_SIGNS}*")
"""Characters that may surround a choice. Others change its meaning: "~3", ">3", "3+", "yes?"."""

_ALONE = re.compile(rf"(?:{_SIGNS}|\0)+")
_MISLEADING = re.compile(r"!\s*\0|\0-|\(\s*\)|\[\s*\]")
"""Characters that change the meaning of a choice (here a null): "!pass", "A-", "( ) yes", "[ ] yes"."""

_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uf900-\ufaff\U00020000-\U0003ffff"
)
UNSPACED = re.compile(f"[{_UNSPACED}]")
"""Letters of scripts without spaces: Thai, Lao, Burmese, Khmer, kana, Chinese characters."""

_BEFORE = r"(?<![-−])(?<![.,/\u2044](?=\d))"
_AFTER = r"(?![.,]\d)(?!(?<=\bno)(?:\. ?\d| +(?!because\b|since\b)[^\W\d_]))"
"""A choice is not found inside "-3" or "4.5", nor "no" in "No. 5" and "no doubt"."""

_NO_LETTER_BEFORE = (rf"(?:(?<![^\W_])|(?<=[{_UNSPACED}]))", rf"(?<![{_UNSPACED}])")
_NO_LETTER_AFTER = (rf"(?:(?![^\W_])|(?=[{_UNSPACED}]))", rf"(?![{_UNSPACED}])")
"""The bounds of a choice as a whole word: only a letter of the same kind of script continues it. The second
pattern of each is for scripts without spaces.
"""

_DASH = re.compile(r"(?<![^\W_])(?:[-−–—](?=[ \t*_`\"'(\[{$]+\d)|[–—](?=\d))")
"""A dash that may be the sign of a number: where a choice is negative, "- 1" is neither 1 nor -1."""

_NUMBER = re.compile(r"(?<![^\W_])(?<![.,/\u2044+−–—-])[+−-]?\d+(?:\.\d+)?(?![^\W_]|[.,]\d|\u2044)")
_MOST_DIGITS = 40
_UNITS = re.compile(r"(?<=\d) ?(?:(?:stars?|points?)\b|[分点星](?![^\W_]))")
_RAISED = re.compile("([²³¹¼-¾⁰-₎⅐-⅟↉①-⓿❶-➓㉈-㊿㊱-㋿\U0001f100-\U0001f1ff]+)")
"""Raised and enclosed digits, and fractions: "4²" is not "42"."""


class Choices:
    """Finds choices as whole words, longest first, so that "not correct" is not "correct".

    All methods but ``normalized`` take a text that it returned.
    """

    def __init__(self, choices: tuple[str, ...]) -> None:
        named = [choice for choice in choices if choice.strip()]
        plain = {_key(choice, _compatible) for choice in named}
        self._fold = _compatible if len(plain) == len({_key(each, _folded) for each in named}) else _folded
        self._by_key = {_key(choice, self._fold): choice for choice in named}
        keys = sorted(self._by_key, key=len, reverse=True)
        self._keys_of = _numbers(keys)
        self._signed = any(number < 0 for number in self._keys_of)
        self._word = re.compile("|".join(map(_pattern, keys)) or r"(?!)")
        liberal = "|".join(_pattern(key, apart=not UNSPACED.search(key)) for key in keys)
        self._mention = re.compile(liberal or r"(?!)")
        numbers = [int(key) for key in keys if key.isdecimal()]
        self._top = max(numbers) if len(numbers) > 1 else None

    @staticmethod
    @lru_cache(maxsize=256)
    def of(choices: tuple[str, ...]) -> Choices:
        """The finder of these choices, cached."""
        return Choices(choices)

    def normalized(self, text: str) -> str:
        """A text casefolded, with plain characters and newlines, and "4" for "4 out of 5 stars" and for
        "4.0". Variants such as full-width characters become the usual ones.
        """
        text = "\n".join(self._fold(text).splitlines())
        if self._keys_of:
            text = _NUMBER.sub(self._numbered, _UNITS.sub("", text))
        if self._signed:
            text = _DASH.sub("~", text)
        if self._top is None:
            return text
        out_of = rf"[*_`]{{0,3}} ?(?:/|\(?out of) ?{self._top}(?![\w/]|[.,]\d)\)?"
        return re.sub(rf"(?<![\w.,/-])(\d+){out_of}", r"\1", text)

    def first(self, text: str) -> tuple[str, int, int] | None:
        """The first choice in a text, with its start and end."""
        word = self._word.search(text)
        return (self._choice(word.group()), word.start(), word.end()) if word else None

    def named(self, text: str) -> set[str]:
        """All choices that a text mentions in any sense; in scripts without spaces, also within words."""
        return {self._choice(word.group()) for word in self._mention.finditer(text)}

    def alone(self, text: str) -> str | None:
        """The only content of a text beside punctuation: one choice, perhaps repeated."""
        named = {self._choice(word.group()) for word in self._word.finditer(text)}
        masked = self._word.sub("\0", text)
        decided = len(named) == 1 and _ALONE.fullmatch(masked) and not _MISLEADING.search(masked)
        return named.pop() if decided else None

    def _choice(self, word: str) -> str:
        return self._by_key[_key(word, self._fold)]

    def _numbered(self, number: re.Match[str]) -> str:
        return self._keys_of.get(_number(number.group()), number.group())


def harmless(signs: str) -> bool:
    """Whether characters before a choice keep its meaning."""
    return SIGNS.fullmatch(signs) is not None and _MISLEADING.search(f"{signs}\0") is None


def is_number(choice: str) -> bool:
    """Whether a choice is a number, such as "4", "-1" or "0.5"."""
    return not _number(choice.strip()).is_nan()


def _pattern(key: str, *, apart: bool = True) -> str:
    """A pattern of one choice; unless ``apart``, letters may stand right before and after it."""
    word = re.escape(key).replace(r"\ ", r"\s+")
    before, after = (
        (_NO_LETTER_BEFORE[bool(UNSPACED.match(key[0]))], _NO_LETTER_AFTER[bool(UNSPACED.match(key[-1]))])
        if apart
        else ("", "")
    )
    return f"{before}{_BEFORE}{word}{after}{_AFTER}"


def _numbers(keys: list[str]) -> dict[Decimal, str]:
    """Numeric choices by value, except a value that two choices share."""
    counts = Counter(number for key in keys if not (number := _number(key)).is_nan())
    return {number: key for key in keys if counts[number := _number(key)] == 1}


def _number(text: str) -> Decimal:
    if len(text) > _MOST_DIGITS or not re.fullmatch(r"[+−-]?\d+(?:\.\d+)?", text):
        return Decimal("NaN")
    try:
        return Decimal(text.replace("−", "-"))
    except InvalidOperation:
        return Decimal("NaN")


def _folded(text: str) -> str:
    return text.casefold().replace("’", "'")


def _compatible(text: str) -> str:
    """A text casefolded in Unicode's form NFKC, except raised and enclosed digits, and fractions."""
    if text.isascii():
        return text.casefold()
    pieces = _RAISED.split(_folded(text))
    return "".join(
        each if number % 2 else normalize("NFKC", each).casefold() for number, each in enumerate(pieces)
    )


def _key(choice: str, fold: Callable[[str], str]) -> str:
    return " ".join(fold(choice).split())
