"""Calls as a client makes them: what is sent, what is read back, what is refused before anything is sent."""

from __future__ import annotations

import json
import pickle  # noqa: TID251 - Celery carries exceptions so
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from celery import Celery, chain, states
from celery.exceptions import TimeoutError as CeleryTimeoutError

from fairlane.celery import LimitedResult, LimitedTask, limited
from fairlane.client.calls import CallHandle, CallMap, submit_call, submit_calls
from fairlane.client.client import Client
from fairlane.core.errors import CallFailed, RateLimited, RunTimeout, SubmissionError
from fairlane.evaluators.function_scorers import scorer
from fairlane.model.decision import RetryPolicy
from fairlane.model.evaluators import FunctionScorer
from fairlane.model.job import JobState
from fairlane.model.record import Record
from fairlane.model.run import RunState
from fairlane.model.tokens import Usage
from fairlane_workers.functions.catalog import AppTasks


class Run:
    """As much of a run as calls need, over already."""

    id, name = "r1", "call f"

    def __init__(self, *outputs: str | None) -> None:
        self._outputs = outputs
        self.waited: list[float | None] = []
        self.cancelled = False

    def wait(self, *, timeout: float | None = None) -> None:
        self.waited.append(timeout)

    def results(self) -> Iterator[Record]:
        for item, output in enumerate(self._outputs):
            state = JobState.FAILED if output is None else JobState.SUCCEEDED
            error = "KeyError: 'q'" if output is None else None
            yield Record(item, {}, "python:m.f", 0, 0, state, output, {}, {}, Usage(), 3, error)

    stream = results

    def cancel(self) -> None:
        self.cancelled = True


