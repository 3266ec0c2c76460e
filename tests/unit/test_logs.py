"""Log lines: one shape for ours and for libraries', and no credential in any."""

from __future__ import annotations

import io
import json
import logging
import warnings
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
import structlog
from amqp.exceptions import RecoverableConnectionError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import ResponseError

from fairlane.config.sections import LogSettings
from fairlane.core.events import Event
from fairlane.model.job import Attempt
from fairlane.telemetry.logs import (
    configure_logging,
    get_logger,
    log_through_the_application,
    logs_calls,
)

ATTEMPT = Attempt(run="r1", team="search", job=7, number=2, lane="openai:gpt-4o")

Configure = Callable[..., io.StringIO]


@pytest.fixture
def configure() -> Iterator[Configure]:
    levels = {name: logging.getLogger(name).level for name in ("aiohttp.access", "httpx", "kombu")}

    def configured(**settings: Any) -> io.StringIO:
        stream = io.StringIO()
        configure_logging(LogSettings.model_validate({"format": "json", **settings}), "worker", stream)
        return stream

    yield configured
    logging.captureWarnings(False)
    for name, before in levels.items():
        logging.getLogger(name).setLevel(before)


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def refuse() -> None:
    raise ConnectionError("redis://:hunter2@host refused")


def log_raised(library: str, error: Exception) -> None:
    try:
        raise error
    except type(error):
        logging.getLogger(library).warning("will retry", exc_info=True)


def test_a_line_carries_event_time_process_source_and_the_attempt(configure: Configure) -> None:
    stream = configure()
    get_logger("scheduler.dispatcher").info(Event.ACQUIRED, **ATTEMPT.labels, active_slots=3)
    (line,) = lines(stream)
    assert datetime.fromisoformat(line.pop("timestamp")).tzinfo == UTC
    assert line == {
        "event": "acquired",
        "level": "info",
        "process": "worker",
        "source": "scheduler.dispatcher",
        "run": "r1",
        "job": 7,
        "lane": "openai:gpt-4o",
        "team": "search",
        "attempt": 2,
        "active_slots": 3,
    }


def test_a_console_line_holds_the_same_without_colours_in_a_file(configure: Configure) -> None:
    stream = configure(format="console")
    get_logger("x").info(Event.RETRY, **ATTEMPT.labels, delay_s=1.5)
    (line,) = stream.getvalue().splitlines()
    assert "\x1b" not in line
    assert all(
        part in line for part in ("retry", "run=r1", "job=7", "lane=openai:gpt-4o", "delay_s=1.5", "Z [info")
    )


def test_a_logger_made_before_logging_is_configured_writes_where_it_was_configured_to(
    configure: Configure,
) -> None:
    log = get_logger("early")
    stream = configure()
    log.warning(Event.LEADER_LOST)
    assert lines(stream)[0]["event"] == "leader_lost"


def test_lines_below_the_level_are_not_written(configure: Configure) -> None:
    stream = configure(level="warning")
    get_logger("x").info(Event.ACQUIRED)
    logging.getLogger("somebody").info("hidden")
    assert stream.getvalue() == ""


def test_library_lines_have_the_same_shape(configure: Configure) -> None:
    stream = configure()
    logging.getLogger("celery.worker").warning("lost %s", "redis://:hunter2@host:6379/0")
    (line,) = lines(stream)
    assert line["event"] == "lost redis://:***@host:6379/0"
    assert (line["source"], line["level"], line["process"]) == ("celery.worker", "warning", "worker")


def test_libraries_that_write_on_every_call_are_quiet_unless_debugging(configure: Configure) -> None:
    stream = configure()
    logging.getLogger("httpx").info("HTTP Request: POST …")
    assert stream.getvalue() == ""
    stream = configure(level="debug")
    logging.getLogger("httpx").info("HTTP Request: POST …")
    assert len(lines(stream)) == 1


