"""Reads keys that a team may write: whatever the team has put there, the reader goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from redis.exceptions import ResponseError

T = TypeVar("T")


def answers(pipeline: Any) -> list[Any]:
    """What a pipeline is answered. Raises the first error as the server put it, for `read_untrusted`."""
    found: list[Any] = pipeline.execute(raise_on_error=False)
    for each in found:
        if isinstance(each, Exception):
            raise each
    return found


def read_untrusted(read: Callable[[], T]) -> T | None:
    """What ``read`` reads; ``None`` where the key holds another type than it should."""
    try:
        return read()
    except ResponseError as error:
        if str(error).startswith("WRONGTYPE"):
            return None
        raise
