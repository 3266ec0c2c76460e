"""Says whether an error means that the account's money is used up or that it is shut: no wait helps."""

import re

from fairlane_workers.providers.errors.error_body import ErrorBody

# The budget is spent or locked: retries change nothing. Without "_", and "error" or "exception" at the end.
_KINDS = frozenset(
    {
        *("insufficientquota", "exceededcurrentquota", "servicequotaexceeded", "creditbalanceexhausted"),
        *("billing", "billingdisabled", "billinghardlimitreached", "billingnotactive"),
        # Groq's for its spend limit, and one-api's for a user's and a key's quota
        *("blockedapiaccess", "insufficientuserquota", "preconsumetokenquotafailed"),
        "allocationquota.freetieronly",  # DashScope's
    }
)
_ENDINGS = ("spendlimitexceeded", "spendlimitreached", "usagelimitexceeded")
LAST_WORD = re.compile(r"(?:error|exception)$")

BEHIND_LITELLM = (
    r"(?:litellm\.\w{1,40}: (?:\w{1,40} - )?(?:b?['\"]?\{[^{}]{0,80}(?:\{[^{}]{0,80}?)?\"message\": ?\")?)?"
)
"""What LiteLLM's proxy may put before a message: its own name of the error, and the answer's beginning."""
YOU_HAVE = r"you(?: \(\S{1,64}\))?(?:['’]ve| have) "
_IS_USED_UP = r"(?:is|are|was|has been|have been) (?:exhausted|used up|exceeded|depleted|reached)\b"
# Sentences of services whose types say no more than "bad request" or "rate limit", by their grammar: who has
# reached which limit, or has no credits left. Anthropic's, DeepSeek's, Z.ai's, SiliconFlow's, xAI's,
# Google's, Fireworks', DashScope's and OpenRouter's. Only how one begins counts, as what follows may quote a
# prompt.
_BEGINNINGS = re.compile(
    BEHIND_LITELLM + r"(?:your credit balance is too low\b"
    # As in: You have reached your specified workspace API usage limits, You've exceeded your spending limit
    rf"|{YOU_HAVE}(?:reached|exceeded|hit) your (?:specified [\w -]{{0,40}}?\busage|[\w -]{{0,40}}?"
    r"\b(?:spend(?:ing)?|credits?|billing)) (?:limits?|cap)\b"
    # As in: You have run out of credits
    rf"|{YOU_HAVE}(?:run out of|used (?:up )?all (?:of )?your|no (?:more )?(?:remaining )?)"
    r"(?: ?[\w-]{1,20}){0,2} ?\bcredits?\b"
    # As in: The free tier of the model has been exhausted
    rf"|(?:the |your )?free (?:tier|trial|quota)(?: [\w-]{{1,30}}){{0,4}}? {_IS_USED_UP}"
    rf"|(?:[\w-]{{1,30}} ){{0,3}}?credits? (?:balance )?{_IS_USED_UP}"
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
    if any(_names_exhaustion(kind) for kind in error.kinds):
        return True
    return error.message is not None and _BEGINNINGS.match(error.message) is not None


LEAST_ANSWER = 16
"""Tokens that money has to pay for at least: less is no answer, so the account has none left."""

_CAN_AFFORD = re.compile(
    r"this request requires more credits, or fewer max_tokens\b"
    r"[^\n]{0,120}?\bcan only afford ([0-9]{1,12})\b",
    re.IGNORECASE,
)


def affordable_tokens(error: ErrorBody) -> int:
    """Tokens that an account still pays for, where it says that one request asks for more: OpenRouter's 402.

    0 if it does not say so.
    """
    found = _CAN_AFFORD.match(error.message or "")
    return int(found[1]) if found else 0


def is_shut(error: ErrorBody) -> bool:
    """Whether an error's first words name an account that the provider has shut."""
    return error.message is not None and _SHUT.match(error.message) is not None


def _names_exhaustion(kind: str) -> bool:
    plain = LAST_WORD.sub("", kind.lower().replace("_", ""))
    return plain in _KINDS or plain.endswith(_ENDINGS)
