"""Google's error codes, and the finish reasons that mean something at Gemini alone."""

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

LOCKED_OUT = "PUP_LIMITED_DISABLED"
"""The account may not use the model: https://ai.google.dev/api/generate-content#FinishReason"""

UNNAMED = "OTHER"
"""Gemini broke off for a reason that it does not name. Elsewhere "other" may end a whole answer."""
