"""Reads which parameter of a request a provider's message names as unsupported by the model.

A status and an error type do not name the parameter, so this is the one place that reads prose. It takes
whole phrases around a name that the request really sent; anything else stays the provider's rejection.
"""

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

SAMPLING = frozenset(
    {
        *("temperature", "top_p", "top_k", "min_p", "seed"),
        *("presence_penalty", "frequency_penalty", "repetition_penalty"),
    }
)
"""Parameters that only tune how an answer is sampled: without one, the model samples as it always does."""

RENAMED: Mapping[str, str] = {"max_tokens": "max_completion_tokens"}
"""A parameter that is never left out, but sent under the newer name that the message says to use."""

_PENALTIES = ("presence_penalty", "frequency_penalty")
"""Both are "Penalty" to Google: "Penalty is not enabled for this model"."""

STREAMING: Mapping[str, re.Pattern[str]] = {
    "stream_options": re.compile(r"stream_?options|include_?usage", re.IGNORECASE),
    "stream": re.compile(r"(?<!up)(?<!down)stream", re.IGNORECASE),
}
"""What is added to a call so that its answer streams, and the words for it in any rejection. Without it the
answer is the same, so a word alone is enough: "Your organization must be verified to stream this model"."""

MOST_VALUE_CHARS = 100

_NAME = r"""[`'"“]?(?P<name>[A-Za-z_]+)[`'"”]?"""
_PHRASES = tuple(
    re.compile(phrase, re.IGNORECASE)
    for phrase in (
        # OpenAI says "Unsupported parameter: 'top_p' is not supported with this model."
        rf"\b(?:unsupported|unrecognized|unknown|unexpected) "
        rf"(?:parameter|value|field|argument|request argument supplied):? {_NAME}",
        # Anthropic says "`temperature` is deprecated for this model."
        rf"{_NAME} (?:is|are) (?:not supported|unsupported|deprecated|not available|not enabled)\b",
        # Bedrock says "This model doesn't support the temperature field.", xAI "support parameter topP"
        rf"\b(?:does not|doesn[’']t|do not|don[’']t) support (?:the )?(?:parameters?:? )?\[?{_NAME}",
        # xAI also says "Argument not supported on this model: presencePenalty"
        rf"\b(?:argument|parameter|field)s? not supported(?: (?:on|by|with|for) this model)?: {_NAME}",
        # Mistral and Anthropic say "top_k: Extra inputs are not permitted"
        rf"{_NAME}: extra inputs are not permitted",
        # Moonshot says "invalid temperature: only 1 is allowed for this model"
        rf"\binvalid {_NAME}: only [\w.]+ is allowed for this model",
    )
)
_FORMS = {
    "response_format": re.compile(
        r"response_?(?:format|schema|json_?schema)|response format|output_?config|output format"
        r"|structured outputs?|json_schema|json mode",
        re.IGNORECASE,
    ),
    "tool_choice": re.compile(r"tool_?choice", re.IGNORECASE),
    "tools": re.compile(r"\btools?\b|tool_?config|function calling", re.IGNORECASE),
}
"""The words for each parameter that holds an answer to a form."""

_LACKING = re.compile(r"not support|n[’']t support|unsupported|unavailable|not available|not enabled", re.I)
_OF_A_SCHEMA = re.compile(r"invalid schema|in context=", re.IGNORECASE)
"""The schema itself is at fault, which says nothing about the schemas of others."""

_ONE_VALUE = re.compile(r"unsupported value|does not support \S+ with this model", re.IGNORECASE)
_NO_OTHER_VALUE = re.compile(r"only the default|only [\w.]+ is (?:allowed|supported)", re.IGNORECASE)
_INNER_CAPITAL = re.compile(r"(?<=[a-z])(?=[A-Z])")


@dataclass(frozen=True, slots=True)
class Unsupported:
    """A parameter that a model does not support: with any value, or with the one in ``value`` (JSON).

    ``instead`` is the name under which the model takes it.
    """

    name: str
    value: str | None = None
    instead: str | None = None

    def concerns(self, params: Mapping[str, Any]) -> bool:
        """Whether a request with ``params`` has it."""
        return self.name in params and self.value in (None, as_json(params[self.name]))


def read_unsupported(
    message: str, params: Mapping[str, Any], optional: Collection[str] = ()
) -> Unsupported | None:
    """The parameter among ``params`` that the message names as unsupported, if a request can do without it.

    Those are `SAMPLING`, `RENAMED` if the message has the newer name, and the ``optional`` ones.
    """
    sent = {_plain(name): name for name in params}
    if penalties := [name for name in _PENALTIES if name in params]:
        sent["penalty"] = penalties[0]
    for phrase in _PHRASES:
        for found in phrase.finditer(message):
            name = sent.get(_plain(found["name"]))
            if name is None:
                continue
            if name in RENAMED:
                newer = RENAMED[name]
                return Unsupported(name, instead=newer) if newer in message and newer not in params else None
            if name in SAMPLING or name in optional:
                value = _only_value(message, params[name])
                return Unsupported(name, value) if len(value or "") <= MOST_VALUE_CHARS else None
    for name, words in _FORMS.items():
        if name in optional and name in params and _lacks(words, message):
            return Unsupported(name)
    return None


def read_unstreamable(message: str, added: Collection[str]) -> Unsupported | None:
    """The first of `STREAMING` among those ``added`` that the message speaks of."""
    for name, words in STREAMING.items():
        if name in added and words.search(message):
            return Unsupported(name)
    return None


def as_json(value: Any) -> str:
    """A parameter's value as canonical JSON."""
    return json.dumps(value, sort_keys=True, default=str)


def _only_value(message: str, value: Any) -> str | None:
    """The value, if the message is about that one and leaves others possible."""
    return as_json(value) if _ONE_VALUE.search(message) and not _NO_OTHER_VALUE.search(message) else None


def _lacks(words: re.Pattern[str], message: str) -> bool:
    return bool(words.search(message) and _LACKING.search(message) and not _OF_A_SCHEMA.search(message))


def _plain(name: str) -> str:
    """A name without its spelling: ``topP``, ``top_p`` and ``TopP`` are one."""
    return _INNER_CAPITAL.sub("_", name).lower()
