"""Ollama's own chat API, as the simulated provider speaks it."""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, ClassVar

from fairlane.lab.simulator.wire.dialect import (
    NO_PATH,
    Call,
    Dialect,
    Problem,
    Reply,
    RequestError,
    Stamp,
    write_json,
)
from fairlane.lab.simulator.wire.reading import read_flag, read_messages, read_tools

_MEMBERS = frozenset(
    {
        *("format", "keep_alive", "logprobs", "messages", "model", "options", "shift", "stream", "template"),
        *("think", "tools", "top_logprobs", "truncate"),
    }
)
_UNKNOWN = re.compile(r"^The model `(.*)` does not exist\.$")
_ROLES = ("system", "user", "assistant", "tool")
_WHOLE_NUMBERS = ("num_predict", "num_ctx", "num_keep", "top_k", "seed", "repeat_last_n")
_NUMBERS = ("temperature", "top_p", "min_p", "presence_penalty", "frequency_penalty", "repeat_penalty")


class Ollama(Dialect):
    """Chat; streams are lines of JSON, and the last one is ``done``.

    It rejects unknown names, which Ollama itself ignores.
    """

    paths: ClassVar[tuple[str, ...]] = ("/api/chat",)
    stream_type: ClassVar[str] = "application/x-ndjson"

    def parse(self, payload: Any, path: Mapping[str, str] = NO_PATH) -> Call:
        """A request streams unless it says otherwise; ``num_predict`` limits the answer."""
        model, question, conversation = read_messages(payload)
        if strange := sorted(payload.keys() - _MEMBERS):
            raise RequestError(f"unknown field: {strange[0]}")
        if any(role not in _ROLES for role, _ in conversation):
            raise RequestError(f"invalid role; it must be one of {', '.join(_ROLES)}")
        allowed = _options(payload.get("options")).get("num_predict", -1)
        return Call(
            model=model,
            prompt="\n".join(text for _, text in conversation),
            question=question,
            max_tokens=allowed if allowed > 0 else None,
            stream=payload.get("stream") is None or read_flag(payload, "stream"),
            schema=_schema(payload.get("format")),
            tools=read_tools(payload),
        )

    def parameters(self, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        """See `Dialect.parameters`: they are in ``options``."""
        return {**(payload.get("options") or {}), "response_format": payload.get("format")}

    def error_document(self, problem: Problem) -> dict[str, Any]:
        """An object with one sentence; Ollama names an unknown model in its own words."""
        found = _UNKNOWN.match(problem.message)
        message = f"model '{found[1]}' not found" if found else problem.message
        return {"error": message}

    def completion(self, call: Call, reply: Reply, stamp: Stamp) -> bytes:
        """See `Dialect.completion`."""
        return write_json({**_line(call, stamp, _message(reply, reply.text)), **_ending(call, reply)})

    def frames(self, call: Call, reply: Reply, pieces: Sequence[str], stamp: Stamp) -> list[bytes]:
        """One line of JSON per piece, and one with ``done`` at the end."""
        lines = [{**_line(call, stamp, _message(reply, piece)), "done": False} for piece in pieces]
        last = {**_line(call, stamp, {"role": "assistant", "content": ""}), **_ending(call, reply)}
        frames = [write_json(line) + b"\n" for line in lines]
        frames[-1] += write_json(last) + b"\n"
        return frames

    def stream_error(self, problem: Problem) -> bytes:
        """See `Dialect.stream_error`."""
        return self.error(problem) + b"\n"


def _options(options: Any) -> dict[str, Any]:
    if options is None:
        return {}
    if not isinstance(options, dict):
        raise RequestError("json: cannot unmarshal options into Go struct field ChatRequest.options")
    for name, value in options.items():
        whole, real = type(value) is int, type(value) in (int, float)
        if (name in _WHOLE_NUMBERS and not whole) or (name in _NUMBERS and not real):
            raise RequestError(f'option "{name}" must be a number')
        if name == "stop" and not (isinstance(value, list) and all(isinstance(word, str) for word in value)):
            raise RequestError('option "stop" must be of type array')
    return options


def _schema(wanted: Any) -> Mapping[str, Any] | None:
    if wanted in (None, "", "json"):
        return None
    if not isinstance(wanted, dict):
        raise RequestError('invalid format: expected "json" or a JSON schema')
    return wanted


def _message(reply: Reply, text: str) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if reply.tool is not None:
        function = {"name": reply.tool.name, "arguments": json.loads(reply.tool.arguments)}
        message["tool_calls"] = [{"function": function}]
    return message


def _line(call: Call, stamp: Stamp, message: Mapping[str, Any]) -> dict[str, Any]:
    created = datetime.fromtimestamp(stamp.created, tz=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    return {"model": call.model, "created_at": created, "message": message}


def _ending(call: Call, reply: Reply) -> dict[str, Any]:
    return {
        "done": True,
        "done_reason": "length" if reply.truncated else "stop",
        "total_duration": 1_000_000,
        "load_duration": 1_000,
        "prompt_eval_count": call.prompt_tokens,
        "prompt_eval_duration": 1_000,
        "eval_count": reply.completion_tokens,
        "eval_duration": 1_000,
    }
