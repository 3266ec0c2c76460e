"""What all protocols have in common: a call as it was understood, a problem to tell, and how to speak."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import format_datetime
from types import MappingProxyType
from typing import Any, ClassVar, Literal

from fairlane.testing.provider.limits import Axis, Level
from fairlane.testing.provider.tokens import count_tokens

RetryAfterForm = Literal["milliseconds", "seconds", "fraction", "date"]
NO_PATH: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class OfferedTool:
    """A function that the model may call; ``schema`` is that of its arguments."""

    name: str
    schema: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Call:
    """A request as all protocols mean it. ``prompt`` is all its text, ``question`` the last user message.

    ``schema`` is the JSON schema that the answer is to follow, where one is asked for; ``tools`` are what the
    model may call. ``inputs`` are to be embedded, in ``base64`` if asked for.
    """

    model: str
    prompt: str
    question: str
    max_tokens: int | None
    stream: bool
    include_usage: bool
    schema: Mapping[str, Any] | None = None
    tools: tuple[OfferedTool, ...] = ()
    inputs: tuple[str, ...] = ()
    base64: bool = False

    @property
    def prompt_tokens(self) -> int:
        return count_tokens(self.prompt)


@dataclass(frozen=True, slots=True)
class ToolUse:
    """The call of a tool; ``arguments`` are JSON."""

    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Reply:
    """What is answered; ``truncated`` where ``max_tokens`` ended it.

    Instead of a text ``tool`` is called, or there are ``vectors``, one an input.
    """

    text: str
    completion_tokens: int
    truncated: bool
    tool: ToolUse | None = None
    vectors: tuple[tuple[float, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Stamp:
    """What names one answer: its ordinal within its model, and when it was made (epoch seconds)."""

    ordinal: int
    created: int


@dataclass(frozen=True, slots=True)
class Exceeded:
    """The limit that a request would have exceeded: what ``model`` allows of ``axis``, and what was asked."""

    model: str
    axis: Axis
    limit: int
    used: int
    requested: int


@dataclass(frozen=True, slots=True)
class Problem:
    """A refusal. ``code`` tells apart what one status may mean: an axis, ``quota`` …

    Where ``exceeded`` is stated the protocol has words of its own, and ``message`` is not told.
    ``retry_after_ms`` is stated where the wait is to be told.
    """

    status: int
    message: str
    code: str | None = None
    exceeded: Exceeded | None = None
    retry_after_ms: int | None = None


class RequestError(Exception):
    """The request is not one; carries the `Problem` to answer with."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.problem = Problem(400, message)


@dataclass(frozen=True, slots=True)
class Presented:
    """What a request shows of itself before it is understood; header names are case-insensitive."""

    method: str
    url: str
    headers: Mapping[str, str]
    body: bytes


class Dialect(ABC):
    """One protocol: reads requests and writes answers, errors, streams and hints in its own form."""

    paths: ClassVar[tuple[str, ...]]
    """Where it is POSTed to, as aiohttp's routes: ``/v1beta/models/{model}:generateContent``."""

    stream_type: ClassVar[str] = "text/event-stream; charset=utf-8"
    wrong_key_status: ClassVar[int] = 401
    """What a request without the key is answered."""

    retry_after_forms: tuple[RetryAfterForm, ...] = ("seconds",)

    @abstractmethod
    def parse(self, payload: Any, path: Mapping[str, str] = NO_PATH) -> Call:
        """Understand a request's JSON; ``path`` has what the route's names stand for, and the query's.

        Raises `RequestError`.
        """

    @abstractmethod
    def presented_key(self, headers: Mapping[str, str]) -> str | None:
        """The key a request carries."""

    @abstractmethod
    def error(self, problem: Problem) -> bytes:
        """The body of an error answer."""

    @abstractmethod
    def completion(self, call: Call, reply: Reply, stamp: Stamp) -> bytes:
        """The body of a whole answer."""

    @abstractmethod
    def frames(self, call: Call, reply: Reply, pieces: Sequence[str], stamp: Stamp) -> list[bytes]:
        """A streamed answer: a block of events a piece; the outer two also open and close it."""

    @abstractmethod
    def stream_error(self, problem: Problem) -> bytes:
        """The event that tells of a failure in mid-stream."""

    @abstractmethod
    def limit_headers(self, levels: Mapping[Axis, Level], now_ms: int) -> dict[str, str]:
        """Limit, remaining and reset of each limited axis that the protocol has names for."""

    def accepts(self, presented: Presented, key: str) -> bool:
        """Whether a request shows that it knows ``key``."""
        return self.presented_key(presented.headers) == key

    def status(self, problem: Problem) -> int:
        """The HTTP status of an error answer."""
        return problem.status

    def error_headers(self, problem: Problem) -> dict[str, str]:
        """What an error answer tells in headers."""
        return {}


