"""The OpenAI chat-completions protocol, as the simulated provider speaks it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from fairlane.testing.provider.dialect import (
    NO_PATH,
    Call,
    Dialect,
    Exceeded,
    Problem,
    Reply,
    RequestError,
    RetryAfterForm,
    Stamp,
    read_flag,
    read_messages,
    read_positive,
    read_schema,
    read_tools,
    write_json,
)
from fairlane.testing.provider.limits import Axis, Level

_DONE = b"data: [DONE]\n\n"

_BY_CODE = {
    "requests": ("requests", "rate_limit_exceeded"),
    "tokens": ("tokens", "rate_limit_exceeded"),
    "input": ("tokens", "rate_limit_exceeded"),
    "output": ("tokens", "rate_limit_exceeded"),
    "day": ("requests", "rate_limit_exceeded"),
    "concurrency": ("requests", "rate_limit_exceeded"),
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
_HEADER_AXES: tuple[Axis, ...] = ("requests", "tokens")
_BY_STATUS = {
    400: ("invalid_request_error", None),
    401: ("invalid_request_error", "invalid_api_key"),
    402: ("insufficient_quota", "credit_balance_exhausted"),
    403: ("request_forbidden", "unsupported_country_region_territory"),
    404: ("invalid_request_error", "model_not_found"),
    413: ("invalid_request_error", "request_too_large"),
    422: ("invalid_request_error", "unprocessable"),
    429: ("requests", "rate_limit_exceeded"),
    503: ("server_error", "server_is_overloaded"),
    529: ("overloaded_error", "overloaded"),
}


class OpenAIChat(Dialect):
    """Chat completions; streams end with ``data: [DONE]``."""

    paths: ClassVar[tuple[str, ...]] = ("/v1/chat/completions",)
    retry_after_forms: tuple[RetryAfterForm, ...] = ("milliseconds", "seconds")

    def parse(self, payload: Any, path: Mapping[str, str] = NO_PATH) -> Call:
        model, question, spoken = read_messages(payload)
        options = payload.get("stream_options") or {}
        if not isinstance(options, dict):
            raise RequestError("stream_options: an object is required")
        return Call(
            model=model,
            prompt="\n".join(text for _, text in spoken),
            question=question,
            max_tokens=read_positive(payload, "max_completion_tokens")
            or read_positive(payload, "max_tokens"),
            stream=read_flag(payload, "stream"),
            include_usage=read_flag(options, "include_usage"),
            schema=read_schema(payload),
            tools=read_tools(payload),
        )

    def presented_key(self, headers: Mapping[str, str]) -> str | None:
        scheme, _, key = headers.get("Authorization", "").partition(" ")
        return key.strip() if scheme.lower() == "bearer" else None

    def error(self, problem: Problem) -> bytes:
        return write_json(_error(problem))

    def completion(self, call: Call, reply: Reply, stamp: Stamp) -> bytes:
        message = {"role": "assistant", "content": reply.text, "refusal": None}
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": _finish(reply)}
        answer = _answer("chat.completion", call, stamp)
        return write_json({**answer, "choices": [choice], "usage": _usage(call, reply)})

    def frames(self, call: Call, reply: Reply, pieces: Sequence[str], stamp: Stamp) -> list[bytes]:
        answer = _answer("chat.completion.chunk", call, stamp)
        unknown_usage = {"usage": None} if call.include_usage else {}

        def chunk(delta: dict[str, str], finish: str | None = None) -> bytes:
            choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
            return _event({**answer, "choices": [choice], **unknown_usage})

        frames = [chunk({"content": piece}) for piece in pieces]
        frames[0] = chunk({"role": "assistant", "content": ""}) + frames[0]
        frames[-1] += chunk({}, _finish(reply))
        if call.include_usage:
            frames[-1] += _event({**answer, "choices": [], "usage": _usage(call, reply)})
        frames[-1] += _DONE
        return frames

    def stream_error(self, problem: Problem) -> bytes:
        return _event(_error(problem))

    def limit_headers(self, levels: Mapping[Axis, Level], now_ms: int) -> dict[str, str]:
        headers: dict[str, str] = {}
        for axis in _HEADER_AXES:
            level = levels.get(axis)
            if level is None:
                continue
            headers[f"x-ratelimit-limit-{axis}"] = str(level.limit)
            headers[f"x-ratelimit-remaining-{axis}"] = str(level.remaining)
            headers[f"x-ratelimit-reset-{axis}"] = duration(level.reset_ms)
        return headers


def duration(ms: int) -> str:
    """Milliseconds as OpenAI's reset headers write them: ``12ms``, ``1.5s``, ``6m0s``, ``2h0m0s``."""
    if ms < 1000:
        return f"{ms}ms"
    minutes, rest_ms = divmod(ms, 60_000)
    seconds = f"{rest_ms / 1000:.3f}".rstrip("0").rstrip(".") + "s"
    if not minutes:
        return seconds
    hours, minutes = divmod(minutes, 60)
    return (f"{hours}h" if hours else "") + f"{minutes}m{seconds}"


def _answer(kind: str, call: Call, stamp: Stamp) -> dict[str, Any]:
    return {
        "id": f"chatcmpl-{stamp.ordinal}",
        "object": kind,
        "created": stamp.created,
        "model": call.model,
        "system_fingerprint": "fp_simulated",
    }


def _usage(call: Call, reply: Reply) -> dict[str, int]:
    return {
        "prompt_tokens": call.prompt_tokens,
        "completion_tokens": reply.completion_tokens,
        "total_tokens": call.prompt_tokens + reply.completion_tokens,
    }


def _finish(reply: Reply) -> str:
    return "length" if reply.truncated else "stop"


def _error(problem: Problem) -> dict[str, Any]:
    kind, code = _BY_CODE.get(problem.code or "") or _BY_STATUS.get(problem.status, ("server_error", None))
    message = problem.message if problem.exceeded is None else _exceeded(problem.exceeded)
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def _exceeded(exceeded: Exceeded) -> str:
    return (
        f"Rate limit reached for {exceeded.model} on {_AXIS_WORDS[exceeded.axis]}: "
        f"Limit {exceeded.limit}, Used {exceeded.used}, Requested {exceeded.requested}."
    )


def _event(value: dict[str, Any]) -> bytes:
    return b"data: " + write_json(value) + b"\n\n"
