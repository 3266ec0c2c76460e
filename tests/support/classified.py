"""Classifies error answers with the code of a protocol."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import cast

from fairlane.config.connections.connection import Connection
from fairlane.config.connections.presets import PROTOCOLS
from fairlane.model.outcome import Outcome
from fairlane_workers.providers.answers.classify import Reading, classify, classify_late_error
from fairlane_workers.providers.dialect import Dialect
from fairlane_workers.providers.errors.error_body import ErrorBody
from fairlane_workers.providers.registry import load_protocol, reading_of

HTTP_PROTOCOLS = sorted(set(PROTOCOLS) - {"litellm"})


def connection_of(protocol: str) -> Connection:
    """The minimal settings of a connection with this protocol."""
    endpoint = {"endpoint": {"body": {}, "output": "text"}} if protocol == "http" else {}
    return Connection.model_validate({"protocol": protocol, "base_url": "http://h", **endpoint})


def dialect_of(connection: Connection) -> Dialect:
    """The dialect of the connection's protocol."""
    return cast("type[Dialect]", load_protocol("protocol", connection.protocol)).of(connection)


def refusal(
    protocol: str,
    status: int,
    headers: Mapping[str, str],
    body: bytes,
    *,
    now_ms: int,
    secrets: tuple[str, ...] = (),
    limits: str | None = None,
    error_map: Mapping[str, str] | None = None,
) -> Outcome:
    """The outcome of an answer whose HTTP status is not 2xx."""
    dialect = dialect_of(connection_of(protocol))
    error = dialect.error(headers, body)
    reading = Reading(limits=limits, error_map=error_map or {}, late_statuses=dialect.late_statuses)
    return classify(error, status, headers, reading, now_ms=now_ms, secrets=secrets)


def answer_at(
    connection: Connection, status: int, headers: Mapping[str, str], body: bytes, *, now_ms: int
) -> Outcome:
    """The outcome of an answer whose HTTP status is not 2xx, as a worker reads it at this connection."""
    dialect = dialect_of(connection)
    reading = replace(reading_of(connection), late_statuses=dialect.late_statuses)
    return classify(dialect.error(headers, body), status, headers, reading, now_ms=now_ms)


def late_error(
    protocol: str, error: object, headers: Mapping[str, str], *, now_ms: int, limits: str | None = None
) -> Outcome:
    """The outcome of an error inside an answer whose HTTP status is 2xx."""
    connection = connection_of(protocol)
    reading = Reading(limits=limits, late_statuses=dialect_of(connection).late_statuses)
    return classify_late_error(ErrorBody.of(error), headers, reading, now_ms=now_ms)
