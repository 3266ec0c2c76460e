"""A decorator for a Celery application's tasks: what is sent of them goes through Fairlane, under a lane.

``delay`` and ``apply_async`` send a call at once. In a canvas (``s``, ``si``: chains, groups, chords) Celery
delivers a relay, a task of the same application. The relay sends the call and polls for its result.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, cast

from celery import Celery, Task, states
from celery.canvas import Signature
from celery.exceptions import TimeoutError as CeleryTimeoutError

from fairlane.client.calls import Arguments, CallHandle, CallMap
from fairlane.client.client import Client
from fairlane.core.errors import CallFailed, RunTimeout, StoreUnavailable, SubmissionError
from fairlane.model.decision import RetryPolicy
from fairlane.model.job import JobState
from fairlane.model.run import RunState

_CLIENT = "_fairlane_client"

_RUN = "fairlane_run"  # the header in which a relay keeps the run of its call from look to look
_FIRST_LOOK_S, _LAST_LOOK_S = 0.2, 5.0
_GROWTH = 1.5  # so that a relay looks at most half as long again as its call takes, or 5 s


class _CallTimeoutError(RunTimeout, CeleryTimeoutError):  # type: ignore[misc]
    """``get(timeout=…)`` gave up; the call itself continues. Code that waits for Celery catches it, too."""


class LimitedResult(CallHandle):
    """A call of a limited task, with the words of Celery's ``AsyncResult``."""

    def get(
        self,
        timeout: float | None = None,
        propagate: bool = True,
        interval: float = 0.5,
        no_ack: bool = True,
        follow_parents: bool = True,
        *,
        disable_sync_subtasks: bool = True,
    ) -> Any:
        """What the task returned; waits for it. Raises what `result` does; a `RunTimeout` is Celery's, too.

        Without ``propagate`` a `CallFailed` is returned instead of raised. The other arguments are Celery's
        and change nothing here.
        """
        try:
            return self.result(timeout)
        except CallFailed as failed:
            if propagate:
                raise
            return failed
        except RunTimeout as error:
            raise _CallTimeoutError(error.run_id, error.timeout) from None

    wait = get

    @property
    def task_id(self) -> str:
        """The id of the run that it is, with which `LimitedTask.find` finds the call again."""
        return self.id

    @property
    def state(self) -> str:
        """Celery's word: PENDING, STARTED, SUCCESS, FAILURE, or REVOKED once it was cancelled."""
        status = self._run.status()
        if not status.state.finished:
            return str(states.STARTED if status.in_flight else states.PENDING)
        if status.state is RunState.CANCELLED:
            return str(states.REVOKED)
        return str(states.SUCCESS if status.by_state.get(JobState.SUCCEEDED) else states.FAILURE)

    status = state

    @property
    def traceback(self) -> str | None:
        """The error's text where it failed; the traceback itself is in the worker's log."""
        failed = self.get(propagate=False) if self.done() else None
        return str(failed) if isinstance(failed, CallFailed) else None

    def ready(self) -> bool:
        """Whether it is over, one way or another."""
        return self.done()

    def successful(self) -> bool:
        """Whether it is over and has a result."""
        return self.done() and not isinstance(self.get(propagate=False), CallFailed)

    def failed(self) -> bool:
        """Whether it is over and has no result."""
        return self.done() and isinstance(self.get(propagate=False), CallFailed)

    def revoke(self, *_: Any, **__: Any) -> None:
        """`cancel`; Celery's arguments, such as ``terminate``, change nothing: a call in flight is ended."""
        self.cancel()

    def forget(self) -> None:
        """Nothing: results expire by themselves."""


