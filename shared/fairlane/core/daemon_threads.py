"""Daemon threads for work that blocks. A thread whose caller has gone is replaced; none delays the exit."""

import asyncio
import contextvars
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True, eq=False)
class Job:
    """Work for a thread. ``ended`` has its result and ``None``, or ``None`` and what it raised."""

    function: Callable[[], Any]
    context: contextvars.Context = field(default_factory=contextvars.copy_context)
    ended: Future[tuple[Any, BaseException | None]] = field(default_factory=Future)
    abandoned: bool = False

    def fail(self, error: BaseException) -> None:
        """End without a call."""
        if self.ended.set_running_or_notify_cancel():
            self.ended.set_result((None, error))

    def run(self) -> None:
        """Call the function; any exception that it raises is its result."""
        if not self.ended.set_running_or_notify_cancel():
            return
        result: tuple[Any, BaseException | None]
        try:
            result = self.context.run(self.function), None
        except BaseException as error:  # noqa: BLE001 - a user's function may raise anything
            result = None, error
        self.ended.set_result(result)


class NoThread(OSError):
    """This machine lets the process start no thread, and none runs that could do the work later."""


class DaemonThreads:
    """Runs at most ``most`` functions at once, beside those that were abandoned."""

    def __init__(self, most: int, name: str) -> None:
        self._most, self._name = most, name
        self._changed = threading.Condition()
        self._jobs: deque[Job] = deque()
        self._live = self._idle = 0
        self._closed = False

    async def run(self, function: Callable[[], Any]) -> Any:
        """Call ``function`` in a copy of the caller's context; returns or raises its result.

        A cancelled caller waits no longer. A function that has begun runs to its end, and another thread
        takes its place. Raises `NoThread`.
        """
        job = self.submit(function)
        try:
            result, error = await asyncio.wrap_future(job.ended)
        except asyncio.CancelledError:
            self.abandon(job)
            raise
        if error is not None:
            raise error
        return result

    def submit(self, function: Callable[[], Any]) -> Job:
        """Have ``function`` called by a thread, in a copy of the caller's context."""
        job = Job(function)
        with self._changed:
            self._jobs.append(job)
            self._staff()
        return job

    def abandon(self, job: Job) -> None:
        """Drop ``job`` if it has not begun; else let it run to its end, with another thread in its place."""
        with self._changed:
            if job in self._jobs:
                self._jobs.remove(job)
            elif not job.ended.done() and not job.abandoned:
                job.abandoned = True
                self._live -= 1
                if self._jobs:
                    self._staff()

    def close(self) -> None:
        """End each thread as it becomes idle."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _staff(self) -> None:
        if self._idle >= len(self._jobs) or self._live >= self._most:
            self._changed.notify()
            return
        try:
            threading.Thread(target=self._work, name=self._name, daemon=True).start()
            self._live += 1
        except RuntimeError as error:
            while self._jobs and not self._live:
                self._jobs.popleft().fail(NoThread(str(error)))

    def _work(self) -> None:
        while (job := self._next()) is not None:
            job.run()
            with self._changed:
                if job.abandoned:
                    return

    def _next(self) -> Job | None:
        with self._changed:
            while not self._jobs:
                if self._closed:
                    self._live -= 1
                    return None
                self._idle += 1
                self._changed.wait()
                self._idle -= 1
            return self._jobs.popleft()
