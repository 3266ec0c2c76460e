"""Calls functions under a lane: each call is an item of a run, and its record has what it returned."""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, TypedDict, Unpack

from fairlane.client.handles import Unsent
from fairlane.client.outputs import Run
from fairlane.core.errors import CallFailed, SubmissionError
from fairlane.datasets.values import plain, remedy_for
from fairlane.model.decision import RetryPolicy
from fairlane.model.evaluators import FUNCTION, FUNCTION_REMEDY
from fairlane.model.job import JobState
from fairlane.model.record import Record
from fairlane.why.waiting import Waiting

Arguments: TypeAlias = tuple[Sequence[Any], Mapping[str, Any]]

_FUNCTION = re.compile(FUNCTION)
_REMEDY = (
    "Arguments travel as JSON: texts, finite numbers, booleans, None, lists, dicts, and what becomes one of "
    "these: dates, decimals, UUIDs, paths, enums, data classes, NumPy values."
)


class CallOptions(TypedDict, total=False):
    """How a function is called. ``lane`` names the budget that it shares with all calls of that lane, else it
    has one of its own. An attempt takes ``timeout`` seconds at most, and starts ``start_in`` seconds from now
    at the earliest. ``retry`` bounds the attempts, ``priority`` (-100 to 100) ranks it among the team's runs.
    """

    lane: str | None
    timeout: float | None
    retry: RetryPolicy | None
    priority: int
    start_in: float


class Submits(Protocol):
    """The part of `Client` that calls need."""

    def submit(self, *args: Any, **options: Any) -> Run:
        """As `Client.submit`."""
        ...


class _Calls(Unsent):
    """Calls that are the items of a run. They run without this object."""

    def __init__(self, run: Run) -> None:
        self._run = run

    @property
    def id(self) -> str:
        """The id of the run whose items the calls are."""
        return self._run.id

    @property
    def run(self) -> Run:
        """The run whose items the calls are: look, wait, cancel."""
        return self._run

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id}: {self._run.name}>"

    def cancel(self) -> None:
        """Ask the scheduler to cancel the unfinished calls, and return at once."""
        self._run.cancel()


class CallHandle(_Calls):
    """One call."""

    def done(self) -> bool:
        """Whether the call has ended, successfully or not. Raises `StoreUnavailable`."""
        return self._run.status().state.finished

    def result(self, timeout: float | None = None) -> Any:
        """Wait for the call, and return its value as JSON represents it.

        Raises `CallFailed` where it failed, `RunTimeout` after ``timeout`` seconds (the call goes on), and
        `SubmissionError` where the scheduler refused it.
        """
        self._run.wait(timeout=timeout)
        (record,) = self._run.results()
        return _returned(self.id, record)

    def why(self) -> Waiting:
        """Why the call waits, and about when it starts."""
        return self._run.why(0)


class CallMap(_Calls):
    """Many calls of one function: one run, whose items they are."""

    def results(self, timeout: float | None = None, *, return_exceptions: bool = False) -> list[Any]:
        """Wait for all calls, and return their values in order.

        Raises the first call's `CallFailed` that has no result; with ``return_exceptions`` it is in the list
        instead. Raises `RunTimeout` after ``timeout`` seconds; the calls go on.
        """
        self._run.wait(timeout=timeout)
        found: list[Any] = []
        for record in self._run.results():
            result = self.result_of(record)
            if isinstance(result, CallFailed) and not return_exceptions:
                raise result
            found.append(result)
        return found

    def stream(self) -> Iterator[tuple[int, Any]]:
        """``(number, result)`` of each call as it ends, a `CallFailed` in place of a missing result."""
        return map(self.numbered, self._run.stream())

    def numbered(self, record: Record) -> tuple[int, Any]:
        """The number of this record's call, and `result_of` it."""
        return record.item, self.result_of(record)

    def result_of(self, record: Record) -> Any:
        """What the call of this record returned; a `CallFailed` where it has no result."""
        try:
            return _returned(f"{self.id}/{record.item}", record)
        except CallFailed as failed:
            return failed


def submit_call(
    client: Submits,
    name: str,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    **options: Unpack[CallOptions],
) -> CallHandle:
    """Call a function or a Celery task on a worker once its lane allows; returns at once.

    Arguments arrive as JSON: a date as its ISO 8601 text, a `Decimal` as its digits, a data class as a dict.

    ``name`` is ``"my_app.tasks.fetch"`` or ``"my_app.tasks:fetch"``. `CallOptions` lists the options. Raises
    `SubmissionError`, `StoreUnavailable`.
    """
    _require_options(submit_call, options)
    return CallHandle(_submit(client, name, [(args, kwargs or {})], options))


def submit_calls(
    client: Submits, name: str, calls: Sequence[Arguments], **options: Unpack[CallOptions]
) -> CallMap:
    """`submit_call` for each ``(args, kwargs)`` of ``calls``, as one run. There may be none."""
    _require_options(submit_calls, options)
    return CallMap(_submit(client, name, calls, options))


def _require_options(function: Callable[..., Any], options: Mapping[str, Any]) -> None:
    """Raise `TypeError` as Python does for ``function`` where an option is none of `CallOptions`."""
    for name in sorted(options.keys() - CallOptions.__optional_keys__):
        raise TypeError(f"{function.__name__}() got an unexpected keyword argument {name!r}")


def _submit(client: Submits, name: str, calls: Sequence[Arguments], options: CallOptions) -> Run:
    if not isinstance(name, str) or not _FUNCTION.fullmatch(name):
        raise SubmissionError("name", name, "names no function", FUNCTION_REMEDY)
    rows = [_row(number, call) for number, call in enumerate(calls)]
    given: dict[str, Any] = {"lane": None, "timeout": None, "retry": None, "priority": 0, **options}
    if not given.get("start_in"):
        given.pop("start_in", None)
    if not rows:
        given["check"] = False  # a run without items, which is over at once
    return client.submit(rows, task=name, name=f"call {name}"[:200], **given)


def _row(number: int, call: object) -> dict[str, Any]:
    """The row of a call, as the worker's functions read it."""
    if not isinstance(call, Sequence) or isinstance(call, str | bytes) or len(call) != 2:
        raise SubmissionError(f"calls[{number}]", call, "is no call", "Give (args, kwargs).")
    args, kwargs = call
    if not isinstance(args, Sequence) or isinstance(args, str | bytes):
        raise SubmissionError("args", args, "is no list of arguments", "Give a list or a tuple.")
    if not isinstance(kwargs, Mapping):
        raise SubmissionError("kwargs", kwargs, "is no dict of arguments", "Give a dict.")
    if not all(isinstance(key, str) for key in kwargs):
        raise SubmissionError("kwargs", kwargs, "has a name that is no text", "Use texts as names.")
    try:
        given = plain({"args": [*args], "kwargs": {**kwargs}})
        row: dict[str, Any] = json.loads(json.dumps(given, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise SubmissionError("args, kwargs", call, f"is not JSON: {error}", _remedy(args, kwargs)) from None
    return row


def _remedy(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    return next((found for value in (*args, *kwargs.values()) if (found := remedy_for(value))), _REMEDY)


def _returned(call: str, record: Record) -> Any:
    if record.state is not JobState.SUCCEEDED or record.output is None:
        raise CallFailed(call, record.error or str(record.state), record.attempts)
    return json.loads(record.output)
