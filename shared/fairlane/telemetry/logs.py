"""Configures structured logs on standard error, for a terminal or as JSON, also for libraries."""

import json
import logging
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any, TextIO, cast

import structlog
from pydantic_core import PydanticSerializationError, to_json
from structlog.typing import EventDict, FilteringBoundLogger, Processor

from fairlane.config.sections import LogSettings
from fairlane.core.events import Event
from fairlane.core.redaction import mask_value
from fairlane.core.terminal_text import visible, visible_json, visible_line
from fairlane.telemetry.log_stream import LogStream

# At "info" these write a line or more for every call, which our own events already cover.
_WORDY_LIBRARIES = ("aiohttp.access", "celery.app.trace", "celery.worker.strategy", "httpx", "kombu")

# Their warnings of a server that is away, full or read-only carry a traceback each, which names no defect.
_BROKER_LIBRARIES = frozenset(("amqp", "celery", "kombu", "redis"))

_EVERY_CALL = frozenset((Event.QUEUEING, Event.ACQUIRED, Event.RELEASED))
_CALLS = {"all": _EVERY_CALL, "ends": frozenset((Event.RELEASED,)), "none": frozenset[Event]()}


def configure_logging(settings: LogSettings, process: str, stream: TextIO | None = None) -> None:
    """Send every log line of this process to ``stream`` (standard error), marked with ``process``.

    Call it once, at an entry point. It also covers standard `logging`. A `LogStream` then reports the lines
    that it loses in a line like others.
    """
    out = sys.stderr if stream is None else stream
    level = logging.getLevelNamesMapping()[settings.level.upper()]
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.MaybeTimeStamper(fmt="iso", utc=True),
        _ProcessName(process),
    ]
    finish = _rendering(settings, colors=out.isatty())
    structlog.configure(
        processors=[*shared, *finish],
        wrapper_class=_logger_class(settings, level),
        logger_factory=structlog.WriteLoggerFactory(file=out),
    )
    _route_standard_logging(shared, finish, level, out)
    if isinstance(out, LogStream):
        out.notice = partial(_line_of_loss, [*shared, *finish])


def _line_of_loss(processors: Sequence[Processor], lines: int) -> str:
    """The line that says how many lines are lost, as these steps make it."""
    event: Any = {"event": Event.LOG_LINES_LOST, "source": "log", "lines": lines}
    for step in processors:
        event = step(None, "warning", event)
    return f"{event}\n"


def log_through_the_application(settings: LogSettings) -> None:
    """Send our log lines to standard `logging`, in a process of another application.

    If the application has configured structlog, they follow that.
    """
    if structlog.is_configured():
        return
    level = logging.getLevelNamesMapping()[settings.level.upper()]
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.format_exc_info,
            _mask_secrets,
            structlog.processors.KeyValueRenderer(key_order=["event"]),
        ],
        wrapper_class=_logger_class(settings, level),
        logger_factory=structlog.stdlib.LoggerFactory(),
    )


def get_logger(name: str) -> FilteringBoundLogger:
    """A logger whose lines carry ``source=name``; may be made before logging is configured."""
    return cast(FilteringBoundLogger, structlog.get_logger(source=name))


def logs_calls(event: Event) -> bool:
    """Whether the process writes lines of this event, which comes once a call; before configuration, it does.

    Ask once, after logging is configured.
    """
    return event in getattr(structlog.get_config()["wrapper_class"], "calls", _EVERY_CALL)


def _logger_class(settings: LogSettings, level: int) -> type[Any]:
    """Loggers of this level; the class attribute ``calls`` has the events of calls that they write."""
    calls = _CALLS[settings.calls] if level <= logging.INFO else frozenset[Event]()
    return type("Logger", (structlog.make_filtering_bound_logger(level),), {"calls": calls})


class _ProcessName:
    """Marks lines with their process, so that several processes can share a terminal or a file."""

    def __init__(self, process: str) -> None:
        self._process = process

    def __call__(self, _logger: Any, _method: str, event: EventDict) -> EventDict:
        event["process"] = self._process
        return event


def _standard_source(_logger: Any, _method: str, event: EventDict) -> EventDict:
    event["source"] = event["_record"].name
    return event


def _shorten_outages(_logger: Any, _method: str, event: EventDict) -> EventDict:
    """Replace a library's traceback of a server's refusal by the error's text, except at "debug"."""
    record = event["_record"]
    error = record.exc_info[1] if record.exc_info else None
    if error is None or logging.getLogger().isEnabledFor(logging.DEBUG):
        return event
    if _library(record.name) and (isinstance(error, OSError) or _library(type(error).__module__)):
        event["error"] = f"{type(error).__name__}: {error}"
        event.pop("exc_info", None)
    return event


def _library(module: str) -> bool:
    return module.partition(".")[0] in _BROKER_LIBRARIES


def _rendering(settings: LogSettings, *, colors: bool) -> list[Processor]:
    """The last steps of every line. Masking follows the rendering of exceptions: they quote URLs, too."""
    if settings.format == "json":
        return [structlog.processors.format_exc_info, _mask_secrets, _to_json_line]
    console = structlog.dev.ConsoleRenderer(
        colors=colors, exception_formatter=structlog.dev.plain_traceback, pad_event_to=24
    )
    return [structlog.processors.format_exc_info, _mask_secrets, _write_out_controls, console]


def _mask_secrets(_logger: Any, _method: str, event: EventDict) -> EventDict:
    return {name: mask_value(name, value) for name, value in event.items()}


def _write_out_controls(_logger: Any, _method: str, event: EventDict) -> EventDict:
    """Escape control characters, so that no value controls a terminal; only a traceback keeps its lines."""
    return {
        name: visible(value) if name == "exception" else _without_controls(value)
        for name, value in event.items()
    }


def _without_controls(value: Any) -> Any:
    if isinstance(value, str):
        return visible_line(value)
    # Others are shown by their repr, which escapes.
    return value


def _to_json_line(_logger: Any, _method: str, event: EventDict) -> str:
    try:
        return visible_json(to_json(event, fallback=repr, inf_nan_mode="null").decode())
    except PydanticSerializationError:
        # A lone surrogate in a provider's text cannot be encoded as UTF-8; the line is written anyway.
        return json.dumps(event, default=repr, skipkeys=True)


def _route_standard_logging(
    shared: list[Processor], finish: list[Processor], level: int, stream: TextIO
) -> None:
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[*shared, _standard_source, _shorten_outages],
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *finish],
    )
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter)
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for name in _WORDY_LIBRARIES:
        logging.getLogger(name).setLevel(level if level <= logging.DEBUG else max(level, logging.WARNING))
    logging.captureWarnings(True)
