"""A Celery pool without threads: each attempt is a coroutine on the engine's event loop.

A pool thread that only waits for the loop costs two hand-overs a task, each through the interpreter's lock;
they are most of what a no-op task costs. Celery's own tasks, should any arrive, run on one thread beside it.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from billiard.einfo import ExceptionInfo
from celery.concurrency.base import BasePool, apply_target
from kombu.serialization import loads

from fairlane.broker import TASK_NAME
from fairlane.job import Attempt
from fairlane.logs import get_logger

log = get_logger("pool")

POOL = "fairlane_workers.loop_pool:TaskPool"


class TaskPool(BasePool):  # type: ignore[misc]
    """What ``worker_pool`` names. The application's attempt task has ``start``, which begins an attempt."""

    body_can_be_buffer = True
    signal_safe = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._others = ThreadPoolExecutor(max_workers=1, thread_name_prefix="fairlane-other")
        self._idle = threading.Condition()
        self._busy = 0

    def on_apply(
        self,
        target: Callable[..., Any],
        args: Any = None,
        kwargs: Any = None,
        callback: Callable[[Any], None] | None = None,
        accept_callback: Callable[[int, float], None] | None = None,
        **_: Any,
    ) -> None:
        """Begin a task. ``args`` are Celery's (name, id, request, body, content type, encoding)."""
        if args[0] != TASK_NAME:
            self._others.submit(apply_target, target, args, kwargs, callback, accept_callback)
            return
        if accept_callback is not None:
            accept_callback(os.getpid(), time.monotonic())
        started = time.monotonic()
        with self._idle:
            self._busy += 1
        self._begin(args).add_done_callback(lambda future: self._finish(future, callback, started))

    def _begin(self, args: Any) -> Future[str]:
        """Start the attempt that a message names; one that names none has failed already."""
        try:
            body: Any = loads(args[3], args[4], args[5], accept={"application/json"})
            app: Any = self.app
            begun: Future[str] = app.tasks[TASK_NAME].start(Attempt.from_message(body[1]))
        except Exception as error:
            log.exception("message_unreadable", id=str(args[1])[:200])
            begun = Future()
            begun.set_exception(error)
        return begun

    def on_stop(self) -> None:
        """Wait for what is in hand; the engine's grace period bounds how long that takes."""
        with self._idle:
            self._idle.wait_for(lambda: self._busy == 0)
        self._others.shutdown(cancel_futures=True)

    def _finish(self, future: Future[str], callback: Callable[[Any], None] | None, started: float) -> None:
        try:
            if callback is not None:
                callback(_result(future, time.monotonic() - started))
        finally:
            with self._idle:
                self._busy -= 1
                self._idle.notify_all()


def _result(future: Future[str], runtime: float) -> tuple[int, Any, float]:
    """Celery's (failed, value or exception, seconds). Only a defect of ours makes an attempt raise."""
    error = None if future.cancelled() else future.exception()
    if error is None:
        return 0, None if future.cancelled() else future.result(), runtime
    return 1, ExceptionInfo((type(error), error, error.__traceback__)), runtime
