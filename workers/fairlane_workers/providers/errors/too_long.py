"""Recognises an error that says that one request is longer than its model takes: a shorter one may pass."""

from __future__ import annotations

import re

from fairlane_workers.providers.errors.error_body import ErrorBody

_KINDS = frozenset(
    {
        # OpenAI's, llama.cpp's, LiteLLM's, and GitHub's
        *("context_length_exceeded", "exceed_context_size_error", "contextwindowexceedederror"),
        *("context_window_exceeded", "prompt_too_long", "input_too_long"),
        "model_max_prompt_tokens_exceeded",
    }
)

_OPENING = 400
"""Characters of a message that may say so. Gateways quote the server behind them, so a quotation counts."""

_CONTEXT = r"context[ _]?(?:length|window|size|limit)"
_BEYOND = (
    r"(?:exceed(?:s|ed|ing)?|(?:longer|greater|larger|more) than|over(?:flows?)?|beyond|too (?:large|long))"
)
_INPUT = r"(?:prompt|input|sequence|messages?|text|conversation)s?"
_WORDS = re.compile(
    # As in: context size has been exceeded, ContextWindowExceededError, context window exceeds limit
    rf"\b{_CONTEXT}(?: has been| is| was)? ?(?:exceeded|exceeds|overflow)"
    # As in: exceeds the available context size, too large for model with 32768 maximum context length
    rf"|\b{_BEYOND}\b[^.\n]{{0,60}}?\b{_CONTEXT}\b"
    # As in: This model's maximum context length is 4096 tokens, xAI's maximum prompt length is 131072
    rf"|\bmaximum (?:{_CONTEXT}|{_INPUT} (?:length|size|tokens)) (?:is|of) [0-9]"
    # As in: prompt is too long: 208310 tokens > 200000 maximum, Input is too large to process
    rf"|\b{_INPUT}(?: length)?(?: is| are)? too (?:long|large)\b"
    r"|\btoo many (?:input |prompt )?tokens\b"
    # As in: Prompt length (9000) exceeds maximum input length, longer than the maximum model length
    rf"|\b{_INPUT}\b[^.\n]{{0,60}}?\b{_BEYOND}\b[^.\n]{{0,20}}?\b(?:max(?:imum)?|limit of)\b"
    # LM Studio's, text-generation-inference's, DashScope's, Moonshot's and OpenAI's advice
    r"|\btrying to keep the first [0-9]{1,12} tokens\b|\bkeep from the initial prompt is greater\b"
    r"|`?\binputs`? (?:tokens )?(?:\+ `?max_new_tokens`? )?must (?:be <=|have less than)"
    r"|\brange of input length should be\b|\bexceeded model token limit\b"
    r"|\breduce the length of (?:the|your) (?:messages|prompt|input)\b",
    re.IGNORECASE,
)
_OF_RATE = re.compile(
    r"\b(?:per|a|an) (?:second|min|minute|hour|day)\b|\b[rt]p[md]\b|\brate[ _-]?limit|\bquotas?\b|\bwait\b"
    r"|\bthrottl",
    re.IGNORECASE,
)
"""Words of limits over time, as in Amazon's "Too many tokens, please wait before trying again"."""


def is_too_long(error: ErrorBody) -> bool:
    """Whether an error's names or first words say that the prompt is beyond the model's context.

    Servers say so with a 400, a 413, a 422 or a 500, and inside a 200.
    """
    if not _KINDS.isdisjoint(error.kinds):
        return True
    opening = (error.message or "")[:_OPENING]
    return _WORDS.search(opening) is not None and _OF_RATE.search(opening) is None
