"""The one place in a worker that lets time pass; everything that waits so can be given another in tests."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias

Pause: TypeAlias = Callable[[float], Awaitable[object]]
"""Waits for as many seconds, without keeping the loop from anything else."""

sleep: Pause = asyncio.sleep  # noqa: TID251 - what waits for Redis to come back waits here
