"""Reads keys that a team may write: whatever the team has put there, the reader goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from redis.exceptions import ResponseError

T = TypeVar("T")


def read_untrusted(read: Callable[[], T]) -> T | None:
    """What ``read`` reads; ``None`` where the key holds another type than it should."""
    try:
        return read()
    except ResponseError as error:
        if str(error).startswith("WRONGTYPE"):
            return None
        raise
