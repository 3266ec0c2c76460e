"""A configured connection becomes a provider, or a configuration error that says what to change."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, get_args

import pytest
from pydantic import SecretStr, ValidationError

from fairlane.config.connections.checks import PROTOCOL_GROUP
from fairlane.config.connections.connection import Connection, LimitHeaders
from fairlane.config.connections.presets import PROTOCOLS
from fairlane.core.clock import ManualClock
from fairlane.core.errors import ConfigurationError
from fairlane.model.hints import Axis, AxisHint, Hints
from fairlane.model.outcome import Outcome, RateLimited, Success
from fairlane.model.tokens import Usage
from fairlane_workers.providers.contract import Request
from fairlane_workers.providers.limits.table import DIALECTS
from fairlane_workers.providers.protocols.openai.chat import OpenAIChat
from fairlane_workers.providers.registry import build_provider
from tests.support.classified import HTTP_PROTOCOLS, connection_of, dialect_of
from tests.support.documents import ROOT, blocks
from tests.support.scripted_server import http, scripted_server
from tests.support.wires import OpenAIChatWire

AddPackage = Callable[[str, str, str], None]

REQUEST = Request("m", [{"role": "user", "content": "hi"}], {}, False, 5.0, 1024)


def connection(base_url: str = "https://api.example/v1", limit_headers: str | None = None) -> Connection:
    said = {"protocol": "openai", "base_url": base_url, "limit_headers": limit_headers}
    return Connection.model_validate(said)


def test_every_protocol_of_the_settings_is_an_entry_point_of_ours() -> None:
    own = {
        point.name
        for point in entry_points(group=PROTOCOL_GROUP)
        if point.dist is not None and point.dist.name == "fairlane"
    }
    assert own == set(PROTOCOLS)


@pytest.mark.parametrize("protocol", HTTP_PROTOCOLS)
def test_a_dialect_has_the_name_of_its_entry_point(protocol: str) -> None:
    assert dialect_of(connection_of(protocol)).protocol == protocol


# A protocol that another package adds


@pytest.fixture
def add_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AddPackage:
    """Installs a package with one module and one protocol."""

    def add(protocol: str, module: str, source: str) -> None:
        (tmp_path / f"{module}.py").write_text(source)
        metadata = tmp_path / f"{module}-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
        (metadata / "entry_points.txt").write_text(f"[{PROTOCOL_GROUP}]\n{protocol} = {module}:Spoken\n")

    monkeypatch.syspath_prepend(tmp_path)
    return add


(GUIDE,) = blocks(ROOT / "docs" / "providers.md", "python", "Protocols")
GOPHER = f"{GUIDE.text}\nSpoken = Gopher\n"
MENU = {"text": "a menu", "tokens": {"in": 7, "out": 3}, "stopped": "end"}


def test_a_connection_speaks_the_protocol_that_an_installed_package_adds(add_package: AddPackage) -> None:
    add_package("gopher", "gopher_protocol", GOPHER)

    limits = {"X-Gopher-Limit": "60", "X-Gopher-Remaining": "0", "X-Gopher-Reset": "30"}

    async def scenario() -> tuple[list[Outcome], str]:
        answers = [[http(200, MENU, limits)], [http(429, {"message": "too fast"}, limits)]]
        async with scripted_server(answers) as server:
            gopher = Connection.model_validate({"protocol": "gopher", "base_url": server.url})
            provider = build_provider("burrow", gopher, None)
            outcomes = [await provider.call(REQUEST) for _ in answers]
            await provider.aclose()
            return outcomes, server.received[0].path

    (answer, rejection), path = asyncio.run(scenario())
    hints = {"requests": AxisHint(60.0, 0, 30_000)}
    assert answer == Success("a menu", Usage(7, 3), "end", hints=Hints(hints))  # type: ignore[arg-type]
    assert rejection == RateLimited("too fast", retry_after_ms=30_000, hints=Hints(hints, "requests"))  # type: ignore[arg-type]
    assert path == "/menu"


def test_a_package_may_add_a_provider_of_its_own(add_package: AddPackage) -> None:
    add_package("pigeon", "pigeon_protocol", "def Spoken(*given): return given")
    pigeon = Connection.model_validate({"protocol": "pigeon", "base_url": "https://loft.example"})
    clock = ManualClock()
    built: Any = build_provider("loft", pigeon, SecretStr(" k "), clock=clock)
    assert built == ("loft", pigeon, SecretStr("k"), clock)


def test_a_package_cannot_replace_a_protocol_of_ours(add_package: AddPackage) -> None:
    add_package("openai", "other_openai", "raise RuntimeError")
    assert isinstance(dialect_of(connection()), OpenAIChat)


def test_settings_know_an_added_protocol_without_importing_it(add_package: AddPackage) -> None:
    add_package("gopher", "broken_gopher", "raise ImportError('no burrow')")
    gopher = Connection.model_validate({"protocol": "gopher", "base_url": "https://hole.example"})
    assert gopher.lane_parts == ("credential", "base_url", "model")
    with pytest.raises(ConfigurationError, match=r"connections\.hole\.protocol.*no burrow"):
        build_provider("hole", gopher, None)


def test_a_protocol_that_nobody_provides_answers_with_the_nearest_name() -> None:
    with pytest.raises(ValidationError) as caught:
        Connection.model_validate({"protocol": "opena", "base_url": "https://x.example"})
    (problem,) = caught.value.errors()
    assert problem["loc"] == ("protocol",)
    assert "Did you mean 'openai'?" in problem["ctx"]["remedy"]


# Building a provider


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
    assert set(get_args(LimitHeaders)) == set(DIALECTS)


def test_limit_headers_that_nobody_reads_are_refused() -> None:
    with pytest.raises(ValidationError, match="limit_headers"):
        connection(limit_headers="gopher")


@pytest.mark.parametrize(("limit_headers", "axis"), [(None, "requests"), ("groq", "day")])
def test_limits_are_read_as_the_connection_says(limit_headers: LimitHeaders | None, axis: Axis) -> None:
    shown = {"x-ratelimit-limit-requests": "1000", "x-ratelimit-remaining-requests": "990"}

    async def scenario() -> None:
        async with scripted_server([[http(200, OpenAIChatWire().whole("x"), shown)]]) as server:
            provider = build_provider("c", connection(server.url, limit_headers=limit_headers), None)
            outcome = await provider.call(REQUEST)
            await provider.aclose()
            assert isinstance(outcome, Success)
            assert outcome.hints is not None
            assert list(outcome.hints.axes) == [axis]

    asyncio.run(scenario())
