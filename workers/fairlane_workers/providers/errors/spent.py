"""Says whether an error means that the account's money is used up or that it is shut: no wait helps."""

from __future__ import annotations

import re

from fairlane_workers.providers.errors.error_body import ErrorBody

# The budget is spent or locked: retries change nothing. Without "_", and "error" or "exception" at the end.
_KINDS = frozenset(
    {
        *("insufficientquota", "exceededcurrentquota", "servicequotaexceeded", "creditbalanceexhausted"),
        *("billing", "billingdisabled", "billinghardlimitreached", "billingnotactive"),
        # Groq's for its spend limit, and one-api's for a user's and a key's quota
        *("blockedapiaccess", "insufficientuserquota", "preconsumetokenquotafailed"),
    }
)
_ENDINGS = ("spendlimitexceeded", "spendlimitreached", "usagelimitexceeded")
_LAST_WORD = re.compile(r"(?:error|exception)$")

BEHIND_LITELLM = (
    r"(?:litellm\.\w{1,40}: (?:\w{1,40} - )?(?:b?['\"]?\{[^{}]{0,80}(?:\{[^{}]{0,80}?)?\"message\": ?\")?)?"
)
"""What LiteLLM's proxy may put before a message: its own name of the error, and the answer's beginning."""
# Sentences of services whose types say no more than "bad request" or "rate limit": Anthropic's, DeepSeek's,
# Z.ai's, SiliconFlow's, xAI's, Google's, Fireworks' and OpenRouter's. Only how one begins counts, as what
# follows may quote a prompt.
_BEGINNINGS = re.compile(
    BEHIND_LITELLM + r"(?:your credit balance is too low\b"
    r"|you have reached your specified api usage limits\b"
    r"|(?:\[1113\]\[)?insufficient balance\b"
    r"|余额不足"
    r"|sorry, your account balance is insufficient\b"
    r"|your team [\w-]{1,64} has either used all available credits\b"
    r"|your prepayment credits are depleted\b"
    r"|[\w .-]{1,60} doesn't have a free quota tier\b"
    r"|account \S{1,64} is suspended\b"
    r"|key limit exceeded(?: \(total limit\)|[.]?$))",
    re.IGNORECASE,
)

# Anthropic's and Groq's, both with a 400, and OpenAI's.
_SHUT = re.compile(
    BEHIND_LITELLM + r"(?:this organization has been disabled\b"
    r"|organization has been restricted\b"
    r"|your (?:openai )?account (?:has been deactivated|is not active)\b)",
    re.IGNORECASE,
)


def is_spent(error: ErrorBody) -> bool:
    """Whether an error's types, codes or first words name an account without money or credits."""
    if any(_names_it(kind) for kind in error.kinds):
        return True
    return error.message is not None and _BEGINNINGS.match(error.message) is not None


def is_shut(error: ErrorBody) -> bool:
    """Whether an error's first words name an account that the provider has shut."""
    return error.message is not None and _SHUT.match(error.message) is not None


def _names_it(kind: str) -> bool:
    plain = _LAST_WORD.sub("", kind.lower().replace("_", ""))
    return plain in _KINDS or plain.endswith(_ENDINGS)