class LimitedTask:
    """A task whose `delay` and `apply_async` are calls of a lane. Calling it runs it here and now.

    `s`, `si` and `signature` are steps of a canvas, whose calls go through the lane, too.
    """

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
        self._client, self._priority = client, priority
        self._options: dict[str, Any] = {"lane": lane, "timeout": timeout, "retry": retry}
        self.relay = _relay_of(self)

    @property
    def name(self) -> str:
        """The task's name in its application."""
        return str(self.task.name)

    def __repr__(self) -> str:
        return f"<LimitedTask {self.name} on {self.lane}>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the task here and now, without a lane."""
        return self.task(*args, **kwargs)

    def s(self, *args: Any, **kwargs: Any) -> Signature:
        """A step of a chain, group or chord; in a chain it also gets the result before it."""
        return self.signature(args, kwargs)

    def si(self, *args: Any, **kwargs: Any) -> Signature:
        """`s` that takes no result of the step before it."""
        return self.signature(args, kwargs, immutable=True)

    def signature(
        self, args: Sequence[Any] | None = None, kwargs: Mapping[str, Any] | None = None, **options: Any
    ) -> Signature:
        """`s` with Celery's options, such as ``link``, ``countdown`` and ``queue``.

        They concern its relay: where Celery delivers it, and what follows it.
        """
        made: Any = self.relay.signature(tuple(args or ()), dict(kwargs or {}), **options)
        return cast(Signature, made)

    subtask = signature

    def delay(self, *args: Any, **kwargs: Any) -> LimitedResult:
        """Call it on a worker once its lane allows. Raises `SubmissionError`, `StoreUnavailable`."""
        return self.apply_async(args, kwargs)

    def apply_async(
        self,
        args: Sequence[Any] | None = None,
        kwargs: Mapping[str, Any] | None = None,
        *,
        priority: int | None = None,
        countdown: float | None = None,
        eta: datetime | None = None,
        **options: Any,
    ) -> LimitedResult:
        """`delay`, with a priority from -100 to 100 among the team's own.

        It starts ``countdown`` seconds from now, or at ``eta``, at the earliest, once its lane allows.
        Celery's other options say where a message is delivered and what follows it: one that is not ``None``
        raises `SubmissionError`.
        """
        for option, value in options.items():
            if value is not None:
                problem = f"{self.name} goes through Fairlane, which decides when and where it runs"
                canvas = f"{self.task.__name__}.s(…).apply_async(…)"
                remedy = f"Leave it out, or have Celery deliver it: {canvas}."
                raise SubmissionError(option, value, problem, remedy)
        handle = self._client().call(
            self.name,
            list(args or ()),
            dict(kwargs or {}),
            priority=self._priority if priority is None else priority,
            start_in=_start_in(countdown, eta),
            **self._options,
        )
        return LimitedResult(handle.run)

    def apply(
        self, args: Sequence[Any] | None = None, kwargs: Mapping[str, Any] | None = None, **options: Any
    ) -> Any:
        """Call the task here and now, without a lane, as Celery's ``apply`` does."""
        return self.task.apply(tuple(args or ()), dict(kwargs or {}), **options)

    def AsyncResult(self, task_id: str) -> LimitedResult:  # noqa: N802 - Celery's name
        """`find`, under Celery's name."""
        return self.find(task_id)

    def find(self, run_id: str) -> LimitedResult:
        """The call whose run has that id. Raises `RunNotFound`."""
        return LimitedResult(self._client().run(run_id))

    def map(self, calls: Sequence[Arguments]) -> CallMap:
        """Call it with each ``(args, kwargs)``: one run, which costs less than as many calls."""
        return self._client().map(self.name, calls, priority=self._priority, **self._options)


def _start_in(countdown: float | None, eta: datetime | None) -> float:
    """Seconds from now; 0 where neither is given or it has passed."""
    if eta is None:
        return countdown or 0
    if countdown is not None:
        raise SubmissionError("eta", eta, "countdown is given, too", "Give one of them.")
    if not isinstance(eta, datetime):
        raise SubmissionError("eta", eta, "is no datetime", "Give one with a time zone.")
    moment = eta if eta.tzinfo is not None else eta.replace(tzinfo=UTC)  # as Celery reads one, by default
    return max(0.0, (moment - datetime.now(UTC)).total_seconds())


def _relay_of(limited_task: LimitedTask) -> Task:
    """The task of the same application that stands for the call in a canvas; one for each task and lane."""
    task = limited_task.task
    name = f"{task.name}@{limited_task.lane}"
    if name in task.app.tasks:
        known: Task = task.app.tasks[name]
        return known

    def relay(self: Task, *args: Any, **kwargs: Any) -> Any:
        if self.request.is_eager:
            return limited_task(*args, **kwargs)
        return _looked_at(self, limited_task, args, kwargs)

    made = task.app.task(
        relay,
        bind=True,
        shared=False,
        name=name,
        max_retries=None,
        ignore_result=task.ignore_result,
        serializer=task.serializer,
        typing=False,
        throws=(CallFailed,),
        relays=True,
    )
    made.__doc__ = task.__doc__
    return made


def _looked_at(relay: Task, task: LimitedTask, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The call's result; a retry of the relay while there is none. No worker waits meanwhile."""
    headers = dict(relay.request.headers or {})
    looks = relay.request.retries or 0
    pause_s = min(_LAST_LOOK_S, _FIRST_LOOK_S * _GROWTH**looks)
    try:
        if _RUN in headers:
            call = task.find(headers[_RUN])
        else:
            call = task.apply_async(args, kwargs)
            headers[_RUN] = call.id
        if call.done():
            return call.get()
    except StoreUnavailable:
        pause_s = _LAST_LOOK_S
    raise relay.retry(countdown=pause_s, headers=headers, throw=False)


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
    of a client, a client is opened at the first call, as `Client()` is configured. A plain function becomes
    a task of that application. ``timeout`` is seconds that one attempt may take.
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
