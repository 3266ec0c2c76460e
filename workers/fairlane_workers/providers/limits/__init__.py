"""Reads the rate limits that providers report, as `fairlane.model.hints.Hints`.

`providers` uses it; it imports only its siblings.
"""

from fairlane_workers.providers.limits.prose import is_beyond_limit, is_too_long_for_plan
from fairlane_workers.providers.limits.reading import (
    Refusal,
    asked_wait_ms,
    read_limits,
    read_refusal,
    wait_of_success_ms,
)
from fairlane_workers.providers.limits.table import DIALECTS, dialect_of

__all__ = [
    "DIALECTS",
    "Refusal",
    "asked_wait_ms",
    "dialect_of",
    "is_beyond_limit",
    "is_too_long_for_plan",
    "read_limits",
    "read_refusal",
    "wait_of_success_ms",
]
