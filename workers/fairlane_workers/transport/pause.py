"""The function with which a worker sleeps; tests pass another one."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias

Pause: TypeAlias = Callable[[float], Awaitable[object]]
"""Waits for a number of seconds without blocking the event loop."""

sleep: Pause = asyncio.sleep  # noqa: TID251 - workers wait here until Redis answers again
