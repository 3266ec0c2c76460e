"""Structured log lines on standard error, for a terminal or as JSON; libraries' lines take the same way."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime
from typing import Any, TextIO, cast

import structlog
from pydantic_core import PydanticSerializationError, to_json
from structlog.typing import EventDict, FilteringBoundLogger, Processor

from fairlane.job import Attempt
from fairlane.redaction import mask_value
from fairlane.settings import LogSettings

# At "info" these write a line or more for every call, which our own events already tell.
_WORDY_LIBRARIES = ("aiohttp.access", "celery.app.trace", "celery.worker.strategy", "httpx", "kombu")


def configure_logging(settings: LogSettings, process: str, stream: TextIO | None = None) -> None:
    """Send every log line of this process to ``stream`` (standard error), marked with ``process``.

    Called once, at an entry point. Standard `logging` takes the same way. A logger keeps the configuration
    that it was first used with.
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
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(file=out),
        cache_logger_on_first_use=True,
    )
    _route_standard_logging(shared, finish, level, out)


def log_through_the_application(settings: LogSettings) -> None:
    """Send our log lines to standard `logging` in a process that is not ours.

    Where it uses structlog itself, they go the way that it has set up.
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
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )


def get_logger(name: str) -> FilteringBoundLogger:
    """A logger whose lines carry ``source=name``; may be made before logging is configured."""
    return cast(FilteringBoundLogger, structlog.get_logger(source=name))


def moment() -> str:
    """Now, as a line's ``timestamp`` has it: for a line that is written later than what it tells happened."""
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def attempt_fields(attempt: Attempt) -> dict[str, Any]:
    """What every line about an attempt carries; bind it, or pass it along.

    An agent's evaluation is named, too, by `RunSpec.labels` or `Step.labels`.
    """
    return {
        "run": attempt.run,
        "job": attempt.job,
        "lane": attempt.lane,
        "team": attempt.team,
        "attempt": attempt.number,
    }


class _ProcessName:
    """Marks lines with the process they come from, so that several can share a terminal or a file."""

    def __init__(self, process: str) -> None:
        self._process = process

    def __call__(self, _logger: Any, _method: str, event: EventDict) -> EventDict:
        event["process"] = self._process
        return event


def _standard_source(_logger: Any, _method: str, event: EventDict) -> EventDict:
    event["source"] = event["_record"].name
    return event


def _rendering(settings: LogSettings, *, colors: bool) -> list[Processor]:
    """The last steps of every line. Masking comes after exceptions became text: they quote URLs too."""
    if settings.format == "json":
        return [structlog.processors.format_exc_info, _mask_secrets, _to_json_line]
    console = structlog.dev.ConsoleRenderer(
        colors=colors, exception_formatter=structlog.dev.plain_traceback, pad_event_to=24
    )
    return [structlog.processors.format_exc_info, _mask_secrets, console]


def _mask_secrets(_logger: Any, _method: str, event: EventDict) -> EventDict:
    return {name: mask_value(name, value) for name, value in event.items()}


def _to_json_line(_logger: Any, _method: str, event: EventDict) -> str:
    try:
        return to_json(event, fallback=repr, inf_nan_mode="null").decode()
    except PydanticSerializationError:
        # A lone surrogate, as a provider's broken text may hold, is no UTF-8. No log line may fail by that.
        return json.dumps(event, default=repr, skipkeys=True)


def _route_standard_logging(
    shared: list[Processor], finish: list[Processor], level: int, stream: TextIO
) -> None:
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[*shared, _standard_source],
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
