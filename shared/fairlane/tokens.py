"""How many tokens a call may cost: a reservation at dispatch, trued up by the response's usage."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

CHARS_PER_TOKEN = 4
"""About four characters of English text make a token: the rule of thumb of OpenAI's documentation ("What are
tokens and how to count them?"). Other scripts and code have more tokens than it says; usage corrects that."""

TOKENS_PER_MESSAGE = 3
"""What a message's role and separators add, and once more for the start of the answer (OpenAI's cookbook,
"How to count tokens with tiktoken")."""

DEFAULT_OUTPUT_TOKENS = 1024
"""Reserved for the answer where the parameters set no limit."""

MOST_OUTPUT_TOKENS = 1_000_000
"""More than any model answers with: a larger limit reserves no more, and so cannot shut a lane for days."""


class Estimate(NamedTuple):
    """Tokens of one call, before or after it: the whole prompt, and all that is answered."""

    input: int
    output: int

    @property
    def total(self) -> int:
        return self.input + self.output


def estimate_tokens(text: str) -> int:
    """Tokens of ``text``, ``ceil(characters / 4)``; 0 for an empty one."""
    return -(-len(text) // CHARS_PER_TOKEN)


def estimate_call(messages: Sequence[Mapping[str, Any]], params: Mapping[str, Any]) -> Estimate:
    """Tokens to reserve for one call: at least what the rule of thumb would charge for it.

    The output is the limit that ``params`` set (``max_completion_tokens``, ``max_tokens``), times ``n``, or
    `DEFAULT_OUTPUT_TOKENS`. A limit that is no positive integer is ignored: the provider will refuse it.
    """
    prompt = sum(estimate_tokens(_text(message.get("content"))) + TOKENS_PER_MESSAGE for message in messages)
    limits = [
        limit
        for name in ("max_completion_tokens", "max_tokens")
        if (limit := _positive(params.get(name))) > 0
    ]
    asked = max(limits, default=DEFAULT_OUTPUT_TOKENS) * max(1, _positive(params.get("n")))
    return Estimate(prompt + TOKENS_PER_MESSAGE, min(asked, MOST_OUTPUT_TOKENS))


def estimate_inputs(inputs: Sequence[str]) -> Estimate:
    """Tokens to reserve for embedding texts: nothing is answered that is counted."""
    return Estimate(sum(estimate_tokens(text) for text in inputs), 0)


def _text(content: object) -> str:
    """A message's content; one of several parts counts with its JSON."""
    return content if isinstance(content, str) else json.dumps(content)


def _positive(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0
