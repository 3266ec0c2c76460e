"""Finds what a judge is asked to decide, in which words, and whether it is so."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from fairlane.lab.simulator.model.answers import Known, answer_agrees, last_number
from fairlane.lab.simulator.model.schemas import enum_of, properties_of

YES_NO = ("yes", "no")
PAIRS = (
    YES_NO,
    *(("pass", "fail"), ("true", "false"), ("correct", "incorrect"), ("right", "wrong"), ("good", "bad")),
    *(("met", "unmet"), ("agree", "disagree")),
)
_BETWEEN = r"[\"'`*]*\s*(?:,|/|\||\bor\b)+\s*[\"'`*]*(?:or\s+)?"
_OFFERS = tuple(
    (pair, re.compile(rf"\b{pair[0]}\b{_BETWEEN}\b{pair[1]}\b|\b{pair[1]}\b{_BETWEEN}\b{pair[0]}\b", re.I))
    for pair in PAIRS
)
_TAGGED = re.compile(r"<(output|rubric)>\s*(.*?)\s*</\1>", re.DOTALL | re.IGNORECASE)
_ANSWER_TO = re.compile(r"\bIs (.+) (?:the|a correct|the right) answer to (.+)", re.DOTALL | re.IGNORECASE)
_QUESTION = re.compile(
    r"^[ \t]*question[ \t]*:(.*?)^[ \t]*answer[ \t]*:(.*)", re.DOTALL | re.I | re.MULTILINE
)
_LABELS = re.compile(r"^[ \t]*(?:expected|answer)[ \t]*:", re.IGNORECASE | re.MULTILINE)
_QUOTED = re.compile(r"[\"“'‘`]([^\"”'’`]+)[\"”'’`]")  # noqa: RUF001 - quotation marks of prose
_FORBIDS = re.compile(r"\b(?:not|never|no|without|n't|avoids?)\b", re.IGNORECASE)
_CONTENT_WORD = re.compile(r"[^\W\d_]{4,}|\d+")
_FRAMING = frozenset(
    {
        *("answer", "answers", "output", "text", "response", "reply", "says", "states", "mentions"),
        *("names", "contains", "includes", "gives", "should", "must", "does", "that", "this", "with"),
        *("from", "have", "about"),
    }
)
"""Words of a rubric that an output need not have."""

MOST_CHARS = 8000
"""Characters at the end of a prompt that are searched for a question without labels."""

_SCALE = re.compile(r"^- (\S+) \((-?\d+(?:\.\d+)?) to (-?\d+(?:\.\d+)?)\):", re.MULTILINE)

Solve = Callable[[str], Known | None]


@dataclass(frozen=True, slots=True)
class Question:
    """What a judge decides: in ``words`` (for it, against it), and the ``truth`` if the prompt shows it."""

    words: tuple[str, str]
    truth: bool | None


def question_of(prompt: str, enums: Iterable[str], solve: Solve) -> Question | None:
    """What the prompt, or a schema with these ``enums``, asks to decide; ``None`` if nothing."""
    words = _offered(prompt, tuple(enums))
    return None if words is None else Question(words, truth_of(prompt, solve))


def truth_of(prompt: str, solve: Solve) -> bool | None:
    """Whether the judged answer is right, or meets its rubric; ``None`` if the prompt does not show it.

    The prompt shows it by ``Expected:`` and ``Answer:`` lines, or by a rubric and an output in tags. A
    question that ``solve`` can answer, with its answer, shows it too.
    """
    if len({each.strip().lower() for each in _LABELS.findall(prompt)}) == 2:
        return answer_agrees(prompt)
    prompt = prompt[-MOST_CHARS:]
    tagged = {name.lower(): text for name, text in _TAGGED.findall(prompt)}
    if tagged.keys() == {"output", "rubric"}:
        return meets(tagged["output"], tagged["rubric"])
    if found := _QUESTION.search(prompt):
        return _is_solved(solve(found[1]), found[2].strip().partition("\n")[0])
    if found := _ANSWER_TO.search(prompt):
        return _is_solved(solve(found[2]), found[1])
    return None


def meets(output: str, rubric: str) -> bool:
    """Whether an output has what a rubric quotes; without quotations, half of its words and all its numbers.

    A rubric that forbids something is met by an output that lacks it.
    """
    said = output.casefold()
    wanted = [each.casefold() for each in _QUOTED.findall(rubric)]
    if wanted:
        share = sum(each in said for each in wanted) / len(wanted)
        met = share == 1
    else:
        words = [each for each in _CONTENT_WORD.findall(rubric.casefold()) if each not in _FRAMING]
        found = [each for each in words if each in said]
        numbers = [each for each in words if each.isdigit()]
        share = len(found) / len(words) if words else 0.0
        met = share >= 0.5 and all(each in found for each in numbers)
    return share == 0 if _FORBIDS.search(rubric) else met


def scales(prompt: str) -> Mapping[str, tuple[float, float]]:
    """The scale of each criterion that the prompt lists as ``- id (1 to 5): …``."""
    return {name: (float(low), float(high)) for name, low, high in _SCALE.findall(prompt)}


def enums_of(schema: Mapping[str, Any] | None) -> list[str]:
    """The values of all enums in a schema's own properties."""
    return [str(value) for each in properties_of(schema or {}).values() for value in enum_of(each)]


def _offered(prompt: str, enums: tuple[str, ...]) -> tuple[str, str] | None:
    """The pair of words that a schema has, or that the prompt offers last."""
    lower = {each.casefold() for each in enums}
    for pair in PAIRS:
        if lower.issuperset(pair):
            return pair
    last, words = -1, None
    for pair, offer in _OFFERS:
        for found in offer.finditer(prompt[-MOST_CHARS:]):
            if found.start() > last:
                last, words = found.start(), pair
    return words


def _is_solved(known: Known | None, answer: str) -> bool | None:
    if known is None:
        return None
    expected = last_number(known.answer)
    if expected is None:
        return known.answer.casefold() in answer.casefold()
    return last_number(answer) == expected
