"""Reads errors of OpenAI and compatible servers, inside answers and in place of them."""

from collections.abc import Mapping
from typing import Any

from fairlane_workers.providers.answers.answer import within
from fairlane_workers.providers.answers.base_resp import named
from fairlane_workers.providers.errors.error_body import ErrorBody
from fairlane_workers.providers.protocols.anthropic_messages import LATE_STATUSES as ANTHROPIC_STATUSES

# What a response fails with after its 200 has the status that the same code has by itself.
_REJECTED = (
    *("context_length_exceeded", "content_policy_violation", "invalid_prompt"),
    *("cyber_policy", "bio_policy", "misalignment_policy_violation", "data_residency_mismatch"),
    # https://platform.openai.com/docs/api-reference/responses/object#responses/object-error
    *("invalid_image", "invalid_image_format", "invalid_image_mode", "invalid_image_url"),
    *("invalid_base64_image", "image_too_large", "image_too_small", "image_parse_error"),
    *("image_file_too_large", "image_file_not_found", "empty_image_file", "failed_to_download_image"),
    *("unsupported_image_media_type", "image_content_policy_violation"),
    # Alibaba's and Volcengine's checks of the content
    *("data_inspection_failed", "datainspectionfailed", "sensitivecontentdetected"),
    *("inputtextsensitivecontentdetected", "outputtextsensitivecontentdetected"),
    *("inputimagesensitivecontentdetected", "outputimagesensitivecontentdetected"),
)

LATE_STATUSES = {
    **ANTHROPIC_STATUSES,  # gateways forward Anthropic's error types
    **dict.fromkeys(_REJECTED, 400),
    "invalid_api_key": 401,
    "model_not_found": 404,
    "insufficient_quota": 429,
    "credit_balance_exhausted": 429,
    "rate_limit_exceeded": 429,
    "resource_exhausted": 429,
    "slow_down": 429,
    "too_many_requests": 429,
    "server_error": 500,
    "server_is_overloaded": 503,
    "service_unavailable_error": 503,
    "insufficient_system_resource": 503,
}


def read_error(body: bytes) -> ErrorBody:
    """The error in a reply: `ErrorBody.parse`, with the forms of compatible servers."""
    said = ErrorBody.parse(body)
    return ErrorBody.of(_explained(said.error)) if said.error else said


def error_in(document: Mapping[str, Any]) -> object:
    """An error in place of an answer: under its own key, or (vLLM, Mistral) as the whole document."""
    error = document.get("error") or within(document, "x_groq", "error")  # Groq's, next to the choices
    if not error and document.get("object") == "error":
        error = document
    if isinstance(error, str) and error:
        return {**document, "error": error}  # text-generation-inference's type is beside it
    if isinstance(error, dict) and "status_code" in document:  # Cerebras'
        error = {"status_code": document["status_code"], **error}
    base = document.get("base_resp")  # MiniMax sends it with every answer; 0 is success
    if not error and isinstance(base, dict) and base.get("status_code") not in (None, 0, "0"):
        error = base
    return _explained(error) if isinstance(error, dict) else error


def unwrapped(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """A completion out of what gateways put around it: ``{"code": 0, "msg": "success", "data": {…}}``."""
    if "choices" in document:
        return document
    for name in ("data", "result", "output", "response"):
        inner = document.get(name)
        if isinstance(inner, dict) and isinstance(inner.get("choices"), list):
            return {**document, **inner}
    return document


def _explained(error: Mapping[str, Any]) -> dict[str, Any]:
    """The error with details that some servers send besides message and type.

    OpenRouter's moderation declines an input with the status of a bad key. Its ``message`` often says no more
    than that there was an error; ``raw`` is what the provider behind it said.
    """
    error = named(error)
    metadata = error.get("metadata")
    raw = within(error, "value", "error_message")  # of Vercel's gateway
    if isinstance(raw, str) and raw:
        said = ErrorBody.parse(raw.encode("utf-8", "replace")).message or raw
        return {**error, "message": f"{error.get('message')}: {said}"}
    if not isinstance(metadata, dict):
        fields = _invalid_fields(error)
        return {**error, "message": fields} if fields else {**error}
    explained = {**error}
    if "flagged_input" in metadata:
        explained["type"] = "content_filter"
    if isinstance(raw := metadata.get("raw"), str) and raw:
        explained["message"] = f"{error.get('message')}: {raw}"
    return explained


def _invalid_fields(error: Mapping[str, Any]) -> str | None:
    """The validation errors of each field, in the form of FastAPI (vLLM) and of Mistral, in ``message``."""
    within = error.get("message")
    detail = error.get("detail") or (within.get("detail") if isinstance(within, dict) else within)
    if not isinstance(detail, list):
        return None
    problems = [each for each in detail if isinstance(each, dict) and isinstance(each.get("msg"), str)]
    return "; ".join(f"{_place(each.get('loc'))}{each['msg']}" for each in problems) or None


def _place(location: object) -> str:
    parts = [str(part) for part in location if part != "body"] if isinstance(location, list) else []
    return ".".join(parts) + ": " if parts else ""
