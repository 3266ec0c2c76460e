"""Where a text names the choices of a judge, and whether it says nothing else."""

from __future__ import annotations

import re
from functools import lru_cache

_SIGNS = r"[\s\"'“”„«»`*_#.,;:!…(){}\[\]|$\\•✅✓✔-]"
SIGNS = re.compile(f"{_SIGNS}*")
"""Signs that may surround a choice. Others change what it says: "~3", ">3", "3+", "yes?"."""

_ALONE = re.compile(rf"(?:{_SIGNS}|\0)+")
_MISLEADING = re.compile(r"!\s*\0|\0-|\(\s*\)|\[\s*\]")
"""Signs that change a choice, which stands as a null: "!pass", "A-", "( ) yes", "[ ] yes"."""

_BEFORE = r"(?<![^\W_])(?<![-−])(?<![.,/](?=\d))"
_AFTER = r"(?![^\W_])(?![.,]\d)(?!(?<=\bno)(?:\. ?\d| +(?!because\b|since\b)[^\W\d_]))"
"""A choice is a whole word, no part of "-3" or "4.5"; the word "no" is none in "No. 5" and "no doubt"."""


class Choices:
    """Finds choices as whole words, longest first, so that "not correct" is not "correct".

    All methods but ``normalized`` take a text that it returned.
    """

    def __init__(self, choices: tuple[str, ...]) -> None:
        self._by_key = {_key(choice): choice for choice in choices if choice.strip()}
        keys = sorted(self._by_key, key=len, reverse=True)
        either = "|".join(re.escape(key).replace(r"\ ", r"\s+") for key in keys) or r"(?!)"
        self._word = re.compile(f"{_BEFORE}(?:{either}){_AFTER}")
        numbers = [int(key) for key in keys if key.isdecimal()]
        self._top = max(numbers) if len(numbers) > 1 else None

    @staticmethod
    @lru_cache(maxsize=256)
    def of(choices: tuple[str, ...]) -> Choices:
        """What finds these choices, made once."""
        return Choices(choices)

    def normalized(self, text: str) -> str:
        """A text casefolded, with plain apostrophes and newlines, and "4" for "4 out of 5 stars"."""
        text = "\n".join(_folded(text).splitlines())
        if self._top is None:
            return text
        text = re.sub(r"(?<=\d) ?(?:stars?|points?)\b", "", text)
        out_of = rf"[*_`]{{0,3}} ?(?:/|\(?out of) ?{self._top}(?![\w/]|[.,]\d)\)?"
        return re.sub(rf"(?<![\w.,/-])(\d+){out_of}", r"\1", text)

    def first(self, text: str) -> tuple[str, int, int] | None:
        """The first choice that a text names, and where it starts and ends."""
        word = self._word.search(text)
        return (self._by_key[_key(word.group())], word.start(), word.end()) if word else None

    def named(self, text: str) -> set[str]:
        """All choices that a text mentions, in whatever sense."""
        return {self._by_key[_key(word)] for word in self._word.findall(text)}

    def alone(self, text: str) -> str | None:
        """The choice that is all of a text but signs, perhaps said twice."""
        named, masked = self.named(text), self._word.sub("\0", text)
        decided = len(named) == 1 and _ALONE.fullmatch(masked) and not _MISLEADING.search(masked)
        return named.pop() if decided else None


def harmless(signs: str) -> bool:
    """Whether signs before a choice leave what it says as it is."""
    return SIGNS.fullmatch(signs) is not None and _MISLEADING.search(f"{signs}\0") is None


def _folded(text: str) -> str:
    return text.casefold().replace("’", "'")


def _key(choice: str) -> str:
    return " ".join(_folded(choice).split())
