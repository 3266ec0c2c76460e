"""Calls of functions: what they return and raise becomes an outcome."""

from __future__ import annotations

import asyncio
import io
import threading
import urllib.error
from array import array
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import timedelta
from email.message import Message
from enum import Enum
from itertools import pairwise
from typing import Any

import httpx
import pytest
from celery import Celery
from structlog.testing import capture_logs

from fairlane.core.clock import ManualClock
from fairlane.core.errors import FunctionNotFound
from fairlane.core.errors import RateLimited as SlowDown
from fairlane.model.outcome import (
    Aborted,
    FlawedAnswer,
    NetworkFailure,
    Outcome,
    Overloaded,
    PermanentFailure,
    RateLimited,
    ServerError,
    Success,
    TimedOut,
)
from fairlane_workers.providers.contract import Request
from fairlane_workers.providers.functions import FunctionProvider
from fairlane_workers.transport.pause import sleep

TASK = {"row": {"text": "Hi"}, "params": {}}
SCORE = {"output": "Hi", "row": {}}
OUT_OF_TIME = TimedOut("m:f did not return within 0.01 s", deadline_ms=10)
CALL = {"row": {"args": [], "kwargs": {}}, "params": {}}
REQUEST = Request("m:f", [], {}, False, 30.0, 1000, TASK, "python:m:f")


class One:
    """A catalog of one function."""

    def __init__(self, function: Any) -> None:
        self._function = function

    def find(self, name: str) -> Callable[..., Any]:
        if isinstance(self._function, Exception):
            raise self._function
        found: Callable[..., Any] = self._function
        return found


async def made(
    function: Any, arguments: dict[str, Any] | None = None, *, elsewhere: bool = False, **request: Any
) -> Outcome:
    asked: list[tuple[str, str]] = []

    async def other(name: str, lane: str) -> bool:
        asked.append((name, lane))
        return elsewhere

    provider = FunctionProvider(One(function), slots=2, clock=ManualClock(), elsewhere=other)
    try:
        return await provider.call(replace(REQUEST, arguments=arguments or TASK, **request))
    finally:
        await provider.aclose()
        assert asked in ([], [("m:f", "python:m:f")])


def outcome(function: Any, arguments: dict[str, Any] | None = None, **request: Any) -> Outcome:
    return asyncio.run(made(function, arguments, **request))


def raising(error: BaseException) -> Callable[[Any], None]:
    def fail(row: Any) -> None:
        raise error

    return fail


def async_raising(error: BaseException) -> Callable[[Any], Any]:
    async def fail(row: Any) -> None:
        raise error

    return fail


async def awaited(row: Any) -> str:
    return f"{row['text']} on {threading.current_thread().name}"


def test_a_function_that_blocks_runs_off_the_loop_and_an_async_one_on_it() -> None:
    here = threading.current_thread().name

    assert outcome(awaited) == Success(f"Hi on {here}")
    assert outcome(lambda row: threading.current_thread().name) == Success("fairlane-function")


def test_a_callable_object_and_a_function_that_returns_an_awaitable_are_awaited() -> None:
    class Speaker:
        async def __call__(self, row: Any) -> str:
            return await awaited(row)

    here = threading.current_thread().name
    assert outcome(Speaker()) == Success(f"Hi on {here}")
    assert outcome(lambda row: awaited(row)) == Success(f"Hi on {here}")


@dataclass
class Answer:
    text: str


@pytest.mark.parametrize(
    ("returned", "output"),
    [
        ("as it is", "as it is"),
        ({"a": [1, None, "ü"]}, '{"a":[1,null,"ü"]}'),
        (Answer("dataclass"), '{"text":"dataclass"}'),
        (timedelta(seconds=90), '"PT1M30S"'),
        ({"vectors": [array("d", [0.5, 1.5])]}, '{"vectors":[[0.5,1.5]]}'),
        (array("i"), "[]"),
    ],
)
def test_a_tasks_text_is_its_output_and_all_else_as_json(returned: Any, output: str) -> None:
    assert outcome(lambda row: returned) == Success(output)


def test_a_task_that_forgets_to_return_its_output_fails() -> None:
    failed = outcome(lambda row: None)
    assert isinstance(failed, PermanentFailure)
    assert failed.message == 'the task returned None: return its output, or "" for an empty one'
    assert outcome(lambda row: "") == Success("")


