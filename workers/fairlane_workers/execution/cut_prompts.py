"""Notices prompts of which a server seems to have read a part alone, and answered as if that were all."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from fairlane.model.outcome import Outcome, Success
from fairlane.model.record import PROMPT_CUT

CHARS_A_TOKEN = 7
"""More than a token of any prose has: English has 4 to 5 in today's tokenizers, other languages fewer."""

LEAST_COUNTED = 256
"""No server has a shorter context. Some gateways report 0, 1 or 10 tokens for any prompt."""

SAMPLES, SAMPLE_CHARS = 16, 512

_REPEATED = re.compile(r"(.{1,8}?)\1{2,}", re.DOTALL)
"""Blanks, rules and the like, of which a token may hold dozens."""


def with_note(outcome: Outcome, messages: Sequence[Mapping[str, Any]]) -> Outcome:
    """The outcome, with a note where the server counted far fewer tokens than the prompt has.

    Ollama cuts a prompt to its ``num_ctx`` and says nothing; the count of what it read is the only sign.
    """
    if not isinstance(outcome, Success) or (outcome.usage.input_tokens or 0) < LEAST_COUNTED:
        return outcome
    counted = (outcome.usage.input_tokens or 0) + (outcome.usage.cached_tokens or 0)
    most = CHARS_A_TOKEN * counted
    texts = list(_texts(messages))
    chars = sum(map(len, texts))
    if chars <= most or chars * _share_unrepeated(texts) <= most:
        return outcome
    note = f"{PROMPT_CUT}: it counted {counted:,} tokens for {chars:,} characters"
    return replace(outcome, notes=(*outcome.notes, note))


def _share_unrepeated(texts: Sequence[str]) -> float:
    """The share of characters without repetitions, by samples: reading all takes a second a megabyte."""
    whole = "".join(texts)
    step = max(1, len(whole) // SAMPLES)
    samples = [whole[at : at + SAMPLE_CHARS] for at in range(0, len(whole), step)]
    return sum(len(_REPEATED.sub(r"\1", each)) for each in samples) / sum(map(len, samples))


def _texts(messages: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The texts of a chat, without images and files."""
    for message in messages:
        content = message.get("content")
        for part in content if isinstance(content, list) else (content,):
            text = part.get("text") if isinstance(part, Mapping) else part
            if isinstance(text, str):
                yield text
