"""Names MiniMax's error codes, which arrive inside a 200, as other providers name the same errors.

The numbers mean something else at other providers, so they count only beside MiniMax's own field.
"""

from collections.abc import Mapping
from typing import Any

# https://platform.minimax.io/docs/api-reference/errorcode
_TYPES: Mapping[int, str] = {
    1000: "api_error",
    1001: "timeout_error",
    1002: "rate_limit_error",
    1004: "authentication_error",  # not authorized, or the key is another group's
    1008: "insufficient_quota",
    1013: "api_error",
    1024: "api_error",
    1026: "content_filter",  # the input
    1027: "content_filter",  # the output
    1033: "api_error",
    1039: "rate_limit_error",  # tokens a minute
    1041: "rate_limit_error",  # connections
    1042: "invalid_request_error",  # too many invisible characters
    2013: "invalid_request_error",
    2045: "rate_limit_error",  # the rate grew too fast
    2049: "authentication_error",
    2056: "rate_limit_error",  # the plan's usage within five hours
}


def named(error: Mapping[str, Any]) -> Mapping[str, Any]:
    """The error with a ``type``, if it is MiniMax's ``{"status_code", "status_msg"}``; else unchanged."""
    code = error.get("status_code")
    if "status_msg" not in error or "type" in error or not isinstance(code, int | str):
        return error
    number = int(code) if str(code).isascii() and str(code).isdigit() else 0
    kind = _TYPES.get(number)
    return {**error, "type": kind} if kind else error
