"""The meaning of any provider's finish reason, and OpenAI's word for it."""

import re
from collections.abc import Mapping
from enum import StrEnum

OPENAIS = ("stop", "length", "tool_calls", "content_filter", "function_call")
"""The reasons of chat completions: https://platform.openai.com/docs/api-reference/chat/object"""

REFUSAL = "refusal"
"""The finish reason of an output that is the model's own words of refusal."""


class Ending(StrEnum):
    """How an answer ended. The last two are failures, whatever text came before."""

    STOP = "stop"
    LENGTH = "length"
    TOOL_CALLS = "tool_calls"
    FUNCTION_CALL = "function_call"
    CONTENT_FILTER = "content_filter"
    BROKEN_OFF = "broken_off"  # by the server: it shut down, failed, or lost what it works with
    MALFORMED = "malformed"  # by the model: its output could not be read


REASONS: Mapping[Ending, tuple[str, ...]] = {
    Ending.STOP: (
        *("stop", "end_turn", "stop_sequence", "pause_turn"),  # OpenAI, Anthropic, Bedrock
        *("completed", "succeeded"),  # OpenAI's responses, Replicate
        *("eos", "eos_token", "complete", "normal"),  # Together, Hugging Face, Cohere, Baidu
    ),
    Ending.LENGTH: (
        *("length", "max_tokens", "model_context_window_exceeded"),
        *("max_output_tokens", "model_length", "incomplete"),
        *("max_messages", "steered", "continuation", "compaction"),  # OpenAI's responses, Gemini, Anthropic
        *("context_length_exceeded", "context_window_exceeded"),
        *("token_limit", "time_limit", "error_limit"),  # watsonx, Cohere
    ),
    Ending.TOOL_CALLS: ("tool_calls", "tool_use", "tool_call"),
    Ending.FUNCTION_CALL: ("function_call",),
    Ending.CONTENT_FILTER: (
        *("content_filter", "refusal", "guardrail_intervened", "content_filtered"),  # Anthropic, Bedrock
        # Gemini: https://ai.google.dev/api/generate-content#FinishReason
        *("safety", "recitation", "blocklist", "prohibited_content", "spii", "language", "escalation"),
        *("image_safety", "image_prohibited_content", "image_recitation", "model_armor"),
        *("sensitive", "error_toxic"),  # Zhipu and Tencent, Cohere
    ),
    Ending.BROKEN_OFF: (
        "error",  # Mistral, OpenRouter, vLLM, watsonx, Cohere
        *("abort", "aborted"),  # vLLM and SGLang: the engine shuts down
        "network_error",  # Z.ai: https://docs.z.ai/api-reference/llm/chat-completion
        "insufficient_system_resource",  # DeepSeek
        *("cancelled", "canceled", "user_cancel", "timeout"),  # watsonx, Cohere
    ),
    Ending.MALFORMED: (
        *("malformed_function_call", "malformed_response", "unexpected_tool_call"),  # Gemini
        *("too_many_tool_calls", "missing_thought_signature"),
        *("malformed_model_output", "malformed_tool_use"),  # Bedrock
    ),
}
_ENDINGS = {reason: ending for ending, reasons in REASONS.items() for reason in reasons}
_PARTS = re.compile(r"[\s:.]+")
_FAILURES: Mapping[Ending, re.Pattern[str]] = {
    Ending.MALFORMED: re.compile("malformed"),
    # As in: engine_error, ClientDisconnect, interrupted, unload (Ollama), preempted, insufficient_quota
    Ending.BROKEN_OFF: re.compile(
        "(?<!no_)error|exception|crash|fail(?!over)|abort|cancel|interrupt|disconnect|time_?d?_?out"
        "|network|connection|overload|unload|preempt|shut_?down|rate_?limit|quota|unavailable"
    ),
}
"""Parts of reasons that are in no table and name a failure: servers invent new ones."""


def ending_of(reason: str | None) -> Ending | None:
    """The meaning of a finish reason; ``None`` without one, and for an unknown one that names no failure.

    Case does not count, nor "-" for "_". Google's chat completions put a group before the reason
    (``function_call_filter: MALFORMED_FUNCTION_CALL``), and Python's clients the name of their enumeration
    (``FinishReason.SAFETY``).
    """
    plain = (reason or "").strip().lower().replace("-", "_")
    known = (_ENDINGS[part] for part in (plain, *_PARTS.split(plain)) if part in _ENDINGS)
    named = (ending for ending, words in _FAILURES.items() if words.search(plain))
    return next(known, None) or next(named, None)


_FILTERED = re.compile(r"\b(?:filter|guardrail) stopped the answer\b|\bprovider blocked the prompt\b")


def is_filtered(error: str | None) -> bool:
    """Whether a content filter stopped a task's answer or prompt, by the worker's error message."""
    return error is not None and _FILTERED.search(error) is not None


def openai_reason(reason: str | None, *, calls: bool) -> str:
    """One of `OPENAIS`. ``calls``: the answer calls tools, which some providers do not give as the reason.

    No reason, or an unknown one that names no failure, is "stop". An answer that broke off is "length",
    OpenAI's only word for a partial answer.
    """
    ending = ending_of(reason)
    if ending in (Ending.BROKEN_OFF, Ending.MALFORMED):
        return Ending.LENGTH.value
    word = (ending or Ending.STOP).value
    return "tool_calls" if calls and word == "stop" else word
