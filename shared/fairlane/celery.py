"""A decorator for a Celery application's tasks: what is sent of them goes through Fairlane, under a lane."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from celery import Celery, Task

from fairlane.client.calls import Arguments, CallHandle, CallMap, submit_call, submit_calls
from fairlane.client.client import Client
from fairlane.core.errors import SubmissionError
from fairlane.model.decision import RetryPolicy

_CLIENT = "_fairlane_client"


class LimitedTask:
    """A task whose `delay` and `apply_async` are calls of a lane. Calling it runs it here and now."""

    def __init__(
        self,
        task: Task,
        client: Callable[[], Client],
        lane: str,
        timeout: float | None = None,
        retry: RetryPolicy | None = None,
        priority: int = 0,
    ) -> None:
        """Made by `limited`."""
        functools.update_wrapper(self, task, updated=())
        self.task, self.lane = task, lane
        self._client, self._timeout, self._retry, self._priority = client, timeout, retry, priority

    @property
    def name(self) -> str:
        """The task's name in its application."""
        return str(self.task.name)

    def __repr__(self) -> str:
        return f"<LimitedTask {self.name} on {self.lane}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the task here and now, without a lane."""
        return self.task(*args, **kwargs)

    def delay(self, *args: Any, **kwargs: Any) -> CallHandle:
        """Call it on a worker once its lane allows. Raises `SubmissionError`, `StoreUnavailable`."""
        return self.apply_async(args, kwargs)

    def apply_async(
        self,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        *,
        priority: int | None = None,
        **options: Any,
    ) -> CallHandle:
        """`delay`, with a priority from -100 to 100 among the team's own.

        Celery's other options say where and when a message is delivered, which the lane decides here: one
        that is not ``None`` raises `SubmissionError`.
        """
        for option, value in options.items():
            if value is not None:
                problem = f"{self.name} goes through Fairlane, which decides when and where it runs"
                remedy = f"Leave it out, or send the task itself: {self.task.__name__}.task.apply_async(…)."
                raise SubmissionError(option, value, problem, remedy)
        return submit_call(
            self._client(),
            self.name,
            list(args or ()),
            dict(kwargs or {}),
            lane=self.lane,
            timeout=self._timeout,
            retry=self._retry,
            priority=self._priority if priority is None else priority,
        )

    def map(self, calls: Sequence[Arguments]) -> CallMap:
        """Call it with each ``(args, kwargs)``: one run, which costs less than as many calls."""
        return submit_calls(
            self._client(),
            self.name,
            calls,
            lane=self.lane,
            timeout=self._timeout,
            retry=self._retry,
            priority=self._priority,
        )


def limited(
    app_or_client: Celery | Client,
    *,
    lane: str,
    timeout: float | None = None,
    retry: RetryPolicy | None = None,
    priority: int = 0,
) -> Callable[[Any], LimitedTask]:
    """Decorates a Celery task so that what is sent of it is dispatched under ``lane``.

    All that names this lane shares its budget, on however many workers. With a Celery application instead
    of a client, one is opened at the first call, as `Client()` is configured; a plain function becomes a
    task of it first. ``timeout`` is seconds that one attempt may take.
    """
    client = app_or_client

    def decorate(task: Any) -> LimitedTask:
        if not isinstance(task, Task):
            if isinstance(client, Client):
                remedy = "Put @limited above @app.task, or give the application instead of a client."
                raise SubmissionError("limited", task, "is no Celery task", remedy)
            task = client.task(shared=False)(task)
        return LimitedTask(task, functools.partial(_client_of, client), lane, timeout, retry, priority)

    return decorate


def _client_of(app_or_client: Any) -> Client:
    """The client itself, or the application's one."""
    if isinstance(app_or_client, Client):
        return app_or_client
    known: dict[str, Any] = vars(app_or_client)
    if _CLIENT not in known:
        known.setdefault(_CLIENT, Client())
    found: Client = known[_CLIENT]
    return found
