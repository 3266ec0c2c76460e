"""Tokens of calls: as providers count them, as estimated, as queue entries reserve them, and their price. The
usage in a response trues an estimate up.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field, fields
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from pydantic import Field

from fairlane.core.section import MOST_COUNT, Section

CHARS_PER_TOKEN = 4
"""About four characters of English text make a token: the rule of thumb of OpenAI's documentation ("What are
tokens and how to count them?"). Other scripts and code have more tokens; usage corrects the estimate."""

TOKENS_PER_MESSAGE = 3
"""Tokens of a message's role and separators, and once more for the start of the answer (OpenAI's cookbook,
"How to count tokens with tiktoken")."""

MARKS_PER_MESSAGE = 16
"""More than the tokens that mark a message's begin, role and end in any published chat format."""

PROMPT_PARAMS = (
    *("tools", "functions", "response_format", "tool_choice", "system", "instructions", "text"),
    *("systemInstruction", "toolConfig"),
)
"""Parameters whose content providers put into the prompt."""

LIMITS = (
    *("max_completion_tokens", "max_tokens", "max_output_tokens"),
    *("maxOutputTokens", "maxTokens", "num_predict", "max_new_tokens"),
)
"""Parameters that bound an answer's length, in the words of every protocol."""

SAMPLES = ("n", "candidateCount")
"""Parameters that ask for so many answers at once."""

SECTIONS = ("generationConfig", "inferenceConfig", "additionalModelRequestFields", "options", "input")
"""Parameters that hold other parameters, at Google, Bedrock, Ollama and Replicate."""

TOOL_MARKS = 1024
"""More than the instructions that providers add where there are tools (Anthropic's: up to 530 tokens)."""

PAYLOAD = re.compile(r"data:[^,]{,200};base64,.*|[A-Za-z0-9+/_-]{1024,}+={,2}", re.DOTALL)
"""An image, a recording or a file in a part of a message: providers count what it shows, not its letters."""

PAYLOAD_TOKENS, MOST_PAYLOAD_TOKENS = 1024, 5000
"""About what an image has, and more than most have: 258 to 2,240 at Google, up to 1,445 with GPT-4o, up to
4,784 with Claude. A longer one, like a file of many pages, teaches the bounds of the calls after it."""

DEFAULT_OUTPUT_TOKENS = 1024
"""Tokens reserved for the first answers if the parameters set no limit: longer than most answers."""

MOST_OUTPUT_TOKENS = 1_000_000
"""Cap of the reservation, above any model's longest answer: a larger limit would block a lane for days."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one call, as the provider counted them; ``None`` for a count that it did not report.

    ``input_tokens`` is the whole prompt in every protocol. The provider read ``cached_tokens`` of them from
    its cache, and wrote ``written_tokens`` of the others to it.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None
    written_tokens: int | None = None

    def __add__(self, other: Usage) -> Usage:
        """The sum of both; a count that one of them lacks is the other's."""
        pairs = zip(astuple(self), astuple(other), strict=True)
        return Usage(*((b if a is None else a + (b or 0)) for a, b in pairs))

    @property
    def total(self) -> int | None:
        """Input and output together; ``None`` if the provider reported neither."""
        if self.input_tokens is None and self.output_tokens is None:
            return None
        return (self.input_tokens or 0) + (self.output_tokens or 0)


class UsageDraft:
    """A `Usage` under construction, like `RecordDraft`."""

    __slots__ = tuple(each.name for each in fields(Usage))


@dataclass(frozen=True, slots=True)
class Unkept:
    """Answers of one job that the provider charged for but that were not kept, with their tokens together.
    Examples are an answer without the requested form, and a refusal.
    """

    answers: int = 0
    usage: Usage = field(default_factory=Usage)

    def __add__(self, other: Unkept) -> Unkept:
        """The sum of both."""
        return Unkept(self.answers + other.answers, self.usage + other.usage)

    @classmethod
    def of(cls, usage: Usage) -> Unkept:
        """One answer with these tokens; none where its provider has counted none."""
        return NO_UNKEPT if usage.total is None else cls(1, usage)

    def to_list(self) -> list[int | None] | None:
        """Its stored form: ``[answers, input, output, cached, written]``; ``None`` where there are none."""
        return [self.answers, *astuple(self.usage)] if self.answers else None

    @classmethod
    def from_list(cls, stored: Sequence[int | None] | None) -> Unkept:
        """The inverse of `to_list`; missing counts are ``None``, and later ones are ignored."""
        if not stored or not stored[0]:
            return NO_UNKEPT
        answers, *counts = [*stored, None, None, None, None][:5]
        return cls(answers or 0, Usage(*counts))


NO_UNKEPT = Unkept()


class Estimate(NamedTuple):
    """Tokens of one call, before or after it: the whole prompt, and the whole answer.

    ``most_input``: tokens that the prompt cannot exceed; 0 means ``input``. ``guessed``: nothing limits the
    answer's length, and ``output`` is a guess.
    """

    input: int
    output: int
    most_input: int = 0
    guessed: bool = False

    @property
    def total(self) -> int:
        """Input and output together."""
        return self.input + self.output

    @property
    def most(self) -> int:
        """The tokens that a budget reserves: the prompt's bound, and the answer."""
        return max(self.input, self.most_input) + self.output