class Sender:
    """A client that keeps what it is given."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.options: dict[str, Any] = {}

    def submit(self, dataset: Any, **options: Any) -> Any:
        self.rows, self.options = list(dataset), options
        return Run("1")


class SenderClient(Client, Sender):
    """The same, where a real client is asked for."""

    def __init__(self) -> None:
        Sender.__init__(self)

    submit = Sender.submit  # type: ignore[assignment]


def test_a_call_is_a_run_of_one_row_with_its_arguments() -> None:
    sender = Sender()

    handle = submit_call(sender, "m.f", (1, "a"), {"b": [None]}, lane="crm", timeout=5, priority=2)

    assert sender.rows == [{"args": [1, "a"], "kwargs": {"b": [None]}}]
    shown = {name: value for name, value in sender.options.items() if value is not None}
    assert shown == {"task": "m.f", "lane": "crm", "name": "call m.f", "priority": 2, "timeout": 5}
    assert (handle.id, repr(handle)) == ("r1", "<CallHandle r1: call f>")


def test_many_calls_are_one_run() -> None:
    sender, policy = Sender(), RetryPolicy(max_attempts=1)

    submit_calls(sender, "m:f", [([1], {}), ((), {"a": 2})], retry=policy)

    assert sender.rows == [{"args": [1], "kwargs": {}}, {"args": [], "kwargs": {"a": 2}}]
    assert sender.options["retry"] is policy


@pytest.mark.parametrize("name", ["f", "", "m:f:g", "m:", "m f", "../m:f", 5])
def test_a_name_of_no_function_is_refused(name: Any) -> None:
    with pytest.raises(SubmissionError, match="names no function"):
        submit_call(Sender(), name)


@pytest.mark.parametrize(
    ("args", "kwargs"),
    [("abc", {}), (5, {}), ([], [1]), ([], {1: 2}), ([object()], {}), ([float("nan")], {}), ([b""], {})],
)
def test_arguments_that_json_cannot_carry_are_refused(args: Any, kwargs: Any) -> None:
    sender = Sender()

    with pytest.raises(SubmissionError, match=r"args|kwargs"):
        submit_call(sender, "m:f", args, kwargs)
    assert sender.options == {}


@pytest.mark.parametrize("call", [5, [1], ([1], {}, 3), "ab", {"args": [], "kwargs": {}}])
def test_what_is_no_pair_of_args_and_kwargs_is_refused(call: Any) -> None:
    with pytest.raises(SubmissionError, match=r"calls\[1\]"):
        submit_calls(Sender(), "m:f", [([], {}), call])


def test_a_result_is_what_was_returned() -> None:
    run: Any = Run('{"a":[1]}')

    assert CallHandle(run).result(timeout=3) == {"a": [1]}
    assert run.waited == [3]
    CallHandle(run).cancel()
    assert run.cancelled


def test_a_call_without_a_result_raises_why() -> None:
    run: Any = Run(None)

    with pytest.raises(CallFailed, match="call r1: KeyError: 'q'") as failed:
        CallHandle(run).result()
    again = pickle.loads(pickle.dumps(failed.value))  # noqa: S301 - Celery pickles exceptions
    assert (again.call, again.error, again.attempts) == ("r1", "KeyError: 'q'", 3)


def test_a_map_raises_the_first_failure_or_returns_them_in_place() -> None:
    run: Any = Run('"a"', None, "3")

    with pytest.raises(CallFailed, match="call r1/1"):
        CallMap(run).results()
    first, second, third = CallMap(run).results(return_exceptions=True)
    assert (first, type(second), third) == ("a", CallFailed, 3)
    assert [number for number, _ in CallMap(run).stream()] == [0, 1, 2]


def app_with_task() -> tuple[Celery, Any]:
    app = Celery("crm", set_as_current=False)

    @app.task(shared=False, name="crm.fetch")
    def fetch(number: int) -> int:
        """Fetches."""
        return number * 2

    return app, fetch


def test_a_limited_task_is_sent_through_fairlane_under_its_lane() -> None:
    _, fetch = app_with_task()
    client = SenderClient()
    task = limited(client, lane="crm-api", timeout=9, priority=1)(fetch)

    task.delay(4)
    assert client.rows == [{"args": [4], "kwargs": {}}]
    assert (client.options["task"], client.options["lane"], client.options["timeout"]) == (
        "crm.fetch",
        "crm-api",
        9,
    )
    task.apply_async(kwargs={"number": 5}, priority=-3, countdown=None)
    assert (client.rows, client.options["priority"]) == ([{"args": [], "kwargs": {"number": 5}}], -3)
    task.map([([1], {}), ([2], {})])
    assert len(client.rows) == 2
    assert (task(4), task.name, task.__doc__) == (8, "crm.fetch", "Fetches.")


@pytest.mark.parametrize(
    ("given", "start_in"),
    [
        (lambda: {"countdown": 5}, 5),
        (lambda: {"eta": datetime.now(UTC) + timedelta(hours=1)}, 3600),
        (lambda: {"eta": datetime.now(UTC).replace(tzinfo=None) + timedelta(hours=1)}, 3600),
        (lambda: {"eta": datetime.now(UTC) - timedelta(hours=1)}, 0),
    ],
)
def test_countdown_and_eta_are_when_the_run_may_start(
    given: Callable[[], dict[str, Any]], start_in: float
) -> None:
    _, fetch = app_with_task()
    client = SenderClient()

    limited(client, lane="crm-api")(fetch).apply_async([4], **given())

    assert client.options.get("start_in", 0) == pytest.approx(start_in, abs=60)


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        ({"countdown": 5, "eta": datetime.now(UTC)}, "countdown is given, too"),
        ({"eta": 5}, "no datetime"),
        ({"queue": "fast"}, "decides when and where"),
        ({"link": []}, "decides when and where"),
    ],
)
def test_an_option_that_a_call_cannot_have_is_refused(given: dict[str, Any], shown: str) -> None:
    _, fetch = app_with_task()
    client = SenderClient()

    with pytest.raises(SubmissionError, match=shown):
        limited(client, lane="crm-api")(fetch).apply_async([4], **given)
    assert client.options == {}


def test_steps_of_a_canvas_are_signatures_of_a_relay_in_the_same_application() -> None:
    app, fetch = app_with_task()
    task = limited(SenderClient(), lane="crm-api")(fetch)
    again = limited(SenderClient(), lane="crm-api")(fetch)

    assert (task.s(4).task, task.s(4).args, task.s(4).immutable) == ("crm.fetch@crm-api", (4,), False)
    assert task.si(4).immutable
    assert task.signature([4], {}, countdown=3).options == {"countdown": 3}
    assert (task.relay, again.relay.max_retries) == (again.relay, None)
    assert AppTasks(app).names() == ("crm.fetch",), "a relay is no task for a lane of its own"


def test_an_eager_application_runs_the_task_itself() -> None:
    app, fetch = app_with_task()
    app.conf.task_always_eager = True
    task = limited(SenderClient(), lane="crm-api")(fetch)

    assert chain(task.s(4), task.s()).apply_async().get() == 16


def test_a_result_has_the_words_of_celery() -> None:
    kept: Any = Run('{"a":[1]}')
    lost: Any = Run(None)
    kept.status = lost.status = lambda: SimpleNamespace(state=RunState.COMPLETED)

    assert LimitedResult(kept).get(timeout=3) == {"a": [1]}
    assert (LimitedResult(kept).successful(), LimitedResult(kept).failed()) == (True, False)
    assert (LimitedResult(lost).ready(), LimitedResult(lost).failed()) == (True, True)
    assert isinstance(LimitedResult(lost).get(propagate=False), CallFailed)
    with pytest.raises(CallFailed):
        LimitedResult(lost).get()


def with_status(run: Any, state: RunState, in_flight: int = 0, **by_state: int) -> LimitedResult:
    counted = {JobState[name]: count for name, count in by_state.items()}
    run.status = lambda: SimpleNamespace(state=state, in_flight=in_flight, by_state=counted)
    return LimitedResult(run)


def test_a_result_has_celery_s_states() -> None:
    done = with_status(Run("5"), RunState.COMPLETED, SUCCEEDED=1)
    failed = with_status(Run(None), RunState.COMPLETED, FAILED=1)

    assert with_status(Run(), RunState.SUBMITTED).state == states.PENDING
    assert with_status(Run(), RunState.RUNNING).status == states.PENDING
    assert with_status(Run(), RunState.RUNNING, 1).state == states.STARTED
    assert with_status(Run(), RunState.CANCELLED).state == states.REVOKED
    assert with_status(Run(), RunState.REFUSED).state == states.FAILURE
    assert (done.state, done.task_id, done.traceback) == (states.SUCCESS, "r1", None)
    assert (failed.status, failed.traceback) == (states.FAILURE, str(failed.get(propagate=False)))
    assert done.wait(3, interval=0.1, no_ack=True, follow_parents=False, disable_sync_subtasks=False) == 5
    done.forget()
    run: Any = failed.run
    failed.revoke(terminate=True, signal="SIGKILL")
    assert run.cancelled


def test_a_wait_that_ends_too_early_is_a_timeout_of_celery_and_of_fairlane() -> None:
    run: Any = Run("5")

    def wait(*, timeout: float | None = None) -> None:
        raise RunTimeout("r1", timeout or 0)

    run.wait = wait
    for kind in (CeleryTimeoutError, RunTimeout, TimeoutError):
        with pytest.raises(kind, match="r1 was not finished after 3 s"):
            LimitedResult(run).get(timeout=3)


def test_a_limited_task_has_celery_s_apply_and_result() -> None:
    _, fetch = app_with_task()
    task = limited(SenderClient(), lane="crm-api")(fetch)
    task.find = lambda run_id: run_id  # type: ignore[method-assign,assignment,return-value]

    assert task.apply([4]).get() == 8
    assert task.apply(kwargs={"number": 3}).get() == 6
    assert task.AsyncResult("r7") == "r7"  # type: ignore[comparison-overlap]


def test_a_map_of_no_calls_is_a_run_without_items() -> None:
    sender = Sender()

    submit_calls(sender, "m.f", [])
    assert (sender.rows, sender.options["check"]) == ([], False)
    submit_calls(sender, "m.f", [([1], {})])
    assert "check" not in sender.options


def test_a_plain_function_becomes_a_task_of_the_application() -> None:
    app = Celery("crm", set_as_current=False)

    @limited(app, lane="crm-api")
    def store(number: int) -> int:
        return number

    assert isinstance(store, LimitedTask)
    assert store.name in app.tasks
    assert store(3) == 3


def test_a_plain_function_needs_an_application() -> None:
    with pytest.raises(SubmissionError, match="is no Celery task"):
        limited(SenderClient(), lane="crm-api")(lambda: None)


def test_a_scorer_is_named_by_its_function() -> None:
    made = scorer("evals.style:brevity", lane="style", level="session")

    assert made == FunctionScorer(
        name="brevity", function="evals.style:brevity", lane="style", level="session"
    )
    assert scorer("evals.style:brevity", name="short").name == "short"


@pytest.mark.parametrize("function", ["brevity", "evals style:brevity", "evals:", len])
def test_a_scorer_of_no_function_is_refused(function: Any) -> None:
    with pytest.raises(SubmissionError):
        scorer(function)


@pytest.mark.parametrize(
    ("given", "wait_ms"), [(0.0001, 1), (2, 2000), (timedelta(minutes=1), 60_000), (None, None), (1e12, None)]
)
def test_how_long_to_slow_down_is_reported_in_seconds_or_as_a_timedelta(
    given: Any, wait_ms: int | None
) -> None:
    error = RateLimited("calm down", retry_after=given)

    assert (str(error), error.retry_after_ms) == ("calm down", wait_ms)
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - Celery pickles exceptions
    assert (str(again), again.retry_after) == ("calm down", given)


def test_arguments_survive_the_way() -> None:
    sender = Sender()
    submit_call(sender, "m:f", [{"ü": "\n"}, 1.5, None, True])

    assert json.loads(json.dumps(sender.rows))[0]["args"] == [{"ü": "\n"}, 1.5, None, True]


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda client: submit_call(client, "my_app.tasks.fetch", nonsense=1), "submit_call"),
        (lambda client: submit_calls(client, "my_app.tasks.fetch", [], nonsense=1), "submit_calls"),
    ],
)
def test_an_unknown_option_is_refused_by_the_name_of_a_public_function(
    call: Callable[[Any], Any], name: str
) -> None:
    with pytest.raises(TypeError, match=rf"^{name}\(\) got an unexpected keyword argument 'nonsense'$"):
        call(None)
