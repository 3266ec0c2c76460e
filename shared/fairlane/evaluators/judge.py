"""Reads which of the choices a judge's answer makes, and why."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fairlane.evaluators.agents import json_answer
from fairlane.evaluators.mentions import Choices
from fairlane.evaluators.scorers import Score
from fairlane.evaluators.verdicts import verdict

SHOWN = 200
"""Characters of an answer that an error quotes."""

_REASONING_END = "</think>"
_BEGINS_JSON = re.compile(r"(?:```(?:json)?\s*)?\{\s*\"")
_FIELDS = frozenset(
    (
        *("verdict", "rating", "score", "grade", "decision", "judgement", "judgment", "answer", "result"),
        *("label", "conclusion", "final_verdict", "final_answer", "final_score", "overall"),
    )
)
"""Names that judges give the field of their verdict where nobody names it."""


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
    document = _document(answer)
    if document is None:
        if _BEGINS_JSON.match(text):
            return Verdict(Score(None, f"the judge's JSON breaks off: {_shown(text)}"), text)
        return Verdict(parse_choice(answer, choices), text)
    choice, reason = document.get("choice"), document.get("reason")
    said = reason if isinstance(reason, str) and reason else choice if isinstance(choice, str) else text
    return Verdict(parse_choice(answer, choices), said)


def parse_choice(answer: str, choices: Mapping[str, float]) -> Score:
    """The score of the choice that ``answer`` decides for, in any case and with any markup.

    JSON is read by its field "choice", or another that names a verdict. `verdicts.verdict` says what counts
    in any other text. A choice that prose mentions is no verdict: such an answer has no score, and an error
    that quotes it. Reasoning up to ``</think>`` is left out.
    """
    text = answer.rpartition(_REASONING_END)[2].strip()
    document = _document(text)
    if document is not None:
        text = _field(document)
    vocabulary = Choices.of(tuple(choices))
    made = verdict(text, vocabulary)
    if made is not None:
        return Score(float(choices[made]))
    offered, named = ", ".join(choices), len(vocabulary.named(vocabulary.normalized(text)))
    if not named:
        return Score(None, f"the judge answered {_shown(answer)}, none of {offered}")
    if named > 1:
        return Score(None, f"the judge answered {_shown(answer)}, with several of {offered}")
    return Score(None, f"the judge answered {_shown(answer)}, which is no plain verdict of {offered}")


def _document(answer: str) -> dict[str, Any] | None:
    try:
        document = json_answer(answer)
    except ValueError:
        return None
    return document if isinstance(document, dict) else None


def _field(document: Mapping[str, Any]) -> str:
    """What a judge's JSON says in the field of its verdict; nothing if two such fields differ."""
    named = {key.casefold(): value for key, value in document.items()}
    if "choice" in named:
        return _text(named["choice"])
    found = {_text(value) for key, value in named.items() if key in _FIELDS or len(named) == 1}
    return found.pop() if len(found) == 1 else ""


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value)
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value) if isinstance(value, str | int) else ""


def _shown(answer: str) -> str:
    return repr(answer if len(answer) <= SHOWN else f"{answer[:SHOWN]}…")
