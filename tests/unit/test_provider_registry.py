"""A configured connection becomes a provider, or a configuration error that says what to change."""

from __future__ import annotations

import asyncio
from typing import get_args

import pytest
from pydantic import SecretStr, ValidationError

from fairlane.connection import Connection, LimitHeaders
from fairlane.errors import ConfigurationError
from fairlane.hints import Axis
from fairlane.job import Success
from fairlane_workers.providers import limits
from fairlane_workers.providers.contract import Request
from fairlane_workers.providers.registry import DIALECTS, build_provider
from tests.support.classified import connection_of
from tests.support.scripted_server import http, scripted_server
from tests.support.wires import OpenAIChatWire

REQUEST = Request("m", [{"role": "user", "content": "hi"}], {}, False, 5.0, 1024)


def connection(base_url: str = "https://api.example/v1", limit_headers: str | None = None) -> Connection:
    said = {"protocol": "openai", "base_url": base_url, "limit_headers": limit_headers}
    return Connection.model_validate(said)


def test_every_protocol_of_the_settings_has_a_dialect() -> None:
    for protocol, dialect in DIALECTS.items():
        made = connection_of(protocol)
        assert dialect(made).protocol == made.protocol == protocol


def test_building_opens_nothing_and_needs_no_event_loop() -> None:
    provider = build_provider("openai", connection(), SecretStr("k"))
    assert repr(provider) == "HttpProvider('openai', 'openai')"
    asyncio.run(provider.aclose())


def test_an_unknown_protocol_is_named_with_the_known_ones() -> None:
    strange = connection().model_copy(update={"protocol": "gopher"})
    with pytest.raises(ConfigurationError, match=r"connections\.c\.protocol.*'gopher'.*anthropic.*openai"):
        build_provider("c", strange, None)


@pytest.mark.parametrize("base_url", ["http://", "https:///v1", "http://[::1", "http://host:port/v1"])
def test_a_base_url_that_leads_nowhere_is_refused(base_url: str) -> None:
    with pytest.raises(ConfigurationError, match=r"connections\.c\.base_url"):
        build_provider("c", connection(base_url), None)


def test_a_password_in_a_base_url_is_refused_and_not_shown() -> None:
    with pytest.raises(ConfigurationError) as caught:
        build_provider("c", connection("https://me:hunter2@api.example/v1"), None)
    assert "hunter2" not in str(caught.value)
    assert "api_key_env" in str(caught.value)


@pytest.mark.parametrize("key", ["a b", "a\nb", "a\x00b", "schlüssel"])
def test_a_key_that_no_header_can_carry_is_refused_and_not_shown(key: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        build_provider("c", connection(), SecretStr(key))
    assert key not in str(caught.value)


@pytest.mark.parametrize(("key", "sent"), [(" k\n", "Bearer k"), ("\n", None), ("", None)])
def test_space_around_a_key_is_not_part_of_it(key: str, sent: str | None) -> None:
    async def scenario() -> str | None:
        async with scripted_server([[http(200, OpenAIChatWire().whole("x"))]]) as server:
            provider = build_provider("c", connection(server.url), SecretStr(key))
            await provider.call(REQUEST)
            await provider.aclose()
            return server.received[0].headers.get("authorization")

    assert asyncio.run(scenario()) == sent


@pytest.mark.parametrize(
    ("suffix", "path"),
    [
        ("", "/chat/completions"),
        ("/", "/chat/completions"),
        ("/v1", "/v1/chat/completions"),
        ("/v1/", "/v1/chat/completions"),
        ("/dep?api-version=1", "/dep/chat/completions?api-version=1"),
    ],
)
def test_the_path_follows_the_base_url_and_keeps_its_query(suffix: str, path: str) -> None:
    async def scenario() -> str:
        async with scripted_server([[http(200, OpenAIChatWire().whole("x"))]]) as server:
            provider = build_provider("c", connection(server.url + suffix), None)
            await provider.call(REQUEST)
            await provider.aclose()
            return server.received[0].path

    assert asyncio.run(scenario()) == path


def test_the_settings_name_the_limit_dialects_that_workers_read() -> None:
    assert set(get_args(LimitHeaders)) == set(limits.DIALECTS)


def test_limit_headers_that_nobody_reads_are_refused() -> None:
    with pytest.raises(ValidationError, match="limit_headers"):
        connection(limit_headers="gopher")


@pytest.mark.parametrize(("limit_headers", "axis"), [(None, "requests"), ("groq", "day")])
def test_limits_are_read_as_the_connection_says(limit_headers: LimitHeaders | None, axis: Axis) -> None:
    told = {"x-ratelimit-limit-requests": "1000", "x-ratelimit-remaining-requests": "990"}

    async def scenario() -> None:
        async with scripted_server([[http(200, OpenAIChatWire().whole("x"), told)]]) as server:
            provider = build_provider("c", connection(server.url, limit_headers=limit_headers), None)
            outcome = await provider.call(REQUEST)
            await provider.aclose()
            assert isinstance(outcome, Success)
            assert outcome.hints is not None
            assert list(outcome.hints.axes) == [axis]

    asyncio.run(scenario())
