"""OpenAI's chat completions, as the simulated provider speaks them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

from fairlane.lab.simulator.limits.admission import Axis, Level
from fairlane.lab.simulator.wire.dialect import (
    NO_PATH,
    Call,
    Dialect,
    Exceeded,
    OfferedTool,
    Problem,
    Reply,
    RequestError,
    RetryAfterForm,
    Stamp,
    ToolUse,
    halves,
    write_event,
    write_json,
)
from fairlane.lab.simulator.wire.headers import openai_limit_headers
from fairlane.lab.simulator.wire.reading import (
    is_number,
    named,
    read_flag,
    read_messages,
    read_positive,
    read_schema,
    read_tools,
)

_DONE = b"data: [DONE]\n\n"
MOST_SAMPLES = 128

_BY_CODE = {
    **dict.fromkeys(("requests", "day", "concurrency"), ("requests", "rate_limit_exceeded")),
    **dict.fromkeys(("tokens", "input", "output"), ("tokens", "rate_limit_exceeded")),
    "quota": ("insufficient_quota", "insufficient_quota"),
}
_AXIS_WORDS: dict[Axis, str] = {
    "requests": "requests per min (RPM)",
    "tokens": "tokens per min (TPM)",
    "input": "input tokens per min (ITPM)",
    "output": "output tokens per min (OTPM)",
    "day": "requests per day (RPD)",
    "concurrency": "concurrent requests",
}
_BY_STATUS = {
    400: ("invalid_request_error", None),
    401: ("invalid_request_error", "invalid_api_key"),
    402: ("insufficient_quota", "credit_balance_exhausted"),
    403: ("invalid_request_error", "model_not_found"),
    404: ("invalid_request_error", "model_not_found"),
    413: ("invalid_request_error", "request_too_large"),
    422: ("invalid_request_error", "unprocessable"),
    429: ("requests", "rate_limit_exceeded"),
    503: ("server_error", "server_is_overloaded"),
    529: ("overloaded_error", "overloaded"),
}


class OpenAIChat(Dialect):
    """Chat completions; streams end with ``data: [DONE]``."""

    paths: ClassVar[tuple[str, ...]] = ("/v1/chat/completions", "/groq/openai/v1/chat/completions")
    retry_after_forms: tuple[RetryAfterForm, ...] = ("milliseconds", "seconds")

    def parse(self, payload: Any, path: Mapping[str, str] = NO_PATH) -> Call:
        """``max_completion_tokens`` takes precedence over ``max_tokens``."""
        model, question, conversation = read_messages(payload)
        options = payload.get("stream_options") or {}
        if not isinstance(options, dict):
            raise RequestError("stream_options: an object is required")
        check_sampling(payload)
        return Call(
            model=model,
            prompt="\n".join(text for _, text in conversation),
            question=question,
            max_tokens=read_positive(payload, "max_completion_tokens")
            or read_positive(payload, "max_tokens"),
            stream=read_flag(payload, "stream"),
            include_usage=read_flag(options, "include_usage"),
            schema=read_schema(payload),
            tools=chosen(read_tools(payload), payload.get("tool_choice")),
            samples=read_samples(payload),
        )

    def unsupported(self, name: str, value: Any) -> Problem:
        """See `Dialect.unsupported`; a temperature may still have its default, a bound its newer name."""
        message = super().unsupported(name, value).message
        if name == "max_tokens":
            message += " Use 'max_completion_tokens' instead."
        elif name == "response_format":
            message = (
                "Invalid parameter: 'response_format' of type 'json_schema' is not supported with this model."
            )
        elif name in ("temperature", "top_p"):
            message = (
                f"Unsupported value: '{name}' does not support {value} with this model. "
                "Only the default (1) value is supported."
            )
        return Problem(400, message, parameter=name)

    def error_document(self, problem: Problem) -> dict[str, Any]:
        """See `Dialect.error_document`."""
        return {"error": error_of(problem)}

    def completion(self, call: Call, reply: Reply, stamp: Stamp) -> bytes:
        """See `Dialect.completion`."""
        choices = [self._choice(0, call, reply, stamp)]
        for index, other in enumerate(reply.others, start=1):
            choices.append(self._choice(index, call, other, stamp))
        answer = {**_heading("chat.completion", call, stamp), **self.completion_fields()}
        return write_json({**answer, "choices": choices, "usage": usage_of(call, reply)})

    def _choice(self, index: int, call: Call, reply: Reply, stamp: Stamp) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": reply.text, "refusal": None}
        if reply.tool is not None:
            message |= {"content": None, "tool_calls": [_tool_call(reply.tool, stamp)]}
        elif reply.refused and _declines(call, reply):
            message |= {"content": None, "refusal": reply.text}
        ending = {"logprobs": None, "finish_reason": _finish(reply), **self.choice_fields()}
        return {"index": index, "message": message, **ending}

    def frames(self, call: Call, reply: Reply, pieces: Sequence[str], stamp: Stamp) -> list[bytes]:
        """A chunk per piece, the usage if the request asks for it, and ``[DONE]``."""
        answer = _heading("chat.completion.chunk", call, stamp)
        unknown_usage = {"usage": None} if call.include_usage else {}

        def chunk(delta: dict[str, Any], finish: str | None = None, index: int = 0, **last: Any) -> bytes:
            ending = {"logprobs": None, "finish_reason": finish, **self.choice_fields()}
            choice = {"index": index, "delta": delta, **ending}
            return write_event({**answer, "choices": [choice], **unknown_usage, **last})

        if reply.tool is None:
            field = "refusal" if _declines(call, reply) else "content"
            frames = [chunk({field: piece}) for piece in pieces]
            frames[0] = chunk({"role": "assistant", "content": ""}) + frames[0]
        else:
            deltas = _tool_deltas(reply.tool, stamp)
            opened = chunk({"role": "assistant", "content": None, **next(deltas)})
            frames = [b"" for _ in pieces]
            frames[0] = opened + b"".join(map(chunk, deltas))
        for index, other in enumerate(reply.others, start=1):
            frames[-1] += chunk({"role": "assistant", "content": other.text}, index=index)
            frames[-1] += chunk({}, _finish(other), index)
        frames[-1] += chunk({}, _finish(reply), **self.last_fields(call, reply))
        if call.include_usage:
            frames[-1] += write_event({**answer, "choices": [], "usage": usage_of(call, reply)})
        frames[-1] += _DONE
        return frames

    def completion_fields(self) -> dict[str, Any]:
        """The fields that a vendor adds to a whole answer."""
        return {}

    def choice_fields(self) -> dict[str, Any]:
        """The fields that a vendor adds to each choice."""
        return {}

    def last_fields(self, call: Call, reply: Reply) -> dict[str, Any]:
        """The fields that a vendor adds to the last chunk with a choice."""
        return {}

    def limit_headers(self, levels: Mapping[Axis, Level], now_ms: int) -> dict[str, str]:
        """``x-ratelimit-*`` for requests and tokens."""
        return openai_limit_headers(levels)


def _heading(kind: str, call: Call, stamp: Stamp) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{stamp.ordinal}",
        "object": kind,
        "created": stamp.created,
        "model": call.model,
        "system_fingerprint": "fp_simulated",
    }


def read_samples(payload: dict[str, Any]) -> int:
    """How many answers the request asks for. Raises `RequestError`."""
    samples = read_positive(payload, "n") or 1
    if samples > MOST_SAMPLES:
        raise RequestError(f"n: a whole number of at most {MOST_SAMPLES} is required")
    return samples


def check_sampling(payload: dict[str, Any]) -> None:
    """Check that the sampling parameters are numbers in their range. Raises `RequestError`."""
    for field, most in (("temperature", 2), ("top_p", 1)):
        value = payload.get(field)
        if value is not None and not is_number(value, 0, most):
            raise RequestError(f"{field}: a number from 0 to {most} is required")


def chosen(tools: tuple[OfferedTool, ...], choice: Any) -> tuple[OfferedTool, ...]:
    """The tools that ``tool_choice`` lets the model call. Raises `RequestError`."""
    match choice:
        case None | "auto":
            return tools
        case "none":
            return ()
        case "required" if tools:
            return tools
        case {"type": "function", "function": {"name": str(name)}}:
            if wanted := named(tools, name):
                return wanted
    raise RequestError("tool_choice: none, auto, required or one of the functions in tools is required")


def usage_of(call: Call, reply: Reply) -> dict[str, int]:
    """The usage of an answer, in tokens."""
    return {
        "prompt_tokens": call.prompt_tokens,
        "completion_tokens": reply.completion_tokens,
        "total_tokens": call.prompt_tokens + reply.completion_tokens,
    }


def _declines(call: Call, reply: Reply) -> bool:
    """Whether the refusal has a field of its own: structured outputs have one, plain chats do not."""
    return reply.refused and call.schema is not None


def _finish(reply: Reply) -> str:
    if reply.tool is not None:
        return "tool_calls"
    return "length" if reply.truncated else "stop"


def _tool_call(tool: ToolUse, stamp: Stamp) -> dict[str, Any]:
    function = {"name": tool.name, "arguments": tool.arguments}
    return {"id": f"call_{stamp.ordinal}", "type": "function", "function": function}


def _tool_deltas(tool: ToolUse, stamp: Stamp) -> Iterator[dict[str, Any]]:
    """A call in pieces: its name, then its arguments in two parts."""
    yield {"tool_calls": [{"index": 0, **_tool_call(ToolUse(tool.name, ""), stamp)}]}
    for part in halves(tool.arguments):
        yield {"tool_calls": [{"index": 0, "function": {"arguments": part}}]}


def error_of(problem: Problem) -> dict[str, Any]:
    """A problem in OpenAI's form."""
    kind, code = _BY_CODE.get(problem.code or "") or _BY_STATUS.get(problem.status, ("server_error", None))
    message = problem.message if problem.exceeded is None else _exceeded(problem.exceeded)
    if problem.parameter is not None:
        code = "unsupported_value" if message.startswith("Unsupported value") else "unsupported_parameter"
    return {"message": message, "type": kind, "param": problem.parameter, "code": code}


def _exceeded(exceeded: Exceeded) -> str:
    return (
        f"Rate limit reached for {exceeded.model} on {_AXIS_WORDS[exceeded.axis]}: "
        f"Limit {exceeded.limit}, Used {exceeded.used}, Requested {exceeded.requested}."
    )
