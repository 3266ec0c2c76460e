"""Replicate's predictions, as the simulated provider speaks them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, ClassVar, Literal

from fairlane.lab.simulator.wire.dialect import (
    NO_PATH,
    Call,
    Dialect,
    Problem,
    Reply,
    RequestError,
    Stamp,
    credential,
    write_json,
)
from fairlane.lab.simulator.wire.reading import is_number, read_text

Status = Literal["starting", "processing", "succeeded", "failed", "canceled"]

_TITLES = {
    401: "Unauthenticated",
    402: "Insufficient credit",
    404: "Not found",
    422: "Input validation failed",
    429: "Too many requests",
}
_NUMBERS = ("temperature", "top_p", "presence_penalty", "frequency_penalty")
_COUNTS = ("max_tokens", "max_new_tokens", "max_completion_tokens")


@dataclass(frozen=True, slots=True)
class PredictionState:
    """The state of a prediction. ``pieces`` is its output so far; times are epoch milliseconds."""

    id: str
    model: str
    input: Mapping[str, Any]
    status: Status
    pieces: Sequence[str]
    created_ms: int
    started_ms: int | None = None
    completed_ms: int | None = None
    error: str | None = None
    tokens: tuple[int, int] | None = None


class InvalidInputError(RequestError):
    """The model does not accept this input."""

    def __init__(self, message: str) -> None:
        super().__init__(f"- input: {message}\n", 422)


class Replicate(Dialect):
    """A POST creates a prediction; `http.predictions.Predictions` runs it and reports its state."""

    paths: ClassVar[tuple[str, ...]] = (
        "/v1/predictions",
        "/v1/models/{owner}/{name}/predictions",
        "/v1/deployments/{owner}/{name}/predictions",
    )

    def parse(self, payload: Any, path: Mapping[str, str] = NO_PATH) -> Call:
        """The path or ``version`` names the model; the model's own input has the prompt."""
        if not isinstance(payload, dict):
            raise RequestError("the body must be a JSON object")
        given = payload.get("input")
        if not isinstance(given, dict):
            raise InvalidInputError("input is required")
        prompt, question = _prompt(given)
        counts = [_count(given, name) for name in _COUNTS]
        for name in _NUMBERS:
            if not is_number(given.get(name, 0), -math.inf, math.inf):
                raise InvalidInputError(f"{name}: Invalid type. Expected: number")
        for name in ("system_prompt", "stop_sequences"):
            if not isinstance(given.get(name, ""), str):
                raise InvalidInputError(f"{name}: Invalid type. Expected: string")
        return Call(
            model=_model(payload, path),
            prompt="\n".join(filter(None, (given.get("system_prompt"), prompt))),
            question=question,
            max_tokens=next(filter(None, counts), None),
        )

    def parameters(self, payload: Mapping[str, Any]) -> Mapping[str, Any]:
        """See `Dialect.parameters`: they are in ``input``."""
        given: Mapping[str, Any] = payload["input"]
        return given

    def presented_key(self, headers: Mapping[str, str]) -> str | None:
        """The credential of the scheme ``bearer`` or ``token``."""
        return credential(headers, "bearer", "token")

    def status(self, problem: Problem) -> int:
        """A used-up quota is a 402."""
        return 402 if problem.code == "quota" else problem.status

    def error_document(self, problem: Problem) -> dict[str, Any]:
        """A problem document; that of a 429 says when the limit resets."""
        status = self.status(problem)
        document: dict[str, Any] = {
            "title": _TITLES.get(status, "Error"),
            "detail": problem.message,
            "status": status,
        }
        if status == 429:
            wait_s = -(-(problem.retry_after_ms or 0) // 1000)
            document["detail"] = f"Request was throttled. Your rate limit resets in ~{wait_s}s."
        return document

    def completion(self, call: Call, reply: Reply, stamp: Stamp) -> bytes:
        """A prediction that has succeeded."""
        at_ms, tokens = stamp.created * 1000, (call.prompt_tokens, reply.completion_tokens)
        done: Status = "succeeded"
        state = PredictionState(
            f"pred{stamp.ordinal}", call.model, {}, done, [reply.text], at_ms, at_ms, at_ms, tokens=tokens
        )
        return write_json(self.document(state, ""))

    def frames(self, call: Call, reply: Reply, pieces: Sequence[str], stamp: Stamp) -> list[bytes]:
        """The whole answer: Replicate's requests ask for no stream."""
        return [self.completion(call, reply, stamp)]

    def document(self, state: PredictionState, root: str) -> dict[str, Any]:
        """The JSON document of a prediction; ``root`` is the URL of the API."""
        owned = "/" in state.model
        metrics: dict[str, Any] = {}
        if state.completed_ms is not None and state.started_ms is not None:
            metrics["predict_time"] = (state.completed_ms - state.started_ms) / 1000
        if state.tokens is not None:
            metrics |= dict(zip(("input_token_count", "output_token_count"), state.tokens, strict=True))
        place = f"{root}/predictions/{state.id}"
        return {
            "id": state.id,
            "model": state.model if owned else "simulated/model",
            "version": "hidden" if owned else state.model,
            "input": dict(state.input),
            "logs": "",
            "output": list(state.pieces) or None,
            "data_removed": False,
            "error": state.error,
            "status": state.status,
            "created_at": _moment(state.created_ms),
            "started_at": _moment(state.started_ms),
            "completed_at": _moment(state.completed_ms),
            "urls": {"get": place, "cancel": f"{place}/cancel"},
            "metrics": metrics,
        }


def _model(payload: dict[str, Any], path: Mapping[str, str]) -> str:
    if "owner" in path:
        return f"{path['owner']}/{path['name']}"
    version = payload.get("version")
    if not isinstance(version, str) or not version:
        raise RequestError("version is required")
    return version.rpartition(":")[2]


def _prompt(given: dict[str, Any]) -> tuple[str, str]:
    """All text of the input, and the last message."""
    messages = given.get("messages")
    if messages is None:
        prompt = given.get("prompt")
        if not isinstance(prompt, str):
            raise InvalidInputError("prompt is required" if prompt is None else "prompt: Expected: string")
        return prompt, prompt
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        raise InvalidInputError("messages: Invalid type. Expected: array of objects")
    texts = [read_text(message.get("content"), "messages") for message in messages]
    return "\n".join(texts), texts[-1] if texts else ""


def _count(given: dict[str, Any], name: str) -> int | None:
    value = given.get(name)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise InvalidInputError(f"{name}: Must be greater than or equal to 1")
    return value


def _moment(at_ms: int | None) -> str | None:
    if at_ms is None:
        return None
    return (
        datetime.fromtimestamp(at_ms / 1000, tz=UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    )