def estimate_tokens(text: str) -> int:
    """Tokens of ``text``, ``ceil(characters / 4)``; 0 for an empty one."""
    return -(-len(text) // CHARS_PER_TOKEN)


def estimate_call(messages: Sequence[Mapping[str, Any]], params: Mapping[str, Any]) -> Estimate:
    """Tokens to reserve for one call: at least what the rule of thumb gives.

    The output is the largest limit that ``params`` or a section of them sets (`LIMITS`), times the answers,
    or `DEFAULT_OUTPUT_TOKENS`. A limit that is no positive integer is ignored: it limits nothing.
    """
    spoken = [_text_and_payloads(message.get("content")) for message in messages]
    prompt = sum(
        estimate_tokens(text) + payloads * PAYLOAD_TOKENS + TOKENS_PER_MESSAGE for text, payloads in spoken
    )
    limit = _largest(params, LIMITS)
    asked = (limit or DEFAULT_OUTPUT_TOKENS) * max(1, _largest(params, SAMPLES))
    return Estimate(
        prompt + TOKENS_PER_MESSAGE,
        min(asked, MOST_OUTPUT_TOKENS),
        most_input=_most_input(messages, params),
        guessed=not limit,
    )


def estimate_inputs(inputs: Sequence[str]) -> Estimate:
    """Tokens to reserve for embedding texts: providers count no output."""
    most = sum(_bytes(text) + MARKS_PER_MESSAGE for text in inputs)
    return Estimate(sum(estimate_tokens(text) for text in inputs), 0, most_input=most)


def _most_input(messages: Sequence[Mapping[str, Any]], params: Mapping[str, Any]) -> int:
    """Tokens that the prompt cannot exceed: each takes at least one byte, except those that mark messages."""
    values = [_text_and_payloads(value) for message in messages for value in message.values()]
    spoken = sum(_bytes(text) + payloads * MOST_PAYLOAD_TOKENS for text, payloads in values)
    described = sum(
        _bytes(json.dumps(params[name], default=str)) for name in PROMPT_PARAMS if params.get(name)
    )
    return spoken + described + MARKS_PER_MESSAGE * (len(messages) + 1) + (TOOL_MARKS if described else 0)


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))


def _text_and_payloads(value: object) -> tuple[str, int]:
    """The text of a message's value, and the number of its payloads; a list of parts counts as its JSON."""
    if isinstance(value, str):
        return value, 0
    payloads: list[str] = []
    return json.dumps(_without_payloads(value, payloads), ensure_ascii=False), len(payloads)


def _without_payloads(value: object, payloads: list[str]) -> object:
    """``value`` without its `PAYLOAD` texts, which are added to ``payloads``. A part's ``text`` is none."""
    match value:
        case str() if PAYLOAD.fullmatch(value):
            payloads.append(value)
            return ""
        case list():
            return [_without_payloads(each, payloads) for each in value]
        case dict():
            return {
                name: each if name == "text" and isinstance(each, str) else _without_payloads(each, payloads)
                for name, each in value.items()
            }
    return value


def _largest(params: Mapping[str, Any], names: Sequence[str]) -> int:
    """The largest of the parameters ``names``, also of those in sections; 0 if none is positive."""
    sections = (params.get(section) for section in SECTIONS)
    places = [params, *(section for section in sections if isinstance(section, Mapping))]
    return max(_positive(place.get(name)) for place in places for name in names)


def _positive(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


class Entry(NamedTuple):
    """A job in a queue. In Redis it is ``"job:input:output:kind:most_input:guessed"``, or only the first four
    if the others are 0.

    ``kind`` groups the calls of a run whose answers have similar lengths. A task's kind is the index of its
    model; those of the evaluations follow.
    """

    job: int
    tokens: Estimate
    kind: int = 0

    @classmethod
    def parse(cls, text: str) -> Entry:
        """Parse what `str` returned; parts that a newer version added are ignored."""
        job, tokens_in, tokens_out, kind, most, guessed = [*map(int, text.split(":")), 0, 0][:6]
        return cls(job, Estimate(tokens_in, tokens_out, most, guessed == 1), kind)

    def __str__(self) -> str:
        tokens = self.tokens
        text = f"{self.job}:{tokens.input}:{tokens.output}:{self.kind}"
        return (
            f"{text}:{tokens.most_input}:{tokens.guessed:d}" if tokens.most_input or tokens.guessed else text
        )


class Price(Section):
    """Prices of a model's tokens, in USD per million. There are no tiers by the length of a prompt."""

    input: float = Field(ge=0, le=MOST_COUNT)
    """Input tokens."""

    output: float = Field(ge=0, le=MOST_COUNT)
    """Output tokens."""

    cached_input: float | None = Field(default=None, ge=0, le=MOST_COUNT)
    """Input tokens read from a cache. Default: the price of other input."""

    cache_write: float | None = Field(default=None, ge=0, le=MOST_COUNT)
    """Input tokens written to a cache. Default: the price of other input."""


def price_of(model: str, prices: Mapping[str, Price]) -> Price | None:
    """The price of ``"<connection>:<model>"``: under its own name, else under the longest matching pattern.

    Patterns are those of a shell, like ``"openai:gpt-4o*"``.
    """
    if model in prices:
        return prices[model]
    fitting = [pattern for pattern in prices if fnmatchcase(model, pattern)]
    return prices[max(fitting, key=len)] if fitting else None


def cost_usd(usage: Usage, price: Price) -> float:
    """USD for one call's tokens; an unknown count costs nothing."""
    cached, written = usage.cached_tokens or 0, usage.written_tokens or 0
    fresh = max(0, (usage.input_tokens or 0) - cached - written)
    read = price.input if price.cached_input is None else price.cached_input
    write = price.input if price.cache_write is None else price.cache_write
    prompt = fresh * price.input + cached * read + written * write
    return (prompt + (usage.output_tokens or 0) * price.output) / 1e6