@pytest.mark.parametrize(("returned", "output"), [("text", '"text"'), ("5", '"5"'), (5, "5"), (None, "null")])
def test_what_a_call_returns_is_json_so_that_a_text_stays_one(returned: Any, output: str) -> None:
    assert outcome(lambda: returned, CALL) == Success(output)


class ArrayNumber:
    """As array libraries have them."""

    shape = ()

    def item(self) -> float:
        return 0.25


@pytest.mark.parametrize(
    ("returned", "output"), [(0.5, "0.5"), (True, "true"), (3, "3"), (ArrayNumber(), "0.25")]
)
def test_a_score_is_a_finite_number_or_a_truth_value(returned: Any, output: str) -> None:
    assert outcome(lambda output: returned, SCORE) == Success(output)


@pytest.mark.parametrize("returned", [float("nan"), float("inf"), "0.5", None, [1], {"score": 1}, 10**400])
def test_what_is_no_score_fails_and_says_what_was_returned(returned: Any) -> None:
    failed = outcome(lambda output: returned, SCORE)

    assert isinstance(failed, PermanentFailure)
    assert "a score is a finite number" in failed.message


@pytest.mark.parametrize("returned", [object(), float("nan"), {1, object()}])
def test_what_is_not_json_fails_and_says_so(returned: Any) -> None:
    failed = outcome(lambda row: returned)

    assert isinstance(failed, PermanentFailure)
    assert "which is not JSON" in failed.message
    assert failed.message.endswith("Return texts, numbers, lists, dicts or models.")


def test_a_result_beyond_the_bound_is_refused() -> None:
    assert outcome(lambda row: "x" * 1000) == Success("x" * 1000)
    assert outcome(lambda row: "ü" * 501) == PermanentFailure(
        "the result has 1002 bytes, worker.max_response_bytes is 1000"
    )


@pytest.mark.parametrize(
    ("given", "wait_ms"),
    [
        (1.5, 1500),
        (timedelta(seconds=2), 2000),
        (0, 0),
        (None, None),
        (-1, None),
        (float("nan"), None),
        ("5", None),
    ],
)
@pytest.mark.parametrize("kind", [raising, async_raising])
def test_a_function_that_was_reported_to_slow_down_is_rate_limited(
    kind: Any, given: Any, wait_ms: int | None
) -> None:
    said = outcome(kind(SlowDown("calm down", retry_after=given)))

    assert said == RateLimited("RateLimited: calm down", 429, wait_ms)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (KeyError("q"), PermanentFailure("KeyError: 'q'")),
        (ValueError("bad"), PermanentFailure("ValueError: bad")),
        (FileNotFoundError(2, "no such file"), PermanentFailure("FileNotFoundError: [Errno 2] no such file")),
        (ConnectionResetError("gone"), NetworkFailure("ConnectionResetError: gone")),
        (OSError("disk"), NetworkFailure("OSError: disk")),
        (httpx.ConnectError("no route"), NetworkFailure("ConnectError: no route")),
        (httpx.ReadTimeout("slow"), TimedOut("ReadTimeout: slow")),
        (TimeoutError("its own"), TimedOut("TimeoutError: its own")),
        (SystemExit(3), PermanentFailure("SystemExit: 3")),
        (asyncio.CancelledError("its own"), PermanentFailure("CancelledError: its own")),
    ],
)
@pytest.mark.parametrize("kind", [raising, async_raising])
def test_an_exception_is_an_outcome_with_its_type_and_message(
    kind: Any, error: BaseException, expected: Outcome
) -> None:
    assert outcome(kind(error)) == expected


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (429, RateLimited("HTTPStatusError: refused", 429, 7000)),
        (503, Overloaded("HTTPStatusError: refused", 503, 7000)),
        (404, PermanentFailure("HTTPStatusError: refused", doubtful=True)),
        (403, PermanentFailure("HTTPStatusError: refused")),
    ],
)
def test_an_http_error_is_read_by_its_status(status: int, expected: Outcome) -> None:
    response = httpx.Response(status, headers={"Retry-After": "7"})
    error = httpx.HTTPStatusError("refused", request=httpx.Request("GET", "http://x"), response=response)

    assert outcome(raising(error)) == expected


