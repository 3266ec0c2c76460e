"""Google's error codes, and the finish reasons with which Gemini gives no whole answer."""

from __future__ import annotations

# https://cloud.google.com/apis/design/errors#handling_errors
LATE_STATUSES = {
    "invalid_argument": 400,
    "failed_precondition": 400,
    "out_of_range": 400,
    "unauthenticated": 401,
    "permission_denied": 403,
    "not_found": 404,
    "aborted": 409,
    "already_exists": 409,
    "resource_exhausted": 429,
    "cancelled": 499,
    "internal": 500,
    "unknown": 500,
    "data_loss": 500,
    "unimplemented": 501,
    "unavailable": 503,
    "deadline_exceeded": 504,
}

# Finish reasons: https://ai.google.dev/api/generate-content#FinishReason
FILTERED = frozenset(
    {
        *("SAFETY", "RECITATION", "PROHIBITED_CONTENT", "BLOCKLIST", "SPII", "LANGUAGE"),
        *("MODEL_ARMOR", "ESCALATION", "IMAGE_SAFETY", "IMAGE_PROHIBITED_CONTENT", "IMAGE_RECITATION"),
    }
)
BROKEN_OFF = frozenset(
    {
        *("MALFORMED_FUNCTION_CALL", "MALFORMED_RESPONSE", "UNEXPECTED_TOOL_CALL", "TOO_MANY_TOOL_CALLS"),
        *("MISSING_THOUGHT_SIGNATURE", "OTHER"),
    }
)
LOCKED_OUT = "PUP_LIMITED_DISABLED"
