"""Recognises an error that rejects one request for what it says; other requests may pass."""

from __future__ import annotations

import re

from fairlane_workers.providers.errors.error_body import ErrorBody

# Of OpenAI and Azure, also for images and for what may serve an attack; of DashScope, in two spellings.
_KINDS = frozenset(
    {
        *("content_filter", "content_policy_violation", "image_content_policy_violation", "cyber_policy"),
        "bio_policy",
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


def rejects_content(error: ErrorBody) -> bool:
    """Whether a service rejects a request for its content, by the error's own names or first words.

    Services send it with statuses that mean something else elsewhere: xAI with a 403, MiniMax with a 500.
    """
    if any(kind in _KINDS or kind.endswith(_ENDING) for kind in error.kinds):
        return True
    return error.message is not None and _WORDS.search(error.message[:_OPENING]) is not None
