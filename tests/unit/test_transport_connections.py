"""A kept connection serves a further call only while it is young, sound, and quiet."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from itertools import pairwise

import pytest

from fairlane_workers.transport import Transport, TransportError, pool
from fairlane_workers.transport.pool import AGE_VARIES, MOST_AGE_S, Connector
from tests.support.scripted_server import (
    Exchange,
    Fault,
    ScriptedServer,
    chunk,
    http,
    http_head,
    scripted_server,
    stream_head,
)
from tests.support.transport_calls import body_of, post, transport_of

WELL = http(200, b"{}")


class Hours:
    """A clock in place of `time.monotonic`, for the ages of connections alone."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Hours:
    clock = Hours()
    monkeypatch.setattr(pool, "monotonic", clock)
    return clock


def connections_of(*script: Exchange) -> list[int]:
    """The connection that each of some calls had, one after another."""

    async def scenario() -> list[int]:
        async with scripted_server(script) as server, transport_of() as transport:
            for _ in script:
                await body_of(await post(transport, server.url))
            return [received.connection for received in server.received]

    return asyncio.run(scenario())


# Soundness


@pytest.mark.parametrize("status", [408, 500, 502, 503, 504, 520, 529, 599])
@pytest.mark.parametrize("length", [True, False], ids=["length", "chunks"])
def test_a_server_fault_costs_its_connection(status: int, length: bool) -> None:
    """A balancer leads the next call to any replica; the kept connection leads it back to the broken one."""
    fault: Exchange = [http(status, b'{"error": "CUDA error"}')]
    if not length:
        head = http_head(status, {"transfer-encoding": "chunked"})
        fault = [head, chunk(b'{"error": "CUDA error"}'), chunk(b"")]
    assert connections_of([WELL], fault, [WELL], [WELL]) == [1, 1, 2, 2]


@pytest.mark.parametrize("status", [200, 204, 301, 400, 401, 404, 413, 422, 429])
def test_other_replies_keep_theirs(status: int) -> None:
    """A limit is the same over every connection: a gateway's 429 needs no new handshake."""
    reply = http_head(204, {}) if status == 204 else http(status, b"{}")
    assert connections_of([reply], [reply], [WELL]) == [1, 1, 1]


def test_a_connection_whose_answer_was_unsound_is_not_used_again() -> None:
    async def scenario(keep: bool) -> list[int]:
        async with scripted_server([[WELL], [WELL]]) as server, transport_of() as transport:
            reply = await post(transport, server.url)
            assert [chunk async for chunk in reply.chunks(100)] == [b"{}"]
            await reply.aclose(keep=keep)
            await body_of(await post(transport, server.url))
            return [received.connection for received in server.received]

    assert asyncio.run(scenario(True)) == [1, 1]
    assert asyncio.run(scenario(False)) == [1, 2]


def test_spoiling_a_connection_does_not_disturb_the_call_that_uses_it_by_now() -> None:
    """A short reply's connection is free as soon as it arrives, before its reader has judged it."""

    async def scenario() -> list[int]:
        script: Sequence[Exchange] = [[WELL], [WELL], [WELL]]
        async with scripted_server(script) as server, transport_of() as transport:
            first = await post(transport, server.url)
            second = await post(transport, server.url)
            await first.aclose(keep=False)
            assert await body_of(second) == b"{}"
            await body_of(await post(transport, server.url))
            return [received.connection for received in server.received]

    assert asyncio.run(scenario()) == [1, 1, 2]


def test_bytes_that_nobody_asked_for_are_not_read_as_the_next_reply() -> None:
    """A balancer's 408 on an idle connection, for one."""

    async def scenario() -> tuple[bytes, int]:
        async with scripted_server([[WELL], [http(200, b"mine")]]) as server, transport_of() as transport:
            await body_of(await post(transport, server.url))
            (writer,) = server.open.values()
            writer.write(http(408, b"idle for too long"))
            await writer.drain()
            reply = await post(transport, server.url)
            return await body_of(reply), reply.status

    assert asyncio.run(scenario()) == (b"mine", 200)


# Age


async def call(server: ScriptedServer, transport: Transport, count: int = 1) -> None:
    replies = await asyncio.gather(*(post(transport, server.url) for _ in range(count)))
    for reply in replies:
        await body_of(reply)


def test_a_connection_in_constant_use_is_replaced_after_a_minute_or_so(clock: Hours) -> None:
    async def scenario() -> list[float]:
        opened: list[float] = []
        async with scripted_server([[WELL]] * 400) as server, transport_of() as transport:
            for _ in range(400):
                before = server.connections
                await call(server, transport)
                if server.connections > before:
                    opened.append(clock.now)
                clock.now += 1.0
        return opened

    opened = asyncio.run(scenario())
    ages = [after - before for before, after in pairwise(opened)]
    assert len(ages) >= 4
    assert min(ages) >= MOST_AGE_S * (1 - AGE_VARIES)
    assert max(ages) <= MOST_AGE_S * (1 + AGE_VARIES) + 1


def test_connections_of_one_burst_are_not_all_replaced_at_once(clock: Hours) -> None:
    together = 40

    async def scenario() -> list[int]:
        counts = []
        async with scripted_server([[WELL]] * 10_000) as server, transport_of() as transport:
            for _ in range(16):
                before = server.connections
                await call(server, transport, together)
                counts.append(server.connections - before)
                clock.now += 5.0
        return counts

    first, *later = asyncio.run(scenario())
    assert first == together
    assert sum(later) >= together, "each has been replaced"
    assert max(later) < together / 2


def test_a_call_in_flight_outlives_its_connections_age(clock: Hours) -> None:
    async def scenario() -> list[int]:
        slow: Exchange = [stream_head(), chunk(b"a"), chunk(b"b"), chunk(b"")]
        async with scripted_server([slow, [WELL]]) as server, transport_of() as transport:
            reply = await post(transport, server.url)
            clock.now += 10 * MOST_AGE_S
            assert await body_of(reply) == b"ab"
            await call(server, transport)
            return [received.connection for received in server.received]

    assert asyncio.run(scenario()) == [1, 2]


# What is remembered


def test_nothing_is_remembered_of_connections_that_are_lost() -> None:
    async def scenario() -> Connector:
        script: list[Exchange] = [[http(500, b"{}")], [Fault.CLOSE], [Fault.RESET], [WELL]] * 5
        async with scripted_server(script) as server, transport_of() as transport:
            for _ in script:
                with suppress(TransportError):
                    await body_of(await post(transport, server.url))
            pool = transport._pool
            assert pool is not None
            assert len(pool._connector._lines) <= 2
            return pool._connector

    assert not asyncio.run(scenario())._lines