def read_messages(payload: Any) -> tuple[str, str, list[tuple[str, str]]]:
    """Model, last user text, and ``(role, text)`` of every message. Raises `RequestError`."""
    if not isinstance(payload, dict):
        raise RequestError("the body must be a JSON object")
    model, messages = payload.get("model"), payload.get("messages")
    if not isinstance(model, str) or not model:
        raise RequestError("model: a model name is required")
    if not isinstance(messages, list) or not messages:
        raise RequestError("messages: at least one message is required")
    spoken = [_message(index, message) for index, message in enumerate(messages)]
    question = next((text for role, text in reversed(spoken) if role == "user"), "")
    return model, question, spoken


def read_text(content: Any, field: str) -> str:
    """The text of a content that is a string or a list of parts. Raises `RequestError`."""
    if isinstance(content, str):
        return content
    if isinstance(content, list) and all(isinstance(part, dict) for part in content):
        return "".join(str(part.get("text", "")) for part in content)
    raise RequestError(f"{field}: a string or a list of content parts is required")


def read_positive(payload: dict[str, Any], field: str) -> int | None:
    """A whole number of at least 1, or ``None`` where it is left out. Raises `RequestError`."""
    value = payload.get(field)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise RequestError(f"{field}: a whole number of at least 1 is required")
    return value


def read_flag(payload: dict[str, Any], field: str) -> bool:
    """A boolean that is false where it is left out. Raises `RequestError`."""
    value = payload.get(field)
    if value is None or isinstance(value, bool):
        return bool(value)
    raise RequestError(f"{field}: true or false is required")


def read_schema(payload: dict[str, Any]) -> dict[str, Any] | None:
    """The schema of a ``response_format``, as OpenAI's structured outputs have it. Raises `RequestError`."""
    wanted = payload.get("response_format")
    if wanted is None:
        return None
    if not isinstance(wanted, dict) or not isinstance(wanted.get("type"), str):
        raise RequestError("response_format: an object with a type is required")
    if wanted["type"] != "json_schema":
        return None
    form = wanted.get("json_schema")
    if not isinstance(form, dict) or not form.get("name") or not isinstance(form.get("schema"), dict):
        raise RequestError("response_format.json_schema: an object with name and schema is required")
    schema: dict[str, Any] = form["schema"]
    return schema


def read_tools(payload: dict[str, Any]) -> tuple[OfferedTool, ...]:
    """The ``tools`` of a request in OpenAI's form. Raises `RequestError`."""
    tools = payload.get("tools")
    if tools is None:
        return ()
    if not isinstance(tools, list):
        raise RequestError("tools: an array is required")
    return tuple(_tool(index, tool) for index, tool in enumerate(tools))


def write_json(value: Any) -> bytes:
    """Compact JSON."""
    return json.dumps(value, separators=(",", ":")).encode()


def retry_after_headers(forms: Sequence[RetryAfterForm], wait_ms: int, now_ms: int) -> dict[str, str]:
    """``wait_ms`` as headers. Coarser forms round up, so that obeying any of them is enough."""
    headers: dict[str, str] = {}
    for form in forms:
        match form:
            case "milliseconds":
                headers["retry-after-ms"] = str(wait_ms)
            case "seconds":
                headers["retry-after"] = str(-(-wait_ms // 1000))
            case "fraction":
                headers["retry-after"] = f"{wait_ms / 1000:.3f}"
            case "date":
                at = datetime.fromtimestamp(-(-(now_ms + wait_ms) // 1000), tz=UTC)
                headers["retry-after"] = format_datetime(at, usegmt=True)
    return headers


def _message(index: int, message: Any) -> tuple[str, str]:
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise RequestError(f"messages[{index}]: an object with role and content is required")
    return message["role"], read_text(message.get("content"), f"messages[{index}].content")


def _tool(index: int, tool: Any) -> OfferedTool:
    match tool:
        case {"type": "function", "function": {"name": str(name), **function}} if name:
            schema = function.get("parameters")
            return OfferedTool(name, schema if isinstance(schema, dict) else {"type": "object"})
    raise RequestError(f"tools[{index}]: a function with a name is required")
