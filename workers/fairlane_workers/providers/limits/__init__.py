"""What providers say of their limits, read into `fairlane.hints.Hints`."""

from fairlane_workers.providers.limits.reading import Refusal, read_limits, read_refusal
from fairlane_workers.providers.limits.table import DIALECTS, dialect_of

__all__ = ["DIALECTS", "Refusal", "dialect_of", "read_limits", "read_refusal"]