@pytest.mark.parametrize(
    ("status", "said", "expected"),
    [
        (429, {"message": "Service tier capacity exceeded for this model."}, Overloaded),
        (429, {"message": "Rate limit reached for requests"}, RateLimited),
        (400, {"message": "busy", "type": "overloaded_error"}, Overloaded),
        (400, {"detail": "Function id 'a': DEGRADED function cannot be invoked"}, ServerError),
        (424, {"message": "worker died"}, ServerError),
        (400, {"message": "Content Exists Risk"}, PermanentFailure),
        (400, {"message": "bad", "code": "tool_use_failed"}, PermanentFailure),
    ],
)
def test_the_words_of_the_service_behind_a_function_are_read(
    status: int, said: dict[str, str], expected: type[Outcome]
) -> None:
    response = httpx.Response(status, json={"error": said})
    error = httpx.HTTPStatusError("rejected", request=httpx.Request("POST", "http://x"), response=response)

    found = outcome(raising(error))

    assert type(found) is expected
    if isinstance(found, PermanentFailure):
        assert found.doubtful is (said.get("code") == "tool_use_failed")


def of_aiohttp(status: int) -> Exception:
    """As `aiohttp.ClientResponseError` and Google's `GoogleAPICallError` have it: no response, a number."""
    error = RuntimeError("refused")
    error.status = status  # type: ignore[attr-defined]
    return error


def of_urllib(status: int) -> Exception:
    error = urllib.error.HTTPError("http://x", status, "refused", Message(), io.BytesIO())
    error.close()
    return error


def of_botocore(status: int) -> Exception:
    error = RuntimeError("refused")
    response = {"Error": {"Code": "x"}, "ResponseMetadata": {"HTTPStatusCode": status}}
    error.response = response  # type: ignore[attr-defined]
    return error


def named(name: str, *causes: BaseException, **attributes: Any) -> BaseException:
    """An error of a library's class ``name``, raised from the first of ``causes``, that from the second …"""
    error: BaseException = type(name, (Exception,), attributes)("it failed")
    for outer, cause in pairwise([error, *causes]):
        outer.__cause__ = cause
    return error


class Code(Enum):
    """As `grpc.StatusCode`."""

    UNAVAILABLE = 14
    DEADLINE_EXCEEDED = 4
    RESOURCE_EXHAUSTED = 8
    INVALID_ARGUMENT = 3


def of_grpc(code: Code) -> Exception:
    """As `grpc.aio.AioRpcError`: its code is a method."""
    rpc_error = type("RpcError", (Exception,), {})
    return type("AioRpcError", (rpc_error,), {"code": lambda _: code})("it failed")  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        *((named(name), NetworkFailure) for name in (
            *("APIConnectionError", "EndpointConnectionError", "ServerDisconnectedError"),
            *("ConnectionClosedError", "ProtocolError", "IncompleteRead", "ConnectionFailure"),
            "RayTaskError(APIConnectionError)",
        )),
        *((named(name), TimedOut) for name in (
            "APITimeoutError", "ReadTimeoutError", "Timeout", "DeadlineExceeded", "TimeoutException",
        )),
        *((named(name), PermanentFailure) for name in (
            *("PipelineConnectError", "ConnectionConfigError", "NoSuchConnection"),
            *("UnsupportedProtocol", "AuthenticationError"),
        )),
        (named("APITimeoutError", status_code=400), PermanentFailure),
        (named("LibraryError", of_aiohttp(503)), Overloaded),
        (named("LibraryError", of_aiohttp(529)), Overloaded),
        (named("LibraryError", of_aiohttp(500)), ServerError),
        (named("LibraryError", of_aiohttp(504)), TimedOut),
        (named("LibraryError", of_aiohttp(404)), PermanentFailure),
        (named("LibraryError", httpx.ReadTimeout("slow")), TimedOut),
        (named("LibraryError", RuntimeError("wrapped"), ConnectionResetError("gone")), NetworkFailure),
        (named("LibraryError", named("APIConnectionError")), NetworkFailure),
        (named("LibraryError", ExceptionGroup("g", [of_aiohttp(503), of_aiohttp(503)])), Overloaded),
        (named("LibraryError", ExceptionGroup("g", [of_aiohttp(503), of_aiohttp(400)])), PermanentFailure),
        (named("LibraryError", ExceptionGroup("g", [of_aiohttp(503), KeyError("q")])), PermanentFailure),
        (named("LibraryError", of_aiohttp(503), status_code=400), PermanentFailure),
        (named("LibraryError", FileNotFoundError("no such file")), PermanentFailure),
        (named("LibraryError", ValueError("final"), ConnectionResetError("gone")), PermanentFailure),
        (of_grpc(Code.UNAVAILABLE), Overloaded),
        (of_grpc(Code.DEADLINE_EXCEEDED), TimedOut),
        (of_grpc(Code.RESOURCE_EXHAUSTED), RateLimited),
        (of_grpc(Code.INVALID_ARGUMENT), PermanentFailure),
    ],
    ids=repr,
)  # fmt: skip
def test_an_error_that_passes_is_read_in_a_librarys_own_and_in_those_that_wrap_it(
    error: BaseException, expected: type[Outcome]
) -> None:
    assert type(outcome(raising(error))) is expected


