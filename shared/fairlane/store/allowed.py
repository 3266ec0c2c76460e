"""Reads that a team's own user may not be allowed: then the reader goes on without."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from redis.exceptions import NoPermissionError

T = TypeVar("T")
D = TypeVar("D")


def if_allowed(read: Callable[[], T], otherwise: D) -> T | D:
    """What ``read`` reads, or ``otherwise`` where this user may not."""
    try:
        return read()
    except NoPermissionError:
        return otherwise
