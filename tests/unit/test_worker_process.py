"""A worker process put together: the task, its pool, and the signals that start and stop its engine."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from celery import signals
from celery.concurrency.solo import TaskPool as SoloPool
from celery.worker.control import Panel
from structlog.testing import capture_logs

from fairlane.broker.app import TASK_NAME
from fairlane.config.settings import Settings, WorkerSecrets
from fairlane.core.errors import ConfigurationError
from fairlane.model.job import Attempt
from fairlane_workers import process as process_module
from fairlane_workers.engine import Engine
from fairlane_workers.intake.lane_queues import LaneWorkerConsumer
from fairlane_workers.intake.loop_pool import POOL, TaskPool
from fairlane_workers.process import WorkerProcess

SIGNALS = (
    signals.setup_logging,
    signals.celeryd_after_setup,
    signals.worker_ready,
    signals.worker_shutting_down,
    signals.worker_shutdown,
)


class EngineCalls:
    """What was asked of the engine."""

    def __init__(self, process: WorkerProcess, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[str] = []
        self.attempts: list[Attempt] = []
        for name in ("start", "begin_stop", "close"):
            monkeypatch.setattr(process.engine, name, lambda name=name: self.calls.append(name))


@pytest.fixture(autouse=True)
def _signals_as_they_were() -> Iterator[None]:
    before, shutdown = [list(each.receivers) for each in SIGNALS], Panel.data["shutdown"]
    yield
    Panel.data["shutdown"] = shutdown
    for each, receivers in zip(SIGNALS, before, strict=True):
        each.receivers[:] = receivers
        each.sender_receivers_cache.clear()


def process(form: str = "console", **secrets: Any) -> WorkerProcess:
    settings = Settings.model_validate({"celery": {"broker_url": "memory://"}, "log": {"format": form}})
    return WorkerProcess(settings, WorkerSecrets(**secrets), "worker-1")


def test_the_application_has_the_one_task_and_its_pool() -> None:
    app: Any = process().app

    assert TASK_NAME in app.tasks
    assert app.conf.worker_pool == POOL
    assert any("LaneQueuesStep" in step.__name__ for step in app.steps["consumer"])


def test_the_task_begins_attempts_on_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    made = process()
    attempt, begun = Attempt("r1", "search", 3, 1, "sim:fast"), []
    done: Future[None] = Future()
    done.set_result(None)
    monkeypatch.setattr(made.engine, "start_attempt", lambda each, *_: begun.append(each) or done)
    app: Any = made.app

    assert app.tasks[TASK_NAME](**attempt.to_message()) is None

    assert begun == [attempt]


def test_the_engine_lives_from_the_workers_setup_to_its_shutdown(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = EngineCalls(process(), monkeypatch).calls

    signals.celeryd_after_setup.send(sender="w", instance=SimpleNamespace(pool_cls=TaskPool), conf=None)
    signals.worker_shutting_down.send(sender="w", sig="TERM", how="Warm", exitcode=0)
    signals.worker_shutdown.send(sender="w")

    assert calls == ["start", "begin_stop", "close"]


def test_a_consumer_that_fails_begins_the_stop_before_the_pool_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = list[str]()
    monkeypatch.setattr(Engine, "begin_stop", lambda engine: calls.append("begin_stop"))
    monkeypatch.setattr(TaskPool, "on_stop", lambda pool: calls.append("pool"))

    def fail(consumer: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(LaneWorkerConsumer, "start", fail)
    worker = process().app.WorkController(hostname="w", concurrency=1)  # type: ignore[attr-defined]
    worker.start()

    assert calls == ["begin_stop", "pool"]
    assert worker.exitcode


def test_a_shutdown_by_remote_command_is_one_by_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: sent.append((pid, number)))
    process()

    Panel.data["shutdown"](SimpleNamespace(), msg="Got shutdown from remote")

    assert sent == [(os.getpid(), signal.SIGTERM)]


@pytest.mark.parametrize(("form", "quiet"), [("json", True), ("console", False)])
def test_a_log_of_json_has_no_banner_and_is_set_up_before_celery_warns(
    form: str, quiet: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[Any] = []

    class Worker:
        def __init__(self, **options: Any) -> None:
            signals.setup_logging.send(sender=None)
            done.append(options["quiet"])

        def start(self) -> None:
            done.append("started")

    monkeypatch.setattr(process_module, "install_log_streams", lambda: None)
    monkeypatch.setattr(process_module, "configure_logging", lambda log, _: done.append(log.format))
    made = process(form)
    monkeypatch.setattr(made.app, "Worker", Worker)

    made.run()

    assert done == [form, quiet, "started"]


def test_garbage_collections_leave_alone_what_a_ready_worker_has() -> None:
    process()
    before = gc.get_freeze_count()
    try:
        signals.worker_ready.send(sender="w")
        assert gc.get_freeze_count() > before
    finally:
        gc.unfreeze()


@pytest.mark.parametrize("pool", [SoloPool, "prefork", SimpleNamespace()])
def test_another_pool_is_refused_with_the_remedy(monkeypatch: pytest.MonkeyPatch, pool: Any) -> None:
    made = process()
    calls = EngineCalls(made, monkeypatch).calls

    with pytest.raises(ConfigurationError, match="Leave --pool out"):
        made._start(SimpleNamespace(pool_cls=pool))

    assert calls == []


def test_a_missing_credential_is_reported_by_the_name_of_its_variable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    made = process(missing={"openai": "OPENAI_API_KEY"})
    EngineCalls(made, monkeypatch)

    with capture_logs() as logs:
        made._start(SimpleNamespace(pool_cls=TaskPool))

    (line,) = [line for line in logs if line["event"] == "credential_missing"]
    assert (line["connection"], line["variable"]) == ("openai", "OPENAI_API_KEY")


@pytest.mark.parametrize(
    ("moment", "step"),
    [
        (signals.celeryd_after_setup, "start"),
        (signals.worker_shutting_down, "begin_stop"),
        (signals.worker_shutdown, "close"),
    ],
)
@pytest.mark.parametrize("error", [ConfigurationError("ca_file", "/x", "cannot be read"), OSError("broken")])
def test_an_error_at_a_signal_ends_the_process_with_an_exit_code(
    moment: Any, step: str, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise error

    made = process()
    monkeypatch.setattr(made.engine, step, fail)

    with pytest.raises(SystemExit) as ended:
        moment.send(sender="w", instance=SimpleNamespace(pool_cls=TaskPool), conf=None)

    assert ended.value.code == 2


def test_a_worker_that_never_started_can_be_stopped() -> None:
    made = process()

    made._begin_stop()
    made._close()


@pytest.mark.parametrize(("ended", "code"), [(None, 0), (0, 0), (1, 1), (70, 70)])
def test_the_process_returns_the_code_with_which_its_celery_worker_ended(
    ended: int | None, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = process()
    EngineCalls(made, monkeypatch)
    instance = SimpleNamespace(pool_cls=TaskPool, exitcode=ended)
    made._start(instance)
    assert made.exit_code == code


def test_a_worker_that_never_started_returns_zero() -> None:
    assert process().exit_code == 0
