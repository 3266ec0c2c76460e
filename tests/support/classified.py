"""A refusal read as a protocol reads it."""

from __future__ import annotations

from collections.abc import Mapping

from fairlane.connection import Connection
from fairlane.job import Outcome
from fairlane_workers.providers.classify import Reading, classify, classify_late_error
from fairlane_workers.providers.error_body import ErrorBody
from fairlane_workers.providers.registry import DIALECTS


def connection_of(protocol: str) -> Connection:
    """The least that a connection of this protocol needs."""
    endpoint = {"endpoint": {"body": {}, "output": "text"}} if protocol == "http" else {}
    return Connection.model_validate({"protocol": protocol, "base_url": "http://h", **endpoint})


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
    connection = connection_of(protocol)
    error = DIALECTS[protocol](connection).error(headers, body)
    reading = Reading(limits=limits, error_map=error_map or {})
    return classify(error, status, headers, reading, now_ms=now_ms, secrets=secrets)


def late_error(
    protocol: str, error: object, headers: Mapping[str, str], *, now_ms: int, limits: str | None = None
) -> Outcome:
    """The outcome of an error that came after a 2xx."""
    connection = connection_of(protocol)
    reading = Reading(limits=limits, late_statuses=DIALECTS[protocol](connection).late_statuses)
    return classify_late_error(ErrorBody.of(error), headers, reading, now_ms=now_ms)