def test_the_message_of_a_wrapped_error_quotes_the_one_behind_it_once() -> None:
    opaque, quoting = named("RetryError", of_aiohttp(503)), RuntimeError("refused again: refused")
    quoting.__cause__ = of_aiohttp(503)

    assert outcome(raising(opaque)) == Overloaded(
        "RetryError: it failed, from RuntimeError: refused", 503, None
    )
    assert outcome(raising(quoting)) == Overloaded("RuntimeError: refused again: refused", 503, None)


@pytest.mark.parametrize("arguments", [TASK, SCORE, CALL])
def test_an_error_in_a_result_is_read_as_if_it_were_raised(arguments: dict[str, Any]) -> None:
    limited = named("RateLimitError")

    for returned in (limited, ["ok", limited], {"answers": [limited]}):
        found = outcome(lambda *_, held=returned, **__: held, arguments)
        assert found == RateLimited("RateLimitError: it failed", 429, None)
    assert outcome(lambda *_, **__: [ValueError("bad")], arguments) == PermanentFailure("ValueError: bad")


def test_a_loop_of_causes_ends() -> None:
    one, other = RuntimeError("one"), RuntimeError("other")
    one.__cause__, other.__cause__ = other, one

    assert outcome(raising(one)) == PermanentFailure("RuntimeError: one")


@pytest.mark.parametrize("error_of", [of_aiohttp, of_urllib, of_botocore])
@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (404, PermanentFailure),
        (408, TimedOut),
        (409, ServerError),
        (422, PermanentFailure),
        (425, ServerError),
        (500, ServerError),
        (502, ServerError),
        (503, Overloaded),
        (504, TimedOut),
        (529, Overloaded),
    ],
)
def test_a_status_is_read_where_each_library_keeps_it(
    error_of: Callable[[int], Exception], status: int, expected: type[Outcome]
) -> None:
    found = outcome(raising(error_of(status)))

    assert isinstance(found, expected)
    assert getattr(found, "status", None) == (None if expected is PermanentFailure else status)


@pytest.mark.parametrize("kind", [raising, async_raising])
@pytest.mark.parametrize("arguments", [TASK, SCORE, CALL])
def test_a_rate_limit_of_another_library_is_one(kind: Any, arguments: dict[str, Any]) -> None:
    class ThrottlingException(Exception):
        retry_after = 2

    said = outcome(lambda *_, **__: kind(ThrottlingException("slow down"))(None), arguments)

    assert said == RateLimited("ThrottlingException: slow down", 429, 2000)


def test_the_traceback_goes_to_the_workers_log_and_not_to_users() -> None:
    with capture_logs() as logs:
        failed = outcome(raising(KeyError("q")))

    assert isinstance(failed, PermanentFailure)
    assert "Traceback" not in failed.message
    (line,) = logs
    assert (line["event"], line["function"], line["lane"]) == ("function_raised", "m:f", "python:m:f")
    assert isinstance(line["exc_info"], KeyError)


def test_an_error_that_cannot_be_shown_is_reported_by_its_type() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert outcome(raising(Mute())) == PermanentFailure("Mute: (it cannot be shown)")


