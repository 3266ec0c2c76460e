"""Calls through a proxy of either scheme, to servers of either scheme."""

from __future__ import annotations

import asyncio
import base64
import logging
import socket
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from fairlane_workers.transport import Transport, TransportError, UnusableSettingError, with_credentials
from tests.support.proxy_server import ProxyServer, proxy_server
from tests.support.scripted_server import ScriptedServer, http, scripted_server
from tests.support.tls import Certificates
from tests.support.transport_calls import body_of, post, serving, transport_of

SECRET = "p@ss:w/rd"
SHOWN = "Basic " + base64.b64encode(f"worker:{SECRET}".encode()).decode()

either_proxy = pytest.mark.parametrize("secure", [False, True], ids=["http proxy", "https proxy"])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


def proxy_of(made: Certificates, secure: bool, **options: Any) -> Any:
    return proxy_server(tls=serving(made.issue("proxy")) if secure else None, **options)


def secure_server(made: Certificates) -> AbstractAsyncContextManager[ScriptedServer]:
    return scripted_server([[http(200, b"{}")] for _ in range(4)], serving(made.issue("server")))


def seen_by(server: ScriptedServer) -> list[dict[str, str]]:
    return [received.headers for received in server.received]


@either_proxy
def test_an_https_server_is_reached_through_a_tunnel_that_sees_nothing(
    secure: bool, made: Certificates
) -> None:
    async def scenario() -> tuple[ProxyServer, list[dict[str, str]], str]:
        async with secure_server(made) as server, proxy_of(made, secure) as proxy:
            async with transport_of(proxy=proxy.url, ca_file=made.ca) as transport:
                for _ in range(2):
                    reply = await post(transport, server.url, b'{"a": 1}', authorization="Bearer key")
                    assert await body_of(reply) == b"{}"
            return proxy, seen_by(server), server.url

    proxy, seen, url = asyncio.run(scenario())
    assert [first for first, _ in proxy.asked] == [f"CONNECT localhost:{url.rpartition(':')[2]} HTTP/1.1"]
    assert "authorization" not in proxy.asked[0][1]
    assert b"Bearer key" not in b"".join(proxy.forwarded)
    assert [headers["authorization"] for headers in seen] == ["Bearer key"] * 2


@either_proxy
def test_an_http_server_is_reached_through_it(secure: bool, made: Certificates) -> None:
    async def scenario() -> tuple[ProxyServer, ScriptedServer]:
        async with scripted_server([[http(200, b"{}")]]) as server, proxy_of(made, secure) as proxy:
            async with transport_of(proxy=proxy.url, ca_file=made.ca) as transport:
                assert await body_of(await post(transport, server.url, b"body")) == b"{}"
            return proxy, server

    proxy, server = asyncio.run(scenario())
    assert proxy.asked[0][0].startswith("POST http://127.0.0.1:")
    assert server.received[0].body == b"body"


@either_proxy
def test_credentials_are_shown_to_the_proxy_and_never_to_the_server_or_the_log(
    secure: bool, made: Certificates, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)

    async def scenario() -> tuple[ProxyServer, list[dict[str, str]], str]:
        async with secure_server(made) as server, proxy_of(made, secure, wants=SHOWN) as proxy:
            url = with_credentials(proxy.url, f"worker:{SECRET}\n")
            async with transport_of(proxy=url, ca_file=made.ca) as transport:
                await body_of(await post(transport, server.url))
                return proxy, seen_by(server), repr(vars(transport))

    proxy, seen, shown = asyncio.run(scenario())
    assert proxy.asked[0][1]["proxy-authorization"] == SHOWN
    assert all("proxy-authorization" not in headers for headers in seen)
    reported = shown + caplog.text
    assert SECRET not in reported
    assert SHOWN.removeprefix("Basic ") not in reported


def test_credentials_are_shown_for_an_http_server_too_and_not_passed_on(made: Certificates) -> None:
    async def scenario() -> ScriptedServer:
        async with (
            scripted_server([[http(200, b"{}")]]) as server,
            proxy_of(made, False, wants=SHOWN) as proxy,
        ):
            async with transport_of(proxy=with_credentials(proxy.url, f"worker:{SECRET}")) as transport:
                await body_of(await post(transport, server.url))
            return server

    for received in asyncio.run(scenario()).received:
        assert "proxy-authorization" not in received.headers


