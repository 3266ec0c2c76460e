"""Google's error documents (https://cloud.google.com/apis/design/errors), with their traps."""

from __future__ import annotations

from typing import Any

from fairlane.lab.simulator.limits.admission import Axis
from fairlane.lab.simulator.wire.dialect import Exceeded, Problem

_OF_STATUS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    402: "RESOURCE_EXHAUSTED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    409: "ABORTED",
    429: "RESOURCE_EXHAUSTED",
    499: "CANCELLED",
    501: "UNIMPLEMENTED",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
AI_STUDIO = "generativelanguage.googleapis.com"
_PREFIX = "type.googleapis.com/google.rpc."
_QUOTAS: dict[Axis, tuple[str, str]] = {
    "requests": ("GenerateRequestsPerMinutePerProjectPerModel", "generate_content_requests"),
    "tokens": ("GenerateContentInputTokensPerModelPerMinute", "generate_content_input_token_count"),
    "input": ("GenerateContentInputTokensPerModelPerMinute", "generate_content_input_token_count"),
    "output": ("GenerateContentOutputTokensPerModelPerMinute", "generate_content_output_token_count"),
    "day": ("GenerateRequestsPerDayPerProjectPerModel", "generate_content_requests"),
}
DAYS_RETRY_DELAY = "22s"
"""The delay that Google reports when a day's quota is used up, although it renews hours later."""


def status_of(problem: Problem, service: str) -> int:
    """Google's status: never 529; 402 without credit; at AI Studio 400 for a wrong key."""
    if problem.code == "quota":
        return 402
    if problem.status == 401 and service == AI_STUDIO:
        return 400
    return 503 if problem.status == 529 else problem.status


def error_document(problem: Problem, service: str) -> dict[str, Any]:
    """The body of an error.

    AI Studio names the exceeded quota, its value and the delay before a retry. Vertex AI reports that its
    shared capacity is exhausted, and the delay if it is configured to.
    """
    status = status_of(problem, service)
    error: dict[str, Any] = {
        "code": status,
        "message": _message(problem, service),
        "status": _OF_STATUS.get(status, "INTERNAL"),
    }
    details = []
    if problem.exceeded is not None and problem.exceeded.axis in _QUOTAS and service == AI_STUDIO:
        details.append(_quota_failure(problem.exceeded))
    if problem.retry_after_ms is not None:
        seconds = -(-problem.retry_after_ms // 1000)
        delay = DAYS_RETRY_DELAY if problem.code == "day" else f"{seconds}s"
        details.append({"@type": f"{_PREFIX}RetryInfo", "retryDelay": delay})
    if problem.status == 401 and service == AI_STUDIO:
        reason = {"reason": "API_KEY_INVALID", "domain": "googleapis.com", "metadata": {"service": service}}
        details.append({"@type": f"{_PREFIX}ErrorInfo", **reason})
    if details:
        error["details"] = details
    return {"error": error}


def _message(problem: Problem, service: str) -> str:
    if problem.status == 529:
        return "The model is overloaded. Please try again later."
    if problem.status == 401 and service == AI_STUDIO:
        return "API key not valid. Please pass a valid API key."
    if problem.exceeded is not None:
        return "You exceeded your current quota, please check your plan and billing details."
    if problem.status == 429 and problem.code != "quota":
        return "Resource has been exhausted (e.g. check quota)."
    return problem.message


def _quota_failure(exceeded: Exceeded) -> dict[str, Any]:
    quota, metric = _QUOTAS[exceeded.axis]
    violation = {
        "quotaMetric": f"{AI_STUDIO}/{metric}",
        "quotaId": quota,
        "quotaDimensions": {"location": "global", "model": exceeded.model},
        "quotaValue": str(exceeded.limit),
    }
    return {"@type": f"{_PREFIX}QuotaFailure", "violations": [violation]}