def test_lines_in_another_applications_log_name_the_event_as_documented(
    caplog: pytest.LogCaptureFixture,
) -> None:
    structlog.reset_defaults()
    log_through_the_application(LogSettings())
    with caplog.at_level(logging.INFO):
        get_logger("bridge").info(Event.LANES_SERVED, app="proj")
    assert caplog.messages == ["event='lanes_served' source='bridge' app='proj'"]


def test_a_warning_becomes_a_line(configure: Configure) -> None:
    stream = configure()
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(True)
        warnings.warn("old way", UserWarning, stacklevel=1)
    assert "old way" in lines(stream)[0]["event"]


@pytest.mark.parametrize("format_", ["json", "console"])
def test_no_line_shows_a_credential(configure: Configure, format_: str) -> None:
    stream = configure(format=format_)
    log = get_logger("x")
    try:
        refuse()
    except ConnectionError:
        log.exception(
            Event.STORE_UNREACHABLE,
            url="redis://user:hunter2@host",
            headers={"Authorization": "hunter2"},
            api_key="hunter2",
        )
        logging.getLogger("kombu").exception("hunter2@".join(["amqp://u:", "h"]))
    assert "refused" in stream.getvalue()
    assert "hunter2" not in stream.getvalue()


@pytest.mark.parametrize(
    ("library", "error"),
    [
        ("kombu.transport.redis", ResponseError("MISCONF Errors writing to the AOF file")),
        ("celery.worker.consumer.consumer", RedisConnectionError("redis://:hunter2@host is away")),
        ("celery.worker.consumer.consumer", RecoverableConnectionError("Socket was disconnected")),
        ("kombu.common", TimeoutError("timed out")),
    ],
)
@pytest.mark.parametrize("format_", ["json", "console"])
def test_a_library_says_without_a_traceback_that_a_server_is_away(
    configure: Configure, library: str, error: Exception, format_: str
) -> None:
    stream = configure(format=format_)
    log_raised(library, error)
    (line,) = stream.getvalue().splitlines()
    assert f"{type(error).__name__}: " in line
    assert "will retry" in line
    assert "hunter2" not in line
    stream = configure(level="debug", format=format_)
    log_raised(library, error)
    assert "Traceback" in stream.getvalue()


@pytest.mark.parametrize(
    ("library", "error"), [("kombu.transport.redis", KeyError("q")), ("somebody", ConnectionError("away"))]
)
def test_a_defect_in_a_library_keeps_its_traceback(
    configure: Configure, library: str, error: Exception
) -> None:
    stream = configure()
    log_raised(library, error)
    (line,) = lines(stream)
    assert "Traceback" in line["exception"]


def test_values_that_json_does_not_know_do_not_break_a_line(configure: Configure) -> None:
    stream = configure()
    get_logger("x").info(Event.RETRY, cause=ValueError("odd"), ratio=float("nan"), broken="\ud800", job=7)
    (line,) = lines(stream)
    assert (line["cause"], line["job"]) == ("ValueError('odd')", 7)
    assert line["broken"] == "\ud800"


def test_what_is_bound_to_the_context_is_on_every_line(configure: Configure) -> None:
    stream = configure()
    with structlog.contextvars.bound_contextvars(worker="w1"):
        get_logger("x").info(Event.WORKER_STARTED)
    assert lines(stream)[0]["worker"] == "w1"


@pytest.mark.parametrize(
    ("settings", "written"),
    [
        ({}, {"released"}),
        ({"calls": "all"}, {"queueing", "acquired", "released"}),
        ({"calls": "none"}, set()),
        ({"calls": "all", "level": "warning"}, set()),
        ({"level": "debug"}, {"released"}),
    ],
)
def test_the_setting_chooses_the_lines_of_each_call(settings: dict[str, str], written: set[str]) -> None:
    calls = (Event.QUEUEING, Event.ACQUIRED, Event.RELEASED)
    assert all(map(logs_calls, calls)), "as long as nobody has configured logging"
    configure_logging(LogSettings.model_validate(settings), "worker", io.StringIO())
    assert {str(event) for event in calls if logs_calls(event)} == written
