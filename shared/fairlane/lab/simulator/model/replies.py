"""Writes a model's replies: filler, an echo, a known answer, a judgement, a tool call or a vector."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from typing import Any

from fairlane.lab.simulator.config import SimulatedModel
from fairlane.lab.simulator.model.answers import FINAL_MARK, AnswerBook, Known, answer_agrees, last_number
from fairlane.lab.simulator.model.behaviour import share
from fairlane.lab.simulator.model.schemas import Example
from fairlane.lab.simulator.wire.dialect import CHARS_PER_TOKEN, Call, Reply, ToolUse, count_tokens

DIMENSIONS = 32
"""Length of an embedding; short, because callers compare only directions."""

_FILLER = "one lane admits what its budget allows and never a call more, so each waits its turn and "


class Composer:
    """Writes one model's replies. The same seed, model, prompt and length always give the same text."""

    def __init__(self, name: str, model: SimulatedModel, seed: int) -> None:
        self._name, self._model, self._seed = name, model, seed
        self._book = AnswerBook.from_jsonl(model.answers_file) if model.answers_file is not None else None

    def compose(self, call: Call, drawn_tokens: int) -> Reply:
        """The reply to ``call``, at most as long as it allows; ``drawn_tokens`` is the length of filler."""
        if call.inputs:
            return Reply("", 0, False, vectors=tuple(map(self._vector, call.inputs)))
        longest = self._model.max_output_tokens
        allowed = min(call.max_tokens or longest, longest)
        match self._model.output:
            case "text":
                return self._filler(call, drawn_tokens, allowed)
            case "echo":
                return _fitted(call.question, allowed)
            case "fixed":
                return _fitted(self._model.fixed_text, allowed)
            case "answers":
                known = self._book.find(call.question) if self._book is not None else None
                if known is None:
                    return self._filler(call, drawn_tokens, allowed)
                return _fitted(self._answer(known, min(drawn_tokens, allowed)), allowed)
            case "judge":
                return _fitted(self._judgement(call), allowed)
            case "tool":
                return self._tool_use(call) if call.tools else self._filler(call, drawn_tokens, allowed)
            case "schema":
                if call.schema is None:
                    return self._filler(call, drawn_tokens, allowed)
                return _fitted(self._following(call.schema, call.prompt), allowed)

    def _filler(self, call: Call, drawn_tokens: int, allowed: int) -> Reply:
        """Text that begins with the prompt's digest, so that an answer shows its prompt."""
        tokens = min(drawn_tokens, allowed)
        opening = f"sim-{hashlib.blake2b(call.prompt.encode(), digest_size=4).hexdigest()} "
        text = _stretched(opening, tokens * CHARS_PER_TOKEN - 1) + "."
        return Reply(text, tokens, truncated=drawn_tokens > allowed)

    def _answer(self, known: Known, tokens: int) -> str:
        right = share(self._seed, self._name, "answer", known.question) < self._model.accuracy
        final = known.answer if right else self._wrong(known)
        if self._model.answer_style == "plain":
            return final
        ending = f"{FINAL_MARK} {final}"
        room = tokens * CHARS_PER_TOKEN - len(ending) - 1
        return f"{_stretched('', room)} {ending}" if room > 0 else ending

    def _wrong(self, known: Known) -> str:
        number = last_number(known.answer)
        if number is None:
            return f"not {known.answer}"
        away = 1 + int(share(self._seed, self._name, "wrong", known.question) * 9)
        return f"{number + away:.15g}"

    def _tool_use(self, call: Call) -> Reply:
        """A call of the first tool, with arguments that its schema allows."""
        tool = call.tools[0]
        arguments = self._following(tool.schema, call.prompt)
        return Reply("", max(1, count_tokens(arguments)), False, ToolUse(tool.name, arguments))

    def _vector(self, text: str) -> tuple[float, ...]:
        """The sum of one direction per word, scaled to length 1: texts that share words are similar."""
        total = [0.0] * DIMENSIONS
        for word in text.casefold().split() or [""]:
            for index in range(DIMENSIONS):
                total[index] += share(self._seed, "word", word, str(index)) - 0.5
        length = math.hypot(*total)
        return tuple(each / length for each in total)

    def _following(self, schema: Mapping[str, Any], prompt: str) -> str:
        omits, breaks = frozenset(self._model.schema_omits), frozenset(self._model.schema_breaks)
        example = Example(lambda place: share(self._seed, self._name, place, prompt), omits, breaks)
        return json.dumps(example.of(schema), ensure_ascii=False)

    def _judgement(self, call: Call) -> str:
        right = share(self._seed, self._name, "judge", call.prompt) < self._model.judge_accuracy
        return "yes" if answer_agrees(call.question) == right else "no"


def _stretched(opening: str, chars: int) -> str:
    missing = chars - len(opening)
    repeats = missing // len(_FILLER) + 1 if missing > 0 else 0
    return (opening + _FILLER * repeats)[:chars]


def _fitted(text: str, allowed: int) -> Reply:
    fitting = text[: allowed * CHARS_PER_TOKEN]
    return Reply(fitting, max(1, count_tokens(fitting)), truncated=len(fitting) < len(text))
