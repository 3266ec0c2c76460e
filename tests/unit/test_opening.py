"""A connection that a worker cannot use is denied with the reason, and harms no other connection."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from fairlane.config.connections.connection import Connection
from fairlane.config.settings import WorkerSecrets
from fairlane.core.clock import ManualClock
from fairlane.model.outcome import AccessDenied, Outcome
from fairlane_workers.providers import registry
from fairlane_workers.providers.contract import Request
from fairlane_workers.providers.registry import open_provider

REQUEST = Request("m", [{"role": "user", "content": "hi"}], {}, False, 5.0, 1024)
KEY = "sk-5Jq8xW2pLr7TzKd4"


def denied(key: str | None = None, **fields: Any) -> Outcome:
    """The outcome of a call on a connection with these settings."""
    said = {"protocol": "openai", "base_url": "http://127.0.0.1:9/v1", **fields}
    held = WorkerSecrets.model_validate({"keys": {"c": key} if key else {}})

    async def scenario() -> Outcome:
        provider = await open_provider("c", Connection.model_validate(said), held, ManualClock())
        try:
            return await provider.call(REQUEST)
        finally:
            await provider.aclose()

    return asyncio.run(scenario())


def test_a_missing_file_denies_the_calls_of_its_connection_with_the_reason(tmp_path: Path) -> None:
    with capture_logs() as logs:
        outcome = denied(ca_file=str(tmp_path / "ca.pem"))

    assert isinstance(outcome, AccessDenied)
    assert outcome.message.startswith("connections.c.ca_file: cannot be read: No such file")
    (line,) = logs
    assert (line["event"], line["connection"]) == ("connection_unusable", "c")


def test_a_connection_has_the_clock_of_its_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    seen, build = dict[str, Any](), registry.build_provider

    def watched(*given: Any, **how: Any) -> Any:
        seen.update(how)
        return build(*given, **how)

    monkeypatch.setattr(registry, "build_provider", watched)
    denied(KEY)
    assert isinstance(seen["clock"], ManualClock)


def test_a_key_that_no_header_can_carry_denies_the_calls_and_is_not_shown() -> None:
    outcome = denied(f"“{KEY}”")

    assert isinstance(outcome, AccessDenied)
    assert outcome.message.startswith("connections.c.api_key_env: the key holds characters")
    assert KEY not in outcome.message


@pytest.mark.parametrize(
    ("variable", "content", "problem"),
    [
        ("SSL_CERT_FILE", None, "SSL_CERT_FILE /place: cannot be read: No such file"),
        ("SSL_CERT_FILE", "", "SSL_CERT_FILE /place: holds no certificate in PEM"),
        ("SSL_CERT_DIR", "", "SSL_CERT_DIR /place: is no directory"),
    ],
)
def test_authorities_of_the_environment_that_cannot_be_read_are_named(
    variable: str, content: str | None, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "authorities.pem"
    if content is not None:
        place.write_text(content)
    for name in ("SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(variable, str(place))

    outcome = denied()

    assert isinstance(outcome, AccessDenied)
    assert outcome.message.replace(str(place), "/place").startswith(problem)


def test_whatever_a_protocol_of_another_package_raises_is_the_reason_without_the_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError(f"cannot use {KEY}")

    monkeypatch.setattr(registry, "build_provider", broken)

    outcome = denied(KEY)

    assert isinstance(outcome, AccessDenied)
    assert outcome.message == "cannot use ***"


def test_a_file_below_the_users_home_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    said = {"protocol": "openai", "base_url": "http://host/v1", "ca_file": "~/ca.pem"}

    assert Connection.model_validate(said).ca_file == tmp_path / "ca.pem"
