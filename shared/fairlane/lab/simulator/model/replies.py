"""Writes a model's replies: filler, an echo, an answer, a verdict, a refusal, a tool call or a vector."""

import hashlib
import math
from dataclasses import replace
from functools import partial

from fairlane.lab.simulator.config import SimulatedModel
from fairlane.lab.simulator.model.answers import AnswerBook
from fairlane.lab.simulator.model.assistant import Assistant, stretched
from fairlane.lab.simulator.model.behaviour import longest_answer, share
from fairlane.lab.simulator.wire.dialect import CHARS_PER_TOKEN, Call, Reply, ToolUse, count_tokens

DIMENSIONS = 32
"""Length of an embedding; short, because callers compare only directions."""

_CALLS_TOOLS = frozenset({"tool", "judge", "assistant"})

REFUSAL = "I'm sorry, but I can't help with that."


class Composer:
    """Writes one model's replies. The same seed, model, prompt and length always give the same text."""

    def __init__(self, name: str, model: SimulatedModel, seed: int) -> None:
        self._name, self._model, self._seed = name, model, seed
        self._book = AnswerBook.from_jsonl(model.answers_file) if model.answers_file is not None else None
        self._assistant = Assistant(model, partial(share, seed, name), self._book)

    def compose(self, call: Call, drawn_tokens: int) -> Reply:
        """The reply to ``call``, at most as long as it allows; ``drawn_tokens`` is the length of filler."""
        if call.inputs:
            return Reply("", 0, False, vectors=tuple(map(self._vector, call.inputs)))
        reply = self._one(call, drawn_tokens)
        if call.samples == 1:
            return reply
        others = tuple(self._one(call, drawn_tokens, f"#{number}") for number in range(1, call.samples))
        tokens = reply.completion_tokens + sum(other.completion_tokens for other in others)
        return replace(reply, completion_tokens=tokens, others=others)

    def _one(self, call: Call, drawn_tokens: int, sample: str = "") -> Reply:
        """One of the answers to a call; ``sample`` numbers them."""
        allowed = longest_answer(self._model, call.max_tokens)
        refusals = self._model.refusals
        if refusals and share(self._seed, self._name, "refusal", call.prompt + sample) < refusals:
            return replace(_fitted(REFUSAL, allowed), refused=True)
        if call.tools and self._model.output in _CALLS_TOOLS:
            return self._tool_use(call)
        match self._model.output:
            case "text" | "tool":
                return self._filler(call, drawn_tokens, allowed, sample)
            case "echo":
                return _fitted(call.question, allowed)
            case "fixed":
                return _fitted(self._model.fixed_text, allowed)
            case "judge":
                return _fitted(self._assistant.verdict(call, sample=sample), allowed)
            case _:
                answer = self._answer(call, min(drawn_tokens, allowed), sample)
        return (
            self._filler(call, drawn_tokens, allowed, sample) if answer is None else _fitted(answer, allowed)
        )

    def _answer(self, call: Call, tokens: int, sample: str) -> str | None:
        """The answer to what a call asks; ``None`` if it asks for nothing that the model recognises."""
        if self._model.output == "schema":
            return None if call.schema is None else self._assistant.in_form(call, {})
        if self._model.output == "assistant":
            return self._assistant.answer(call, tokens, sample=sample)
        known = self._book.find(call.question) if self._book is not None else None
        return None if known is None else self._assistant.known(call, known, tokens, sample=sample)

    def _filler(self, call: Call, drawn_tokens: int, allowed: int, sample: str) -> Reply:
        """Text that begins with the prompt's digest, so that an answer shows its prompt."""
        tokens = min(drawn_tokens, allowed)
        asked = (call.prompt + sample).encode(errors="surrogatepass")
        opening = f"sim-{hashlib.blake2b(asked, digest_size=4).hexdigest()} "
        text = stretched(opening, tokens * CHARS_PER_TOKEN - 1) + "."
        return Reply(text, tokens, truncated=drawn_tokens > allowed)

    def _tool_use(self, call: Call) -> Reply:
        """A call of the first tool, with arguments that its schema allows, and that answer what is asked."""
        tool = call.tools[0]
        asked = replace(call, schema=tool.schema, tools=())
        match self._model.output:
            case "judge":
                arguments = self._assistant.verdict(asked)
            case "assistant":
                arguments = self._assistant.answer(asked, 0) or "{}"
            case _:
                arguments = self._assistant.in_form(asked, {})
        return Reply("", max(1, count_tokens(arguments)), False, ToolUse(tool.name, arguments))

    def _vector(self, text: str) -> tuple[float, ...]:
        """The sum of one direction per word, scaled to length 1: texts that share words are similar."""
        total = [0.0] * DIMENSIONS
        for word in text.casefold().split() or [""]:
            for index in range(DIMENSIONS):
                total[index] += share(self._seed, "word", word, str(index)) - 0.5
        length = math.hypot(*total)
        return tuple(each / length for each in total)


def _fitted(text: str, allowed: int) -> Reply:
    fitting = text[: allowed * CHARS_PER_TOKEN]
    return Reply(fitting, max(1, count_tokens(fitting)), truncated=len(fitting) < len(text))
