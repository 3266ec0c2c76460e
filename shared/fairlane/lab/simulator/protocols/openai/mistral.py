"""Mistral's chat completions, as the simulated provider speaks them."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from fairlane.lab.simulator.protocols.openai.chat import OpenAIChat, error_of, usage_of
from fairlane.lab.simulator.wire.dialect import (
    NO_PATH,
    Call,
    Problem,
    Reply,
    RequestError,
    RetryAfterForm,
    write_json,
)

_KNOWN = frozenset(
    {
        *("model", "messages", "temperature", "top_p", "top_k", "max_tokens", "min_tokens", "stream", "stop"),
        *("random_seed", "n", "response_format", "tools", "tool_choice", "parallel_tool_calls"),
        *("presence_penalty", "frequency_penalty", "repetition_penalty", "prediction", "prompt_mode"),
        *("safe_prompt", "metadata", "reasoning_effort", "guardrails", "prompt_cache_key", "service_tier"),
        *("logprobs", "top_logprobs", "prompt_logprobs", "top_prompt_logprobs"),
    }
)
_KINDS = {
    400: ("invalid_request_error", "3001"),
    422: ("invalid_request_error", "3001"),
    429: ("rate_limited", "1300"),
    404: ("invalid_model", "1500"),
    503: ("service_unavailable", "3000"),
}


class MistralChat(OpenAIChat):
    """Rejects unknown fields with a 422, and always ends a stream with its usage.

    Mistral's path is that of OpenAI, so the simulated provider serves it below ``{url}/mistral``.
    """

    paths: ClassVar[tuple[str, ...]] = ("/mistral/v1/chat/completions",)
    retry_after_forms: tuple[RetryAfterForm, ...] = ("seconds",)

    def parse(self, payload: Any, path: Mapping[str, str] = NO_PATH) -> Call:
        """Reads as OpenAI does, after a check for unknown fields; each error becomes a 422."""
        return self.checked(payload, _KNOWN, super().parse)

    def checked(self, payload: Any, known: frozenset[str], read: Callable[[Any], Call]) -> Call:
        """What ``read`` makes of a payload with ``known`` fields. Raises `RequestError` with a 422."""
        unknown = sorted(payload.keys() - known) if isinstance(payload, dict) else []
        if unknown:
            forbidden = "Extra inputs are not permitted"
            raise _invalid([("extra_forbidden", name, forbidden, payload[name]) for name in unknown])
        try:
            return read(payload)
        except RequestError as error:
            field, _, message = error.problem.message.rpartition(": ")
            raise _invalid([("value_error", field, message, None)]) from error

    def parameters(self, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        """See `Dialect.parameters`: ``max_tokens`` has no newer name here."""
        return {name: value for name, value in payload.items() if name != "max_tokens"}

    def unsupported(self, name: str, value: Any) -> Problem:
        """See `Dialect.unsupported`: as a field that the model does not know."""
        return _invalid([("extra_forbidden", name, "Extra inputs are not permitted", value)]).problem

    def last_fields(self, call: Call, reply: Reply) -> dict[str, Any]:
        """The usage, whether or not the request asks for it."""
        return {"usage": usage_of(call, reply)}

    def error_document(self, problem: Problem) -> dict[str, Any]:
        """Mistral's three forms: a sentence for a 401, validation details, or type and code."""
        match problem.status:
            case 401:
                return {"detail": "Unauthorized"}
            case 422 if problem.code == "detail":
                message, kind, code = json.loads(problem.message), "invalid_request_error", None
            case status:
                message = error_of(problem)["message"]
                kind, code = _KINDS.get(status, ("internal_server_error", str(status)))
        return {"object": "error", "message": message, "type": kind, "param": None, "code": code}


def _invalid(errors: Sequence[tuple[str, str, str, Any]]) -> RequestError:
    """A 422 with type, field, message and value of each error."""
    detail = [
        {"type": kind, "loc": ["body", field], "msg": message, "input": value}
        for kind, field, message, value in errors
    ]
    return RequestError(write_json({"detail": detail}).decode(), 422, "detail")
