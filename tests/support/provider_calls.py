"""Makes one call to a provider over a scripted server, for the suites of providers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from pydantic import SecretStr

from fairlane.config.connections.connection import Connection
from fairlane.core.clock import ManualClock
from fairlane.model.outcome import Outcome
from fairlane_workers.providers.contract import Provider, Request
from fairlane_workers.providers.registry import build_provider
from tests.support.scripted_server import (
    Exchange,
    ScriptedServer,
    chunk,
    scripted_server,
    stream_head,
)
from tests.support.wires import WIRES, Wire

KEY = "sk-live-0123456789abcdef"

every_protocol = pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.protocol)
every_protocol_that_tells_its_end = pytest.mark.parametrize(
    "wire", [wire for wire in WIRES if wire.streams and wire.has_end_event], ids=lambda wire: wire.protocol
)
every_streaming_protocol = pytest.mark.parametrize(
    "wire", [wire for wire in WIRES if wire.streams], ids=lambda wire: wire.protocol
)
protocol_streamed_or_not = pytest.mark.parametrize(
    ("wire", "stream"),
    [(wire, stream) for wire in WIRES for stream in (True, False) if wire.streams or not stream],
    ids=lambda each: each.protocol if isinstance(each, Wire) else "stream" if each else "whole",
)
streamed_or_not = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])


def ask(stream: bool = False, timeout_s: float = 30.0, max_bytes: int = 1 << 20, **params: Any) -> Request:
    return Request("m-1", [{"role": "user", "content": "hi"}], params, stream, timeout_s, max_bytes)


@asynccontextmanager
async def provider_of(wire: Wire, url: str, **settings: Any) -> AsyncIterator[Provider]:
    connection = Connection.model_validate({**wire.settings(url), **settings})
    provider = build_provider("c", connection, SecretStr(KEY), clock=ManualClock())
    try:
        yield provider
    finally:
        await provider.aclose()


def call(
    wire: Wire,
    request: Request,
    *script: Exchange,
    on_chunk: Callable[[str], Awaitable[None]] | None = None,
    loop: asyncio.AbstractEventLoop | None = None,
) -> tuple[Outcome, ScriptedServer]:
    """The outcome of one call to a server that answers with the script. Closes ``loop``."""

    async def scenario() -> tuple[Outcome, ScriptedServer]:
        async with scripted_server(script) as server, provider_of(wire, server.url) as provider:
            return await provider.call(request, on_chunk), server

    with asyncio.Runner(loop_factory=loop and (lambda: loop)) as runner:
        return runner.run(scenario())


def whole_stream(wire: Wire, *texts: str) -> bytes:
    return wire.begin() + b"".join(map(wire.piece, texts)) + wire.finish() + wire.end()


def opened(wire: Wire, headers: dict[str, str] | None = None) -> bytes:
    """The response head of a stream in this protocol."""
    return stream_head({"content-type": wire.stream_type, **(headers or {})})


def streamed(wire: Wire, data: bytes, *, size: int | None = None) -> Exchange:
    """A complete chunked stream, in HTTP chunks of ``size`` bytes."""
    step = size or len(data)
    return [opened(wire), *(chunk(data[at : at + step]) for at in range(0, len(data), step)), chunk(b"")]