def fault(made: Certificates, proxy_url: str, target: str) -> str:
    async def scenario() -> str:
        async with transport_of(proxy=proxy_url, ca_file=made.ca) as transport:
            with pytest.raises(TransportError) as caught:
                await post(transport, target)
        return str(caught.value)

    return asyncio.run(scenario())


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_proxy_that_wants_other_credentials_is_named(scheme: str, made: Certificates) -> None:
    async def scenario() -> str:
        async with proxy_of(made, False, wants=SHOWN) as proxy:
            url = with_credentials(proxy.url, "worker:wrong-password")
            async with transport_of(proxy=url) as transport:
                with pytest.raises(TransportError) as caught:
                    await post(transport, f"{scheme}://localhost:9")
            return str(caught.value)

    text = asyncio.run(scenario())
    assert text == "the proxy wants other credentials (status 407)"


def test_a_proxy_that_does_not_connect_is_named(made: Certificates) -> None:
    async def scenario(answer: bytes) -> str:
        async with proxy_of(made, False, answer=answer) as proxy:
            async with transport_of(proxy=proxy.url) as transport:
                with pytest.raises(TransportError) as caught:
                    await post(transport, "https://localhost:9")
            return str(caught.value)

    gone = b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 3\r\n\r\nno!"
    assert asyncio.run(scenario(gone)) == "the proxy did not connect to the provider (status 502)"


@pytest.mark.parametrize("answer", [b"", b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 20_000])
def test_a_proxy_that_speaks_no_http_is_a_fault(answer: bytes, made: Certificates) -> None:
    async def scenario() -> None:
        async with (
            proxy_of(made, False, answer=answer) as proxy,
            transport_of(proxy=proxy.url) as transport,
        ):
            with pytest.raises(TransportError):
                await post(transport, "https://localhost:9")

    asyncio.run(scenario())


def test_a_proxy_that_refuses_connections_is_named(made: Certificates) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        text = fault(made, f"http://127.0.0.1:{port}", "https://localhost:9")
    assert text.startswith("the proxy: ")
    assert f"127.0.0.1:{port}" in text


def test_a_proxy_nobody_vouches_for_is_refused(made: Certificates) -> None:
    async def scenario() -> str:
        async with proxy_of(made, True) as proxy, transport_of(proxy=proxy.url) as transport:
            with pytest.raises(TransportError) as caught:
                await post(transport, "https://localhost:9")
        return str(caught.value)

    text = asyncio.run(scenario())
    assert text.startswith("the proxy: ")
    assert "CERTIFICATE_VERIFY_FAILED" in text


def test_a_proxy_that_keeps_silent_is_left_after_the_connect_timeout(made: Certificates) -> None:
    async def scenario() -> None:
        async with (
            proxy_of(made, False, silent=True) as proxy,
            transport_of(connect_timeout_s=0.1, proxy=proxy.url) as transport,
        ):
            with pytest.raises(TransportError, match="ConnectionTimeoutError"):
                await asyncio.wait_for(post(transport, "https://localhost:9"), 5)

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("socks5://proxy.example:1080", "'socks5' is no supported kind of proxy"),
        ("proxy.example:3128", "no supported kind of proxy|has no scheme"),
        ("//proxy.example", "has no scheme"),
        ("http://", "names no host"),
        ("http://proxy.example/path", "names no host, or more"),
        ("http://proxy.example:port", "is not a URL"),
        ("", "has no scheme"),
    ],
)
def test_what_is_no_proxy_is_reported_when_the_transport_is_made(url: str, problem: str) -> None:
    with pytest.raises(UnusableSettingError, match=problem) as caught:
        Transport(proxy=url)
    assert caught.value.field == "proxy"


def test_a_proxy_that_cannot_be_used_does_not_give_away_its_password() -> None:
    with pytest.raises(UnusableSettingError) as caught:
        Transport(proxy="socks5://worker:hunter2@proxy.example:1080")
    assert "hunter2" not in str(caught.value)
