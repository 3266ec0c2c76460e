"""The provider of the connection ``python``: calls users' functions, with outcomes like any other."""

import asyncio
import inspect
import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from celery import Task
from celery.exceptions import Retry
from pydantic_core import to_jsonable_python

from fairlane.core.clock import Clock
from fairlane.core.daemon_threads import DaemonThreads, NoThread
from fairlane.core.errors import FunctionMismatch, FunctionNotFound
from fairlane.core.errors import RateLimited as FunctionRateLimited
from fairlane.core.events import Event
from fairlane.evaluators.client_side import text_of
from fairlane.model.evaluators import read_score
from fairlane.model.outcome import (
    Aborted,
    FlawedAnswer,
    NetworkFailure,
    Outcome,
    Overloaded,
    PermanentFailure,
    RateLimited,
    Success,
    TimedOut,
)
from fairlane.telemetry.logs import get_logger
from fairlane_workers.functions.arguments import bind, is_call, is_scoring
from fairlane_workers.functions.catalog import Catalog
from fairlane_workers.functions.nested_retries import without_nested_retries
from fairlane_workers.providers.answers.classify import passing
from fairlane_workers.providers.contract import Deadline, OnChunk, Request
from fairlane_workers.providers.errors.content import rejects_content
from fairlane_workers.providers.errors.groups import leaves, outcome_of_group
from fairlane_workers.providers.errors.rate_limit_names import TOO_MANY_REQUESTS
from fairlane_workers.providers.errors.server_state import is_doubtful, lacks_capacity
from fairlane_workers.providers.errors.throttling import (
    http_status,
    is_late,
    is_lost,
    named_wait_ms,
    service_error,
    telling,
    throttled,
)
from fairlane_workers.providers.errors.wording import bounded
from fairlane_workers.transport import SHORTAGE

log = get_logger("functions")

Elsewhere = Callable[[str, str], Awaitable[bool]]
"""Tells whether another worker runs the function of that name, on that lane."""


@dataclass(frozen=True, slots=True)
class _Raised:
    """An exception that a function raised."""

    error: BaseException


class _HoldsError(Exception):
    """A result holds an exception, as ``gather(…, return_exceptions=True)`` returns them."""

    def __init__(self, error: BaseException) -> None:
        super().__init__()
        self.error = error


class FunctionProvider:
    """A `Provider` of functions: async ones run on the worker's loop, the others on ``slots`` threads."""

    def __init__(self, catalog: Catalog, *, slots: int, clock: Clock, elsewhere: Elsewhere) -> None:
        self._catalog, self._clock, self._elsewhere = catalog, clock, elsewhere
        self._threads = DaemonThreads(slots, "fairlane-function")
        self._known: dict[str, Callable[..., Any]] = {}
        self._running = set[asyncio.Task[Any]]()
        self._closed = False

    async def call(self, request: Request, on_chunk: OnChunk | None = None) -> Outcome:
        """See `Provider.call`. The result of a function is one chunk."""
        if self._closed:
            return NetworkFailure("the worker stops")
        request.leave()
        deadline = Deadline(request.timeout_s)
        try:
            async with deadline:
                outcome = await self._outcome(request)
                if isinstance(outcome, Success) and on_chunk is not None:
                    await on_chunk(outcome.output)
                return outcome
        except NoThread as shortage:
            return Aborted(f"{SHORTAGE}{shortage}")
        except TimeoutError:
            if not deadline.expired():
                raise  # on_chunk's own
            message = f"{request.model} did not return within {request.timeout_s:g} s"
            return TimedOut(message, deadline_ms=round(request.timeout_s * 1000))

    async def prepare(self) -> None:
        """See `Provider.prepare`. The modules are imported when the process starts."""

    async def aclose(self) -> None:
        """See `Provider.aclose`. A function that blocks keeps its thread until the process ends."""
        self._closed = True
        self._threads.close()

    async def _outcome(self, request: Request) -> Outcome:
        arguments = request.arguments or {}
        try:
            function = await self._find(request.model)
            bound = bind(function, arguments)
        except FunctionNotFound as missing:
            if not missing.claimed and await self._elsewhere(request.model, request.lane):
                return Aborted(str(missing))
            return PermanentFailure(bounded(str(missing)))
        except FunctionMismatch as unfit:
            return PermanentFailure(bounded(f"{request.model}: {unfit}"))
        returned = await self._run(bound)
        if not isinstance(returned, _Raised):
            try:
                return _written(returned, arguments, request.max_response_bytes)
            except _HoldsError as held:
                returned = _Raised(held.error)
        fields: dict[str, Any] = {"function": request.model, "lane": request.lane}
        log.warning(Event.FUNCTION_RAISED, **fields, exc_info=returned.error)
        return self._of_error(function, returned.error)

    async def _find(self, name: str) -> Callable[..., Any]:
        found = self._known.get(name)
        if found is None:
            found = self._known[name] = await self._threads.run(partial(self._catalog.find, name))
        return found

    async def _run(self, bound: partial[Any]) -> Any:
        """The function's result, or `_Raised`. A cancelled caller does not wait for the function to end."""
        running = asyncio.create_task(self._returned(bound))
        self._running.add(running)
        running.add_done_callback(self._running.discard)
        try:
            await asyncio.wait({running})
        except asyncio.CancelledError:
            running.cancel()
            raise
        return running.result()

    async def _returned(self, bound: partial[Any]) -> Any:
        """In a task of its own: a function may cancel that, and ignore that it is cancelled."""
        try:
            with without_nested_retries():
                returned = bound() if _is_async(bound.func) else await self._threads.run(bound)
                return await returned if inspect.isawaitable(returned) else returned
        except NoThread:
            raise
        except BaseException as error:  # noqa: BLE001 - a user's function may raise anything
            return _Raised(error)

    def _of_error(self, function: Callable[..., Any], error: BaseException) -> Outcome:
        again = _retries_itself(function, error)

        def outcome_of(leaf: BaseException) -> Outcome:
            return self._of_leaf(leaf, retried=again or _retries_itself(function, leaf))

        return outcome_of_group(leaves(error), outcome_of)

    def _of_leaf(self, error: BaseException, *, retried: bool) -> Outcome:
        told = telling(error)
        message = _message(error, told)
        if isinstance(error, FunctionRateLimited):
            return RateLimited(message, retry_after_ms=error.retry_after_ms)
        status, said = http_status(told), service_error(told)
        wait_ms = named_wait_ms(told, self._clock.now_ms())
        if status == TOO_MANY_REQUESTS and lacks_capacity(said):
            return Overloaded(message, status, wait_ms)
        if (limit := throttled(error, self._clock.now_ms())) is not None:
            return RateLimited(message, TOO_MANY_REQUESTS, limit.retry_after_ms)
        if status is not None and (outcome := passing(said, status, message, wait_ms)) is not None:
            return outcome
        if status is None and is_late(told):
            return TimedOut(message)
        if status is None and is_lost(told):  # urllib's errors of an answer are OSErrors, too
            return NetworkFailure(message)
        if isinstance(error, Retry) or retried:
            return FlawedAnswer(message)
        may_pass = status is not None and is_doubtful(said, status) and not rejects_content(said)
        return PermanentFailure(message, doubtful=may_pass)


