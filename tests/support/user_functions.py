"""Functions as users write them, for workers of tests to import. Some record their calls by a side effect."""

from __future__ import annotations

import asyncio
import threading
from os import system  # noqa: F401 - runs may not call what a module only imports
from pathlib import Path
from typing import Any

from celery import Celery

from fairlane.core.errors import RateLimited

app = Celery("support", set_as_current=False)
told_once: set[str] = set()


def shout(row: dict[str, Any]) -> str:
    """A task that blocks."""
    return str(row["text"]).upper()


async def whisper(row: dict[str, Any]) -> str:
    """A task that awaits."""
    future: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(future.set_result, str(row["text"]).lower())
    return await future


def length(output: str) -> int:
    """A scorer that gets named arguments."""
    return len(output)


async def agrees(output: str, row: dict[str, Any]) -> bool:
    """A scorer of both."""
    return output == row["expected"]


def turns(session: list[dict[str, Any]]) -> float:
    """A session's scorer."""
    return float(len(session))


def busy_once(row: dict[str, Any]) -> str:
    """Raises a rate limit the first time that it gets a marker."""
    marker = Path(row["marker"])
    if not marker.exists():
        marker.touch()
        raise RateLimited("calm down", retry_after=0.2)
    return "served"


def crash(row: dict[str, Any]) -> str:
    """A task that raises."""
    raise KeyError(row["text"])


def thread_name(row: dict[str, Any]) -> str:
    """Returns where it runs."""
    return threading.current_thread().name


@app.task(shared=False, name="tests.support.user_functions.add")
def add(left: int, right: int) -> int:
    """A Celery task."""
    return left + right
