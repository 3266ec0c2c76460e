"""Answers what a prompt asks, where it is recognised: verdicts, calculations, choices, known questions."""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from fairlane.lab.simulator.config import SimulatedModel
from fairlane.lab.simulator.model.answers import FINAL_MARK, AnswerBook, Known, last_number
from fairlane.lab.simulator.model.judging import (
    PAIRS,
    YES_NO,
    Question,
    enums_of,
    question_of,
    scales,
    truth_of,
)
from fairlane.lab.simulator.model.schemas import LEAST, MOST, Example, enum_of, properties_of
from fairlane.lab.simulator.model.solving import calculated, letter_of, options_of
from fairlane.lab.simulator.wire.dialect import CHARS_PER_TOKEN, Call

_STEPS = re.compile(r"step[- ]by[- ]step|show your work|reason(?:ing)? first|think it through", re.IGNORECASE)
_ANSWERS = frozenset({"answer", "final_answer", "result", "value", "solution", "output", "choice", "label"})
_REASONS = frozenset({"reason", "reasons", "reasoning", "argument", "explanation", "rationale", "feedback"})
_VERDICTS = frozenset({"pass", "passed", "correct", "is_correct", "met", "verdict", "agrees"})

Share = Callable[..., float]
"""A number in [0, 1) that depends on the model, its seed and the texts given alone."""


class Assistant:
    """One model's answers. ``share`` decides which are right; the same call always gets the same answer."""

    def __init__(self, model: SimulatedModel, share: Share, book: AnswerBook | None) -> None:
        self._model, self._share, self._book = model, share, book

    def verdict(self, call: Call, *, sample: str = "") -> str:
        """The verdict of a judge, in the words that the call offers, or as JSON in its schema."""
        question = question_of(call.question, enums_of(call.schema), self._solved)
        if question is None:
            question = Question(YES_NO, truth_of(call.question, self._solved))
        return self._decided(call, question, sample, unknown=False)

    def answer(self, call: Call, tokens: int, *, sample: str = "") -> str | None:
        """The answer in at most ``tokens``; ``None`` if the call asks for nothing that it recognises."""
        question = question_of(call.question, enums_of(call.schema), self._solved)
        if question is not None:
            guess = self._share("opinion", call.prompt + sample) < 0.5
            return self._decided(call, question, sample, unknown=guess)
        known = self._solved(call.question)
        said = None if known is None else self._answered(call, known, sample)
        if call.schema is not None:
            return self.in_form(call, {} if said is None else dict.fromkeys(_ANSWERS, said))
        return None if said is None else self._answer_text(call, said, tokens)

    def known(self, call: Call, known: Known, tokens: int, *, sample: str = "") -> str:
        """The answer to a known question."""
        return self._answer_text(call, self._answered(call, known, sample), tokens)

    def in_form(self, call: Call, said: Mapping[str, Any]) -> str:
        """JSON that follows the call's schema, with the values of ``said`` in its own properties."""
        schema, prompt = call.schema or {}, call.prompt
        omits, breaks = frozenset(self._model.schema_omits), frozenset(self._model.schema_breaks)
        example = Example(lambda place: self._share(place, prompt), omits, breaks, scales(prompt))
        document = example.of(schema)
        properties = properties_of(schema) if isinstance(document, dict) else {}
        for name, each in properties.items():
            fitting = _fitting(said.get(name.lower()), each)
            if fitting is not None:
                document[name] = fitting
        return json.dumps(document, ensure_ascii=False)

    def _decided(self, call: Call, question: Question, sample: str, *, unknown: bool) -> str:
        right = self._share("judge", call.prompt + sample) < self._model.judge_accuracy
        holds = unknown if question.truth is None else question.truth == right
        word = question.words[0 if holds else 1]
        if call.schema is None:
            return word
        reason = "The answer is what was asked for." if holds else "The answer is not what was asked for."
        said = {**dict.fromkeys(_ANSWERS | _VERDICTS, word), **dict.fromkeys(_REASONS, reason)}
        if question.truth is not None:
            low, high = next(iter(scales(call.prompt).values()), (LEAST, MOST))
            said["score"] = f"{high if holds else low:g}"
        return self.in_form(call, said)

    def _answered(self, call: Call, known: Known, sample: str) -> str:
        """The final answer to a question whose true one is ``known``: right for the configured share."""
        accuracy = self._model.accuracy
        if self._model.step_accuracy is not None and _STEPS.search(call.prompt):
            accuracy = self._model.step_accuracy
        right = self._share("answer", known.question + sample) < accuracy
        options = options_of(call.question)
        letter = letter_of(options, known.answer) if options else None
        if letter is not None:
            others = [each for each in options if each != letter]
            return (
                letter if right else others[int(self._share("wrong", known.question + sample) * len(others))]
            )
        return known.answer if right else self._wrong(known, sample)

    def _wrong(self, known: Known, sample: str) -> str:
        number = last_number(known.answer)
        if number is None:
            return f"not {known.answer}"
        away = 1 + int(self._share("wrong", known.question + sample) * 9)
        return f"{number + away:.15g}"

    def _answer_text(self, call: Call, final: str, tokens: int) -> str:
        """The final answer alone, or at the end of its working."""
        steps = self._model.step_accuracy is not None and _STEPS.search(call.prompt)
        if self._model.answer_style == "plain" and not steps:
            return final
        ending = f"{FINAL_MARK} {final}"
        room = tokens * CHARS_PER_TOKEN - len(ending) - 1
        return f"{stretched('', room)} {ending}" if room > 0 else ending

    def _solved(self, text: str) -> Known | None:
        known = self._book.find(text) if self._book is not None else None
        if known is None:
            known = calculated(text)
        if known is None and (options := options_of(text)):
            letters = list(options)
            return Known(text, letters[int(self._share("opinion", text) * len(letters))])
        return known


_FILLER = "one lane admits what its budget allows and never a call more, so each waits its turn and "


def stretched(opening: str, chars: int) -> str:
    """``opening``, continued with filler to ``chars`` characters."""
    missing = chars - len(opening)
    repeats = missing // len(_FILLER) + 1 if missing > 0 else 0
    return (opening + _FILLER * repeats)[:chars]


def _fitting(value: Any, schema: Mapping[str, Any]) -> Any:
    """``value`` as the property's schema takes it; ``None`` if it does not."""
    if value is None:
        return None
    if values := enum_of(schema):
        return next((each for each in values if str(each).casefold() == str(value).casefold()), None)
    match schema.get("type"):
        case "string" if isinstance(value, str):
            return value
        case "integer" | "number" if isinstance(value, str) and (number := last_number(value)) is not None:
            return int(number) if number.is_integer() else number
        case "boolean" if (word := str(value)) in {each for pair in PAIRS for each in pair}:
            return any(word == holds for holds, _ in PAIRS)
    return None
