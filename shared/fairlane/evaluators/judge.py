"""Reads which of the choices a judge's answer makes, and why."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from fairlane.evaluators.agents import json_answer
from fairlane.evaluators.scorers import Score

SHOWN = 200
"""Characters of an answer that an error quotes."""

_REASONING_END = "</think>"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The score of a judge's answer, and what it said: its reason, or without one its own words."""

    score: Score
    said: str


def read_verdict(answer: str, choices: Mapping[str, float]) -> Verdict:
    """Read an answer in the form of `rubrics.verdict_format`, or any text as `parse_choice` does.

    JSON that breaks off has no score: a choice that is found in an unfinished reason is no verdict.
    """
    text = answer.rpartition(_REASONING_END)[2].strip()
    try:
        document = json_answer(answer)
    except ValueError:
        if text.startswith('{"'):
            return Verdict(Score(None, f"the judge's JSON breaks off: {_shown(text)}"), text)
        return Verdict(parse_choice(answer, choices), text)
    choice = document.get("choice") if isinstance(document, dict) else None
    if not isinstance(choice, str):
        return Verdict(parse_choice(answer, choices), text)
    reason = document.get("reason")
    return Verdict(parse_choice(choice, choices), reason if isinstance(reason, str) and reason else choice)


def parse_choice(answer: str, choices: Mapping[str, float]) -> Score:
    """The score of the choice that ``answer`` makes, in any case and with any punctuation.

    Judges answer with a choice alone, with a verdict and then reasons, or with reasons and then a verdict. So
    the choice is the whole answer, or else its last line that is one, perhaps after a label ("Verdict: yes").
    Otherwise it is the only choice found as a word, or the one that the answer begins or ends with, unless
    these are two. Any other answer has no score. Reasoning up to ``</think>`` is left out.
    """
    text = answer.rpartition(_REASONING_END)[2].strip().casefold()
    vocabulary = _Vocabulary.of(tuple(choices))
    lines = [text, *reversed(text.splitlines())]
    made = next((choice for line in lines if (choice := vocabulary.verdict(line))), None)
    if made is None:
        named = vocabulary.mentions(text)
        if not named:
            return Score(None, f"the judge answered {_shown(answer)}, none of {', '.join(choices)}")
        made = _decisive(text, named)
    if made is None:
        return Score(None, f"the judge answered {_shown(answer)}, with several of {', '.join(choices)}")
    return Score(float(choices[made]))


@dataclass(frozen=True, slots=True)
class _Mention:
    choice: str
    start: int
    end: int


class _Vocabulary:
    """Finds choices as whole words, longest first, so that "not correct" is not "correct".

    A number is no whole word inside a decimal or after a minus or a slash: "4/5" names 4 alone.
    """

    def __init__(self, choices: tuple[str, ...]) -> None:
        self._by_key = {_key(choice): choice for choice in choices if choice.strip()}
        keys = sorted(self._by_key, key=len, reverse=True)
        either = "|".join(re.escape(key).replace(r"\ ", r"\s+") for key in keys) or r"(?!)"
        self._word = re.compile(rf"(?<![^\W_])(?<![-−])(?<!\d[.,/])(?:{either})(?![^\W_])(?![.,]\d)")

    @staticmethod
    @lru_cache(maxsize=256)
    def of(choices: tuple[str, ...]) -> _Vocabulary:
        """The vocabulary of these choices, made once."""
        return _Vocabulary(choices)

    def mentions(self, text: str) -> list[_Mention]:
        """Every mention of a choice in a casefolded text, in order."""
        found = self._word.finditer(text)
        return [_Mention(self._by_key[_key(word.group())], word.start(), word.end()) for word in found]

    def verdict(self, line: str) -> str | None:
        """The choice that is the whole line, or all of it after its last colon."""
        for part in (line, line.rpartition(":")[2]):
            named = self.mentions(part)
            if len(named) == 1 and _is_empty(part[: named[0].start]) and _is_empty(part[named[0].end :]):
                return named[0].choice
        return None


def _decisive(text: str, named: list[_Mention]) -> str | None:
    candidates = {mention.choice for mention in named}
    if len(candidates) > 1:
        candidates = {named[0].choice} if _is_empty(text[: named[0].start]) else set()
        candidates |= {named[-1].choice} if _is_empty(text[named[-1].end :]) else set()
    return candidates.pop() if len(candidates) == 1 else None


def _is_empty(text: str) -> bool:
    """Whether nothing but punctuation and white space is left."""
    return not any(character.isalnum() for character in text)


def _key(choice: str) -> str:
    return " ".join(choice.casefold().split())


def _shown(answer: str) -> str:
    return repr(answer if len(answer) <= SHOWN else f"{answer[:SHOWN]}…")
