"""A connection's proxy and certificates reach the transport; errors name the connection's key."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from fairlane.config.connections.connection import Connection
from fairlane.core.errors import ConfigurationError
from fairlane_workers.providers.registry import build_provider, open_transport
from fairlane_workers.transport import Transport


def connection(**given: Any) -> Connection:
    return Connection.model_validate({"protocol": "openai", "base_url": "https://x.example/v1", **given})


class Recording(Transport):
    """A transport that only says what it was made with."""

    def __init__(self, connect_timeout_s: float = 10.0, **given: Any) -> None:
        self.given = {"connect_timeout_s": connect_timeout_s, **given}


def test_everything_that_is_said_reaches_the_transport(tmp_path: Path) -> None:
    said = {
        "connect_timeout": 3.5,
        "proxy": "http://proxy:3128",
        "ca_file": tmp_path / "ca.pem",
        "client_certificate": tmp_path / "me.pem",
    }
    assert open_transport("c", connection(**said), kind=Recording).given == {
        "connect_timeout_s": 3.5,
        **{name: value for name, value in said.items() if name != "connect_timeout"},
    }


def test_what_a_proxy_wants_to_see_is_added_to_its_address() -> None:
    given = connection(proxy="http://proxy:3128")
    opened = open_transport("c", given, SecretStr("me:p@ss"), kind=Recording)
    assert opened.given["proxy"] == "http://me:p%40ss@proxy:3128"
    assert open_transport("c", connection(), SecretStr("me:p@ss"), kind=Recording).given["proxy"] is None


@pytest.mark.parametrize("field", ["ca_file", "client_certificate"])
@pytest.mark.parametrize("text", [None, "no certificate"])
def test_a_file_that_is_no_use_is_reported_as_the_connections_key(
    tmp_path: Path, field: str, text: str | None
) -> None:
    file = tmp_path / "x.pem"
    if text is not None:
        file.write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        build_provider("c", connection(**{field: file}), None)
    assert (caught.value.field, caught.value.value) == (f"connections.c.{field}", str(file))
    assert caught.value.remedy


def test_nothing_is_opened_when_a_provider_is_built() -> None:
    asyncio.run(build_provider("c", connection(proxy="http://nowhere.invalid:1"), None).aclose())
