"""Functions as users write them, for workers of tests to import. Some tell what they did by a side effect."""

from __future__ import annotations

import asyncio
import threading
from os import system  # noqa: F401 - what a module has merely imported is out of reach
from pathlib import Path
from typing import Any

from celery import Celery

from fairlane.errors import RateLimited

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
    """A scorer by name."""
    return len(output)


async def agrees(output: str, row: dict[str, Any]) -> bool:
    """A scorer of both."""
    return output == row["expected"]


def turns(session: list[dict[str, Any]]) -> float:
    """A session's scorer."""
    return float(len(session))


def busy_once(row: dict[str, Any]) -> str:
    """Told to slow down the first time that it sees a marker."""
    marker = Path(row["marker"])
    if not marker.exists():
        marker.touch()
        raise RateLimited("calm down", retry_after=0.2)
    return "served"


def crash(row: dict[str, Any]) -> str:
    """A defect."""
    raise KeyError(row["text"])


def thread_name(row: dict[str, Any]) -> str:
    """Where it runs."""
    return threading.current_thread().name


@app.task(shared=False, name="tests.support.user_functions.add")
def add(left: int, right: int) -> int:
    """A Celery task."""
    return left + right
