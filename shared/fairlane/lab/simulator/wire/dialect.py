"""The types that all protocols share: a call, a reply, a problem, and the `Dialect` that writes them."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType
from typing import Any, ClassVar, Literal

from fairlane.lab.simulator.limits.admission import Axis, Level

RetryAfterForm = Literal["milliseconds", "seconds", "fraction", "date"]
NO_PATH: Mapping[str, str] = MappingProxyType({})
CHARS_PER_TOKEN = 4
"""The simulated tokenizer: four characters are a token."""


def count_tokens(text: str) -> int:
    """Tokens in ``text``: a quarter of its characters, rounded up."""
    return -(-len(text) // CHARS_PER_TOKEN)


@dataclass(frozen=True, slots=True)
class OfferedTool:
    """A function that the model may call; ``schema`` is the JSON schema of its arguments."""

    name: str
    schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Call:
    """A request in the form that all protocols share.

    ``prompt`` is all its text, ``question`` the last user message. ``schema`` is the JSON schema that the
    request sets for its answer. The model may call ``tools``. The request asks for ``samples`` answers. An
    embeddings request has ``inputs``, and ``base64`` if it asks for that encoding.
    """

    model: str
    prompt: str
    question: str
    max_tokens: int | None = None
    stream: bool = False
    include_usage: bool = True
    schema: Mapping[str, Any] | None = None
    tools: tuple[OfferedTool, ...] = ()
    inputs: tuple[str, ...] = ()
    base64: bool = False
    samples: int = 1

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the prompt."""
        return count_tokens(self.prompt)


@dataclass(frozen=True, slots=True)
class ToolUse:
    """The model's call of a tool; ``arguments`` are JSON."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Reply:
    """A model's answer: a text, a ``tool`` call, or one vector for each input.

    ``truncated``: ``max_tokens`` ended the text. ``refused``: the model declines. ``others`` are further
    answers, if the request asks for several; ``completion_tokens`` counts them, too.
    """

    text: str
    completion_tokens: int
    truncated: bool
    tool: ToolUse | None = None
    vectors: tuple[tuple[float, ...], ...] = ()
    refused: bool = False
    others: tuple[Reply, ...] = ()


@dataclass(frozen=True, slots=True)
class Stamp:
    """Identifies one answer by its ordinal within its model and its time of creation (epoch seconds)."""

    ordinal: int
    created: int


@dataclass(frozen=True, slots=True)
class Exceeded:
    """The limit that a request would exceed.

    ``limit`` is what ``model`` allows on ``axis``, ``used`` what it has granted, ``requested`` the request's
    own amount.
    """

    model: str
    axis: Axis
    limit: int
    used: int
    requested: int


@dataclass(frozen=True, slots=True)
class Problem:
    """An error answer. ``code`` distinguishes the meanings of one status: an axis, ``quota`` or ``key``.

    With ``exceeded`` the protocol writes its own sentence in place of ``message``. ``retry_after_ms`` is set
    only if the answer reports the wait. ``parameter`` is the one that the request must not have.
    """

    status: int
    message: str
    code: str | None = None
    exceeded: Exceeded | None = None
    retry_after_ms: int | None = None
    parameter: str | None = None


class RequestError(Exception):
    """The request is invalid; carries the `Problem` to answer with."""

    def __init__(self, message: str, status: int = 400, code: str | None = None) -> None:
        super().__init__(message)
        self.problem = Problem(status, message, code)


@dataclass(frozen=True, slots=True)
class Presented:
    """The parts of a request that may carry a credential; header names are case-insensitive."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes


class Dialect(ABC):
    """One protocol: reads requests and writes answers, errors, streams and limits in its own form."""

    paths: ClassVar[tuple[str, ...]]
    """Paths of its POST requests, as aiohttp's routes: ``/v1beta/models/{model}:generateContent``."""

    stream_type: ClassVar[str] = "text/event-stream; charset=utf-8"
    wrong_key_status: ClassVar[int] = 401
    """Status of the answer to a request without the key."""

    retry_after_forms: tuple[RetryAfterForm, ...] = ("seconds",)

    counts_tokens: ClassVar[bool] = False
    """Whether its requests only ask how many tokens a prompt has: `count` answers, without the model."""

    @abstractmethod
    def parse(self, payload: Any, path: Mapping[str, str] = NO_PATH) -> Call:
        """Read a request's JSON; ``path`` has the values of the route's names and of the query.

        Raises `RequestError`.
        """

    @abstractmethod
    def error_document(self, problem: Problem) -> dict[str, Any]:
        """The JSON document of an error answer."""

    def error(self, problem: Problem) -> bytes:
        """The body of an error answer."""
        return write_json(self.error_document(problem))

    @abstractmethod
    def completion(self, call: Call, reply: Reply, stamp: Stamp) -> bytes:
        """The body of a whole answer."""

    @abstractmethod
    def frames(self, call: Call, reply: Reply, pieces: Sequence[str], stamp: Stamp) -> list[bytes]:
        """A streamed answer: one block of events for each piece.

        The first block also opens the stream, and the last one closes it.
        """

    def stream_error(self, problem: Problem) -> bytes:
        """The event that reports a failure in mid-stream."""
        return write_event(self.error_document(problem))

    def count(self, call: Call) -> bytes:
        """The body of the answer of a dialect that counts tokens."""
        raise NotImplementedError

    def parameters(self, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        """The parameters of a request, by OpenAI's names."""
        return payload

    def unsupported(self, name: str, value: Any) -> Problem:
        """The rejection of a parameter that the model does not support, by OpenAI's name."""
        message = f"Unsupported parameter: '{name}' is not supported with this model."
        return Problem(400, message, parameter=name)

    def limit_headers(self, levels: Mapping[Axis, Level], now_ms: int) -> dict[str, str]:
        """Limit, remaining amount and reset of each limited axis that the protocol has names for."""
        return {}

    def presented_key(self, headers: Mapping[str, str]) -> str | None:
        """The key that a request carries; unless overridden, its bearer token."""
        return credential(headers)

    def accepts(self, presented: Presented, key: str) -> bool:
        """Whether a request proves that its sender knows ``key``."""
        return self.presented_key(presented.headers) == key

    def status(self, problem: Problem) -> int:
        """The HTTP status of an error answer."""
        return problem.status

    def error_headers(self, problem: Problem) -> dict[str, str]:
        """The headers that the protocol adds to an error answer."""
        return {}


def credential(headers: Mapping[str, str], *schemes: str) -> str | None:
    """The credential of ``Authorization`` if its scheme is in ``schemes`` (without any: ``bearer``)."""
    scheme, _, key = headers.get("Authorization", "").partition(" ")
    return key.strip() if scheme.lower() in (schemes or ("bearer",)) else None


def write_json(value: Any) -> bytes:
    """Compact JSON."""
    return json.dumps(value, separators=(",", ":")).encode()


def write_event(value: Any, name: str | None = None) -> bytes:
    """One server-sent event, with its ``name`` if the protocol names events."""
    heading = f"event: {name}\n".encode() if name is not None else b""
    return heading + b"data: " + write_json(value) + b"\n\n"


def parts_of(text: str, count: int) -> list[str]:
    """``text`` in ``count`` parts of nearly the same length, but in no more parts than it has characters."""
    count = max(1, min(count, len(text)))
    edges = [len(text) * index // count for index in range(count + 1)]
    return [text[begin:end] for begin, end in pairwise(edges)]


def halves(text: str) -> tuple[str, str]:
    """``text`` in two parts, as models stream the arguments of a tool call."""
    middle = len(text) // 2
    return text[:middle], text[middle:]
