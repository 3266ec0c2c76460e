"""Reads a judge's answer: which of the choices did it make?"""

from __future__ import annotations

import re
from collections.abc import Mapping

from fairlane.evaluators.scorers import Score

_EDGES = " \t\r\n.,;:!?\"'`*_()[]{}<>"
SHOWN = 200


def parse_choice(answer: str, choices: Mapping[str, float]) -> Score:
    """The score of the choice that ``answer`` names.

    The whole answer counts first (case and surrounding punctuation aside), then its last line, where judges
    that reason first put their verdict, then the text as a whole; in each, the one choice found as a word.
    An answer that names none, or two different ones, has no score.
    """
    wanted = {choice.strip(_EDGES).casefold() or choice.casefold(): choice for choice in choices}
    exact = wanted.get(answer.strip(_EDGES).casefold())
    if exact is not None:
        return Score(float(choices[exact]))
    lines = [line for line in answer.splitlines() if line.strip(_EDGES)]
    for text in (lines[-1] if lines else "", answer):
        named = {choice for key, choice in wanted.items() if _names(text.casefold(), key)}
        named -= {
            shorter
            for shorter in named
            if any(shorter != c and shorter.casefold() in c.casefold() for c in named)
        }
        if len(named) == 1:
            return Score(float(choices[named.pop()]))
        if named:
            return Score(None, f"the judge named several choices: {answer[:SHOWN]!r}")
    return Score(None, f"the judge named none of {sorted(choices)}: {answer[:SHOWN]!r}")


def _names(text: str, choice: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(choice)}(?!\w)", text) is not None