def test_a_deadline_ends_an_async_call() -> None:
    async def forever(row: Any) -> None:
        await asyncio.Event().wait()

    assert outcome(forever, timeout_s=0.01) == OUT_OF_TIME


def test_a_deadline_ends_a_call_that_blocks_though_its_thread_goes_on() -> None:
    gate = threading.Event()

    assert outcome(lambda row: gate.wait(), timeout_s=0.01) == OUT_OF_TIME
    gate.set()


def test_our_own_cancellation_passes_through() -> None:
    async def scene() -> None:
        begun = asyncio.Event()

        async def forever(row: Any) -> None:
            begun.set()
            await asyncio.Event().wait()

        call = asyncio.create_task(made(forever))
        await begun.wait()
        call.cancel()
        await asyncio.wait([call])
        assert call.cancelled()

    asyncio.run(scene())


def test_a_function_that_is_not_for_this_worker_is_left_to_one_that_runs_it() -> None:
    foreign = FunctionNotFound("module 'm' is not in worker.modules of this worker", claimed=False)

    assert outcome(foreign, elsewhere=True) == Aborted(str(foreign))
    assert outcome(foreign, elsewhere=False) == PermanentFailure(str(foreign))
    assert outcome(FunctionNotFound("module 'm' has no 'f'"), elsewhere=True) == PermanentFailure(
        "module 'm' has no 'f'"
    )


def test_a_function_that_asks_for_too_much_fails_before_it_is_called() -> None:
    assert outcome(lambda left, right: None) == PermanentFailure(
        "m:f: the function asks for left, right; it may ask for params, row"
    )


def test_a_result_is_one_chunk() -> None:
    async def scene() -> None:
        heard: list[str] = []

        async def hear(text: str) -> None:
            heard.append(text)

        async def nobody(name: str, lane: str) -> bool:
            return False

        provider = FunctionProvider(One(awaited), slots=1, clock=ManualClock(), elsewhere=nobody)
        answer = await provider.call(REQUEST, hear)
        assert isinstance(answer, Success)
        assert heard == [answer.output]
        await provider.aclose()
        assert isinstance(await provider.call(REQUEST), NetworkFailure)

    asyncio.run(scene())


def test_a_celery_task_that_retries_is_tried_again_by_the_runs_policy() -> None:
    app = Celery("test", set_as_current=False)

    @app.task(shared=False, bind=True)
    def again(self: Any) -> None:
        raise self.retry(countdown=5)

    @app.task(shared=False, autoretry_for=(KeyError,))
    def flaky() -> None:
        raise KeyError("q")

    assert isinstance(outcome(again, CALL), FlawedAnswer)
    assert outcome(flaky, CALL) == FlawedAnswer("KeyError: 'q'")


def test_a_celery_task_is_called_with_a_calls_arguments() -> None:
    app = Celery("test", set_as_current=False)

    @app.task(shared=False, bind=True)
    def add(self: Any, left: int, right: int) -> list[Any]:
        return [left + right, self.name]

    arguments = {"row": {"args": [2], "kwargs": {"right": 3}}, "params": {}}
    assert outcome(add, arguments) == Success(f'[5,"{add.name}"]')


async def swallowing(row: Any) -> str:
    """A function that retries on all that is raised, also when it is cancelled."""
    for _ in range(10):
        try:
            await sleep(0.05)
        except BaseException:  # noqa: BLE001, S112 - as users write it
            continue
    return "late"


async def cancels_itself(row: Any) -> str:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await sleep(0)
    return "unreachable"


@pytest.mark.parametrize("function", [swallowing, lambda row: swallowing(row)])
def test_an_async_function_that_swallows_its_cancellation_is_out_of_time_at_its_deadline(
    function: Any,
) -> None:
    async def scene() -> Outcome:
        async with asyncio.timeout(1):
            return await made(function, timeout_s=0.01)

    assert asyncio.run(scene()) == OUT_OF_TIME


def test_a_function_that_cancels_itself_fails() -> None:
    assert outcome(cancels_itself) == PermanentFailure("CancelledError:")


def test_what_a_result_raises_while_it_is_written_fails_the_job() -> None:
    outcome_of = outcome(lambda row: (each["missing"] for each in [{}]))

    assert isinstance(outcome_of, PermanentFailure)
    assert "KeyError" in outcome_of.message
