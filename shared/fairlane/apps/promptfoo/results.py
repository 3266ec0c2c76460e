"""The result of one assertion."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


class CheckError(Exception):
    """An assertion cannot be checked on this output; the message says why."""


@dataclass(frozen=True, slots=True)
class Result:
    """Whether an output passed, its score, and why. ``named`` are scores of further metrics."""

    passed: bool
    score: float
    reason: str = ""
    named: Mapping[str, float] = field(default_factory=dict)


def met(passed: bool, reason: str = "") -> Result:
    """A result of 1 or 0."""
    return Result(passed, float(passed), "" if passed else reason)
