"""What a worker of a later version wrote or may execute, and this one must leave to it."""

from __future__ import annotations

from pydantic import ValidationError

from fairlane.errors import FairlaneError
from fairlane.job import MESSAGE_VERSION, Attempt
from fairlane.run import Plan


class LaterVersion(FairlaneError):
    """Something was written by a later version of Fairlane. Its job goes back, at no cost."""


def check_version(attempt: Attempt) -> None:
    """Raises `LaterVersion` where an attempt's message means more than is known here."""
    if attempt.version > MESSAGE_VERSION:
        raise LaterVersion(f"its message has version {attempt.version}, this worker reads {MESSAGE_VERSION}")


def read_plan(text: str | bytes) -> Plan:
    """A run's plan. Raises `LaterVersion` where it cannot be read: the scheduler wrote it, so it is sound."""
    try:
        return Plan.read(text)
    except ValidationError as error:
        raise LaterVersion("its run was admitted by a later version of the scheduler") from error
