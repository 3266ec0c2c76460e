"""Why an answer ended, in OpenAI's words, whichever provider gave it."""

from __future__ import annotations

from collections.abc import Mapping

OPENAIS = ("stop", "length", "tool_calls", "content_filter", "function_call")
"""What chat completions say: https://platform.openai.com/docs/api-reference/chat/object"""

_WORDS: Mapping[str, tuple[str, ...]] = {
    "stop": (
        *("end_turn", "stop_sequence", "pause_turn"),  # Anthropic, Bedrock
        *("completed", "succeeded"),  # OpenAI's responses, Replicate
        *("eos", "eos_token", "complete"),  # Together, Hugging Face, Cohere
    ),
    "length": (
        *("max_tokens", "model_context_window_exceeded"),
        *("max_output_tokens", "model_length", "incomplete"),
    ),
    "tool_calls": ("tool_use", "tool_call"),
    "content_filter": (
        *("refusal", "guardrail_intervened", "content_filtered"),  # Anthropic, Bedrock
        *("safety", "recitation", "blocklist", "prohibited_content", "spii", "language"),  # Gemini
        *("image_safety", "image_prohibited_content", "image_recitation", "model_armor"),
    ),
}
_OPENAIS_WORD = {
    **{word: word for word in OPENAIS},
    **{w: said for said, many in _WORDS.items() for w in many},
}


def openai_reason(reason: str | None, *, calls: bool) -> str:
    """One of `OPENAIS`. ``calls``: the answer calls tools, which some providers do not give as the reason.

    What no table knows, and no reason at all, is "stop": the answer is whole.
    """
    word = _OPENAIS_WORD.get((reason or "").lower(), "stop")
    return "tool_calls" if calls and word == "stop" else word
