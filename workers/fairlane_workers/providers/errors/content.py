"""Recognises an error that rejects one request for what it says or for its length; others may pass."""

import re

from fairlane_workers.providers.errors.error_body import ErrorBody

# Of OpenAI and Azure, also for images and for what may serve an attack; of DashScope, in two spellings.
_KINDS = frozenset(
    {
        *("content_filter", "content_policy_violation", "image_content_policy_violation", "cyber_policy"),
        *("bio_policy", "misalignment_policy_violation"),
        *("data_inspection_failed", "datainspectionfailed", "moderation_blocked"),
    }
)
_ENDING = "sensitivecontentdetected"
"""How Volcengine's codes end: ``InputTextSensitiveContentDetected``."""

_OPENING = 300
"""Characters of a message that may say so; what the request contains may follow."""

_PART = r"(?:prompt|input|output|content|message|image|text|response)s?"
_WORDS = re.compile(
    # Anthropic's "Output blocked by content filtering policy", OpenAI's "rejected as a result of our safety
    # system", Azure's "filtered due to the prompt triggering … content management policy"
    rf"\b(?:blocked|rejected|refused|filtered) (?:by|as a result of|due to|because of) [a-z' ]{{0,60}}?"
    r"\b(?:content (?:filter|management|moderation|safety|polic)|safety (?:system|filter|polic|guideline)"
    r"|usage (?:polic|guideline)|moderation)"
    # OpenAI's "your prompt was flagged as …", OpenRouter's "Your input was flagged for …"
    rf"|\b{_PART} (?:was|were|is|has been|have been) flagged\b"
    # xAI's, DeepSeek's, DashScope's and MiniMax'
    r"|\bcontent violates usage guidelines\b|\bsafety_check_type_"
    r"|^content exists risk\b"
    r"|^(?:input|output) (?:\w+ )?data may contain inappropriate content\b"
    r"|\b(?:input|output) new_sensitive\b"
    # Zhipu's
    r"|不安全或敏感内容",
    re.IGNORECASE,
)

_LENGTH_KINDS = frozenset(
    {
        # OpenAI's, llama.cpp's, LiteLLM's, and GitHub's
        *("context_length_exceeded", "exceed_context_size_error", "contextwindowexceedederror"),
        *("context_window_exceeded", "prompt_too_long", "input_too_long"),
        "model_max_prompt_tokens_exceeded",
    }
)

_LENGTH_OPENING = 400
"""Characters of a message that may say so. Gateways quote the server behind them, so a quotation counts."""

_CONTEXT = r"context[ _]?(?:length|window|size|limit)"
_BEYOND = (
    r"(?:exceed(?:s|ed|ing)?|(?:longer|greater|larger|more) than|over(?:flows?)?|beyond|too (?:large|long))"
)
_INPUT = r"(?:prompt|input|sequence|messages?|text|conversation)s?"
_LENGTH_WORDS = re.compile(
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
    r"|\breduce the length of (?:the|your) (?:messages|prompt|input)\b"
    # Google's, Amazon's (Titan) and Anthropic's bounds of a request, and OpenAI's of one message
    r"|\brequest payload size exceeds\b|\bexpected maxLength: [0-9]|\bprompt: length: [0-9]{1,12}\.\."
    r"|^invalid '(?:messages|input)\b[^'\n]{0,60}': string too long\b"
    # As in: the input token count is 40000 but model only supports up to 32768
    r"|\b(?:input|prompt) token count is [0-9]{1,12} but model only supports\b",
    re.IGNORECASE,
)
_OF_RATE = re.compile(
    r"\b(?:per|a|an) (?:second|min|minute|hour|day)\b|\b[rt]p[md]\b|\brate[ _-]?limit|\bquotas?\b|\bwait\b"
    r"|\bthrottl",
    re.IGNORECASE,
)
"""Words of limits over time, as in Amazon's "Too many tokens, please wait before trying again"."""


def rejects_content(error: ErrorBody) -> bool:
    """Whether a service rejects a request for its content, by the error's own names or first words.

    Services send it with statuses that mean something else elsewhere: xAI with a 403, MiniMax with a 500.
    """
    if any(kind in _KINDS or kind.endswith(_ENDING) for kind in error.kinds):
        return True
    return error.message is not None and _WORDS.search(error.message[:_OPENING]) is not None


def is_too_long(error: ErrorBody) -> bool:
    """Whether an error's names or first words say that the prompt is beyond the model's context.

    Servers say so with a 400, a 413, a 422 or a 500, and inside a 200.
    """
    if not _LENGTH_KINDS.isdisjoint(error.kinds):
        return True
    opening = (error.message or "")[:_LENGTH_OPENING]
    return _LENGTH_WORDS.search(opening) is not None and _OF_RATE.search(opening) is None
