"""Calls carry a token of Google's: fetched once, renewed in time, and what goes wrong has its outcome."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from pydantic import SecretStr

from fairlane.config.connections.connection import Connection
from fairlane.core.clock import ManualClock
from fairlane.core.errors import ConfigurationError
from fairlane.model.outcome import AccessDenied, NetworkFailure, Outcome, Success
from fairlane_workers.providers.auth.authorizer import CredentialError
from fairlane_workers.providers.auth.google import RENEW_MS, GoogleRequests, GoogleToken, google_token
from fairlane_workers.providers.registry import build_provider
from fairlane_workers.transport import TransportError
from tests.support.provider_calls import ask
from tests.support.scripted_server import ScriptedServer, http, scripted_server
from tests.support.token_server import TokenServer, token_server
from tests.support.wires.gemini import VertexWire

URL = httpx.URL("https://example.invalid/v1")


@pytest.fixture
def server() -> Iterator[TokenServer]:
    with token_server() as served:
        yield served


def connection(url: str = "http://127.0.0.1:9", **more: Any) -> Connection:
    settings = {**VertexWire().settings(url), "auth": "google", **more}
    return Connection.model_validate(settings)


def made(server: TokenServer, clock: ManualClock | None = None) -> GoogleToken:
    token = google_token("c", connection(), SecretStr(server.key()))
    return GoogleToken(token._credentials, clock=clock or ManualClock())


async def shown(token: GoogleToken) -> str:
    headers = httpx.Headers({"host": "example.invalid"})
    signed = await token.sign("POST", URL, headers, b"{}")
    assert "authorization" not in headers
    assert signed["host"] == "example.invalid"
    return signed["authorization"]


def test_calls_carry_a_token_that_is_fetched_once_for_all_of_them(server: TokenServer) -> None:
    async def scenario() -> list[str]:
        token = made(server)
        return [*await asyncio.gather(*(shown(token) for _ in range(20))), await shown(token)]

    assert set(asyncio.run(scenario())) == {"Bearer token-1"}
    (asked,) = server.asked
    assert asked["grant_type"] == "urn:ietf:params:oauth:grant-type:jwt-bearer"
    assert asked["assertion"].count(".") == 2


def test_a_token_is_renewed_before_it_ends_while_the_old_one_is_used(server: TokenServer) -> None:
    clock = ManualClock()

    async def scenario() -> None:
        token = made(server, clock)
        assert await shown(token) == "Bearer token-1"
        clock.advance(3600 - RENEW_MS / 1000 - 5)
        assert await shown(token) == "Bearer token-1"
        assert len(server.asked) == 1
        clock.advance(10)
        server.held.clear()
        assert [await shown(token) for _ in range(3)] == ["Bearer token-1"] * 3
        server.held.set()
        assert token._fetching is not None
        await token._fetching
        assert await shown(token) == "Bearer token-2"
        assert token.secrets == ("token-2", "token-1")

    asyncio.run(scenario())
    assert len(server.asked) == 2


def test_a_call_that_outlives_several_renewals_still_has_its_token_masked(server: TokenServer) -> None:
    clock = ManualClock()

    async def scenario() -> tuple[str, ...]:
        token = made(server, clock)
        for _ in range(3):
            await shown(token)
            clock.advance(3601)
        return token.secrets

    assert asyncio.run(scenario()) == ("token-3", "token-2", "token-1")


def test_a_token_that_has_ended_is_not_shown(server: TokenServer) -> None:
    clock = ManualClock()

    async def scenario() -> str:
        token = made(server, clock)
        await shown(token)
        clock.advance(3601)
        return await shown(token)

    assert asyncio.run(scenario()) == "Bearer token-2"


def test_a_renewal_that_fails_does_no_harm_while_the_token_lasts(server: TokenServer) -> None:
    clock = ManualClock()

    async def scenario() -> None:
        token = made(server, clock)
        await shown(token)
        server.status = 503
        clock.advance(3600 - 60)
        assert await shown(token) == "Bearer token-1"
        assert token._fetching is not None
        await token._fetching
        assert await shown(token) == "Bearer token-1"
        clock.advance(61)
        with pytest.raises(TransportError):
            await shown(token)
        server.status = 200
        clock.advance(6)
        assert await shown(token) == "Bearer token-4"

    asyncio.run(scenario())


@pytest.mark.parametrize(("age_s", "fetched"), [(1, 1), (60, 2)])
def test_a_token_that_google_rejects_is_fetched_anew_unless_it_is_new(
    server: TokenServer, age_s: int, fetched: int
) -> None:
    clock = ManualClock()

    async def scenario() -> str:
        token = made(server, clock)
        await shown(token)
        clock.advance(age_s)
        token.reject()
        token.reject()
        return (await asyncio.gather(*(shown(token) for _ in range(9))))[0]

    assert asyncio.run(scenario()) == f"Bearer token-{fetched}"
    assert len(server.asked) == fetched


def test_the_call_after_a_rejected_one_has_a_new_token(
    server: TokenServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlane_workers.providers.auth.google.FAILED_MS", 0)

    async def scenario() -> list[str]:
        denied, answer = http(401, {"error": {"message": "expired"}}), http(200, VertexWire().whole("x"))
        async with scripted_server([[answer], [denied], [answer]]) as vertex:
            key = SecretStr(server.key())
            provider = build_provider("c", connection(vertex.url), key, clock=ManualClock())
            try:
                for _ in range(3):
                    await provider.call(ask())
            finally:
                await provider.aclose()
            return [each.headers["authorization"] for each in vertex.received]

    assert asyncio.run(scenario()) == ["Bearer token-1", "Bearer token-1", "Bearer token-2"]


def test_a_caller_that_gives_up_does_not_stop_the_others(server: TokenServer) -> None:
    async def scenario() -> str:
        token = made(server)
        server.held.clear()
        first, second = asyncio.create_task(shown(token)), asyncio.create_task(shown(token))
        while not server.asked:
            await asyncio.wait({first}, timeout=0.01)
        first.cancel()
        server.held.set()
        return await second

    assert asyncio.run(scenario()) == "Bearer token-1"
    assert len(server.asked) == 1


async def failed(token: GoogleToken) -> Exception:
    with pytest.raises((CredentialError, TransportError)) as caught:
        await shown(token)
    return caught.value


def test_an_account_that_is_refused_is_no_credential_and_a_broken_server_is_the_network(
    server: TokenServer,
) -> None:
    server.status = 400
    refused = asyncio.run(failed(made(server)))
    assert isinstance(refused, CredentialError)
    assert "invalid_grant: Invalid JWT Signature." in str(refused)
    assert len(server.asked) == 1

    server.status = 503
    broken = asyncio.run(failed(made(server)))
    assert isinstance(broken, TransportError)
    assert "503" in str(broken)
    assert len(server.asked) == 2, "whoever wanted it tries again, nobody else"


def test_an_answer_that_the_library_cannot_read_is_no_credential(
    server: TokenServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    def misread(_: object) -> None:
        raise KeyError("access_token")

    token = made(server)
    monkeypatch.setattr(token._credentials, "refresh", misread)

    refused = asyncio.run(failed(token))

    assert isinstance(refused, CredentialError)
    assert "access_token" in str(refused)


def test_a_server_that_cannot_be_reached_is_the_network(server: TokenServer) -> None:
    server.url = "http://127.0.0.1:9/token"
    fault = asyncio.run(failed(made(server)))
    assert isinstance(fault, TransportError)
    assert "127.0.0.1: ConnectError" in str(fault)


def test_a_failure_is_reported_for_a_while_before_it_is_tried_again(server: TokenServer) -> None:
    clock = ManualClock()
    server.status = 400

    async def scenario() -> None:
        token = made(server, clock)
        for _ in range(3):
            await failed(token)
        clock.advance(6)
        await failed(token)

    asyncio.run(scenario())
    assert len(server.asked) == 2


def test_without_a_key_the_default_credentials_are_asked_for(
    server: TokenServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "key.json"
    file.write_text(server.key())
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
    assert asyncio.run(shown(google_token("c", connection(), None))) == "Bearer token-1"

    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "none.json"))
    missing = asyncio.run(failed(google_token("c", connection(), None)))
    assert isinstance(missing, CredentialError)
    assert "none.json" in str(missing)


@pytest.mark.parametrize(
    ("key", "problem"),
    [
        ("ya29.an-access-token", "is not JSON"),
        ('{"type": "authorized_user"}', "not the key of a service account"),
        ("[]", "not the key of a service account"),
        ('{"type": "service_account", "private_key": "secret-words"}', "a field is missing"),
    ],
)
def test_a_key_that_is_none_is_refused_and_not_shown(key: str, problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem) as caught:
        build_provider("c", connection(), SecretStr(key))
    assert caught.value.field == "connections.c.api_key_env"
    assert "GOOGLE_APPLICATION_CREDENTIALS" in caught.value.remedy
    assert key not in str(caught.value)
    assert "secret-words" not in str(caught.value)


def test_without_the_library_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "google.auth", None)
    with pytest.raises(ConfigurationError, match=r"fairlane\[vertex\]"):
        build_provider("c", connection(), None)


def called(
    server: TokenServer, answer: bytes, meddle: Callable[[], None] = lambda: None
) -> tuple[Outcome, ScriptedServer]:
    async def scenario() -> tuple[Outcome, ScriptedServer]:
        async with scripted_server([[answer]]) as vertex:
            key = SecretStr(server.key())
            provider = build_provider("c", connection(vertex.url), key, clock=ManualClock())
            meddle()
            try:
                return await provider.call(ask()), vertex
            finally:
                await provider.aclose()

    return asyncio.run(scenario())


def test_a_call_shows_the_token_and_its_answer_never_does(server: TokenServer) -> None:
    answered, vertex = called(server, http(200, VertexWire().whole("x")))
    assert isinstance(answered, Success)
    assert vertex.received[0].headers["authorization"] == "Bearer token-1"
    refused, _ = called(server, http(401, {"error": {"message": "bad token-2, sorry"}}))
    assert isinstance(refused, AccessDenied)
    assert refused.message == "bad ***, sorry"


@pytest.mark.parametrize(("status", "expected"), [(400, AccessDenied), (500, NetworkFailure)])
def test_a_call_without_a_token_is_not_made(server: TokenServer, status: int, expected: type) -> None:
    outcome, vertex = called(server, b"", partial(setattr, server, "status", status))
    assert type(outcome) is expected
    assert not vertex.received


def test_the_proxy_of_the_connection_is_not_for_googles_metadata() -> None:
    with GoogleRequests("http://127.0.0.1:9") as request:
        transports = request._transport_for_url
        direct = transports(httpx.URL("http://metadata.google.internal/x"))
        assert transports(httpx.URL("http://169.254.169.254/x")) is direct is request._transport
        assert transports(httpx.URL("https://oauth2.googleapis.com/token")) is not direct