def _message(error: BaseException, told: BaseException) -> str:
    """The error's type and text, with those of the one behind it where it does not quote that."""
    message, behind = f"{type(error).__name__}: {text_of(error)}", text_of(told)
    return bounded(message if behind in message else f"{message}, from {type(told).__name__}: {behind}")


def _is_async(function: Callable[..., Any]) -> bool:
    target: Any = function.run if isinstance(function, Task) else function
    return inspect.iscoroutinefunction(target) or inspect.iscoroutinefunction(type(target).__call__)


def _retries_itself(function: Callable[..., Any], error: BaseException) -> bool:
    """Whether a Celery task names this kind of error in its ``autoretry_for``."""
    kinds = getattr(function, "autoretry_for", None) if isinstance(function, Task) else None
    return bool(kinds) and isinstance(error, tuple(kinds or ()))


def _written(returned: Any, arguments: Mapping[str, Any], most_bytes: int) -> Outcome:
    """The result as text: a task's text unchanged, everything else as JSON. May raise `_HoldsError`."""
    scoring = is_scoring(arguments)
    is_task = not scoring and not is_call(arguments)
    if returned is None and is_task:
        return PermanentFailure('the task returned None: return its output, or "" for an empty one')
    try:
        if isinstance(returned, str) and is_task:
            output = returned
        else:
            output = json.dumps(
                returned, ensure_ascii=False, allow_nan=scoring, default=_plain, separators=(",", ":")
            )
    except _HoldsError:
        raise
    except Exception as error:  # noqa: BLE001 - the value's own methods may raise anything
        kind = type(returned).__name__
        why = f"{type(error).__name__}: {text_of(error)}"
        remedy = "Return texts, numbers, lists, dicts or models."
        return PermanentFailure(
            bounded(f"the function returned a {kind}, which is not JSON: {why}. {remedy}")
        )
    if scoring and (problem := _unscored(output)) is not None:
        return PermanentFailure(bounded(problem))
    size = len(output.encode(errors="surrogatepass"))
    if size > most_bytes:
        return PermanentFailure(f"the result has {size} bytes, worker.max_response_bytes is {most_bytes}")
    return Success(output)


def _unscored(output: str) -> str | None:
    """Why this is no score."""
    try:
        read_score(output)
    except ValueError as error:
        return str(error)
    except OverflowError:
        return "a score is a finite number, the function returned one beyond any float"
    return None


def _plain(value: Any) -> Any:
    """A JSON value for one that JSON lacks: a number or an array of an array library, a model, a date.

    Raises `_HoldsError` for an exception.
    """
    if isinstance(value, BaseException):
        raise _HoldsError(value)
    item, listed = getattr(value, "item", None), getattr(value, "tolist", None)
    if callable(item) and getattr(value, "shape", None) == ():
        return item()
    if callable(listed):
        return listed()
    return to_jsonable_python(value)
