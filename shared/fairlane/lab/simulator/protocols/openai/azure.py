"""Chat completions of Azure OpenAI, as the simulated provider speaks them."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from fairlane.lab.simulator.limits.admission import Axis, Level
from fairlane.lab.simulator.protocols.openai.chat import OpenAIChat
from fairlane.lab.simulator.wire.dialect import (
    NO_PATH,
    Call,
    Exceeded,
    Problem,
    Reply,
    RequestError,
    Stamp,
    write_event,
)
from fairlane.lab.simulator.wire.headers import azure_limit_headers

_VERSION = re.compile(r"\d{4}-\d{2}-\d{2}(-preview)?")
_AXIS_WORDS: dict[Axis, str] = {"requests": "call", "tokens": "token", "input": "token", "output": "token"}
_CATEGORIES = ("hate", "self_harm", "sexual", "violence")
_SAFE = {category: {"filtered": False, "severity": "safe"} for category in _CATEGORIES}
_PROMPT = [{"prompt_index": 0, "content_filter_results": {**_SAFE, "jailbreak": {"filtered": False}}}]
_CODES = {
    401: "401",
    404: "DeploymentNotFound",
    408: "Timeout",
    429: "429",
    500: "InternalServerError",
    503: "ServiceUnavailable",
}
_MESSAGES = {
    401: "Access denied due to invalid subscription key or wrong API endpoint. Make sure to provide a valid "
    "key for an active subscription and use a correct regional API endpoint for your resource.",
    404: "The API deployment for this resource does not exist. If you created the deployment within the last "
    "5 minutes, please wait a moment and try again.",
}


class AzureOpenAI(OpenAIChat):
    """A deployment's chat completions, which need an ``api-version``, and those of the v1 API."""

    paths: ClassVar[tuple[str, ...]] = (
        "/openai/deployments/{deployment}/chat/completions",
        "/openai/v1/chat/completions",
    )

    def parse(self, payload: Any, path: Mapping[str, str] = NO_PATH) -> Call:
        """The path of a deployment replaces the model, and needs an ``api-version``."""
        return super().parse(self.addressed(payload, path))

    def addressed(self, payload: Any, path: Mapping[str, str]) -> Any:
        """The payload with the model of the path. Raises `RequestError` without an ``api-version``."""
        deployment = path.get("deployment")
        if deployment is not None and not _VERSION.fullmatch(path.get("api-version", "")):
            raise RequestError("Resource not found", 404, "404")
        if deployment is not None and isinstance(payload, dict):
            return {**payload, "model": deployment}
        return payload

    def presented_key(self, headers: Mapping[str, str]) -> str | None:
        """The key of ``api-key``, or the bearer token."""
        return headers.get("api-key") or super().presented_key(headers)

    def completion_fields(self) -> dict[str, Any]:
        """The content filter's results for the prompt."""
        return {"prompt_filter_results": _PROMPT}

    def choice_fields(self) -> dict[str, Any]:
        """The content filter's results for the answer."""
        return {"content_filter_results": _SAFE}

    def frames(self, call: Call, reply: Reply, pieces: Sequence[str], stamp: Stamp) -> list[bytes]:
        """A stream whose first event has no choice: it reports the filter's results for the prompt."""
        frames = super().frames(call, reply, pieces, stamp)
        opening = {"choices": [], "created": 0, "id": "", "model": "", "object": ""}
        frames[0] = write_event({**opening, "prompt_filter_results": _PROMPT}) + frames[0]
        return frames

    def error_document(self, problem: Problem) -> dict[str, Any]:
        """Azure's form with its own codes and messages; OpenAI's form for a 400."""
        return _error(problem) if problem.status != 400 else super().error_document(problem)

    def error_headers(self, problem: Problem) -> dict[str, str]:
        """An identifier of the request, as Azure's gateway adds it."""
        return {"apim-request-id": "00000000-0000-4000-8000-000000000000"}

    def limit_headers(self, levels: Mapping[Axis, Level], now_ms: int) -> dict[str, str]:
        """See `Dialect.limit_headers`."""
        return azure_limit_headers(levels)


def _error(problem: Problem) -> dict[str, Any]:
    if problem.code == "quota":
        kind = "insufficient_quota"
        return {"error": {"message": problem.message, "type": kind, "param": None, "code": kind}}
    if problem.code == "404":
        return {"error": {"code": "404", "message": problem.message}}
    message = _MESSAGES.get(problem.status, problem.message)
    if problem.exceeded is not None:
        message = _exceeded(problem.exceeded)
    return {"error": {"code": _CODES.get(problem.status, str(problem.status)), "message": message}}


def _exceeded(exceeded: Exceeded) -> str:
    word = _AXIS_WORDS.get(exceeded.axis, "call")
    return (
        "Requests to the ChatCompletions_Create Operation under Azure OpenAI API have exceeded "
        f"{word} rate limit of your current OpenAI S0 pricing tier."
    )
