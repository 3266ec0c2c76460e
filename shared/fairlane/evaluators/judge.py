"""Reads the choice in a judge's answer, and its reason."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fairlane.core.json_answers import Found, JsonProblem, find_json, without_objects
from fairlane.core.reasoning import without_reasoning
from fairlane.evaluators.agents import tool_arguments
from fairlane.evaluators.mentions import Choices
from fairlane.evaluators.scorers import Score
from fairlane.evaluators.verdicts import verdict, vouches

SHOWN = 200
"""Characters of an answer that an error quotes."""

_FIELDS = frozenset(
    (
        *("verdict", "rating", "score", "grade", "decision", "judgement", "judgment", "answer", "result"),
        *("label", "conclusion", "final_verdict", "final_answer", "final_score", "overall"),
    )
)
"""Names that judges give the field of their verdict if the prompt names none."""

_PAIRS = (("true", "false"), ("yes", "no"), ("pass", "fail"), ("passed", "failed"), ("correct", "incorrect"))
"""Choices for which JSON's ``true`` and ``false`` stand."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The score of a judge's answer, and ``said``: its reason, or else its text."""

    score: Score
    said: str


def read_verdict(answer: str, choices: Mapping[str, float]) -> Verdict:
    """Read an answer in the form of `rubrics.verdict_format`, or in any other, in any case and markup.

    In JSON, the field "choice", or another that names a verdict, counts, if the prose around it does not
    contradict it. Cut JSON has no score: a choice in an unfinished reason is no verdict. In other text
    `verdicts.verdict` decides; a choice that prose only mentions does not count. Without a verdict the error
    quotes the answer. Reasoning is ignored.
    """
    text = without_reasoning(answer).strip()
    vocabulary = Choices.of(tuple(choices))
    try:
        found = find_json(answer)
    except JsonProblem as problem:
        if problem.torn:
            return Verdict(Score(None, f"{problem} in the judge's answer {_shown(text)}"), text)
        found = Found(None)
    document = tool_arguments(found.value)
    if not isinstance(document, dict):
        plain = without_objects(text)
        made = verdict(plain, vocabulary)
        if plain != text and verdict(text, vocabulary) not in (made, None):
            made = None  # JSON within the sentences says something else
        return Verdict(_score(made, plain, answer, choices), text)
    field = _field(document, choices)
    made = verdict(field, vocabulary)
    if made is not None and not vouches(found.before, found.after, made, vocabulary):
        made = None
    choice, reason = document.get("choice"), document.get("reason")
    said = reason if isinstance(reason, str) and reason else choice if isinstance(choice, str) else text
    return Verdict(_score(made, field, answer, choices), said)


def parse_choice(answer: str, choices: Mapping[str, float]) -> Score:
    """The score of the choice that ``answer`` decides for: see `read_verdict`."""
    return read_verdict(answer, choices).score


def _score(made: str | None, text: str, answer: str, choices: Mapping[str, float]) -> Score:
    """The score of a choice; without one, an error by the choices that the text names."""
    if made is not None:
        return Score(float(choices[made]))
    vocabulary = Choices.of(tuple(choices))
    offered, named = ", ".join(choices), len(vocabulary.named(vocabulary.normalized(text)))
    if not named:
        return Score(None, f"the judge answered {_shown(answer)}, none of {offered}")
    if named > 1:
        return Score(None, f"the judge answered {_shown(answer)}, with several of {offered}")
    return Score(None, f"the judge answered {_shown(answer)}, which is no plain verdict of {offered}")


def _field(document: Mapping[str, Any], choices: Mapping[str, float]) -> str:
    """The verdict field of a judge's JSON; empty if two such fields differ."""
    named = [(key.strip().casefold(), value) for key, value in document.items()]
    own = [pair for pair in named if pair[0] == "choice"]
    others = [pair for pair in named if pair[0] in _FIELDS or len(named) == 1]
    found = {_text(key, value, choices) for key, value in own or others}
    return found.pop() if len(found) == 1 else ""


def _text(key: str, value: object, choices: Mapping[str, float]) -> str:
    if isinstance(value, bool):
        return _meant(key, value, choices)
    return str(value) if isinstance(value, str | int | float) else ""


def _meant(key: str, value: bool, choices: Mapping[str, float]) -> str:
    """The choice that a truth value means, in a field of verdicts or in one named as the affirmative choice.

    Empty where the choices have several pairs of such words, or none.
    """
    offered = {choice.strip().casefold() for choice in choices}
    pairs = [pair for pair in _PAIRS if offered.issuperset(pair)]
    if len(pairs) != 1 or (key not in _FIELDS and key not in ("choice", pairs[0][0])):
        return ""
    return pairs[0][not value]


def _shown(answer: str) -> str:
    return repr(answer if len(answer) <= SHOWN else f"{answer[:SHOWN]}…")
