"""What the workers' transport costs, over TLS to a real server that speaks both versions of HTTP."""

from __future__ import annotations

import asyncio
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import aiohttp
import httpx

from fairlane.local.ports import LOOPBACK, wished_or_free
from fairlane_workers.transport import Transport
from tests.benchmarks.report import Finding
from tests.support.tls import Certificates
from tests.support.wait import wait_until

NAME = "transport"
IN_FLIGHT = (1, 32, 256, 512)
LATENCIES_MS = (0, 50)
ROUNDS = 3
CALLS_EACH, CALLS_LEAST = 4, 40
LIMIT_S = 60.0
BODY = b'{"messages": [{"role": "user", "content": "%s"}]}' % (b"x" * 1500)

Caller = Callable[[], Awaitable[None]]


@dataclass(frozen=True)
class Seen:
    """Of one client: CPU time a call in this process and calls a second, each the median of the rounds;
    connections and calls, of all rounds.
    """

    cpu_s: float
    rate: float
    connections: int
    calls: int


def transport() -> Iterator[Finding]:
    """HTTP/2 against HTTP/1.1, both against plain aiohttp; connections opened at hundreds in flight."""
    with TemporaryDirectory() as folder, _server(Path(folder)) as (url, ca):
        for milliseconds in LATENCIES_MS:
            for in_flight in IN_FLIGHT:
                yield from _compare(f"{url}/{milliseconds}", ca, in_flight, f"{milliseconds} ms")


def _compare(url: str, ca: Path, in_flight: int, latency: str) -> Iterator[Finding]:
    plain, first, second = asyncio.run(_measure(url, ca, in_flight))
    at = f"{in_flight} in flight, {latency}"
    ours = f"{first.cpu_s * 1e6:.0f} µs, plain aiohttp {plain.cpu_s * 1e6:.0f} µs"
    yield Finding(NAME, f"{at}: CPU a call ÷ plain aiohttp", first.cpu_s / plain.cpu_s, bar=1.5, note=ours)
    both = f"{second.cpu_s * 1e6:.0f} µs, HTTP/1.1 {first.cpu_s * 1e6:.0f} µs"
    yield Finding(NAME, f"{at}: CPU a call, HTTP/2 ÷ HTTP/1.1", second.cpu_s / first.cpu_s, note=both)
    rates = f"{second.rate:,.0f}/s, HTTP/1.1 {first.rate:,.0f}/s"
    yield Finding(NAME, f"{at}: calls/s, HTTP/2 ÷ HTTP/1.1", second.rate / first.rate, note=rates)
    if in_flight < max(IN_FLIGHT):
        return
    for version, seen in (("HTTP/1.1", first), ("HTTP/2", second)):
        measure = f"{at}: connections opened ÷ calls, {version}"
        used = f"{seen.connections} for {seen.calls:,} calls"
        yield Finding(NAME, measure, seen.connections / seen.calls, bar=in_flight / seen.calls, note=used)


async def _measure(url: str, ca: Path, in_flight: int) -> tuple[Seen, Seen, Seen]:
    """Rounds take turns, so that what else the machine does meets all alike."""
    calls = max(CALLS_LEAST, in_flight * CALLS_EACH)
    agents = [f"{version}, {in_flight} to {url}" for version in ("aiohttp", "HTTP/1.1", "HTTP/2")]
    times: list[list[tuple[float, float]]] = [[] for _ in agents]
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(_plain_session(ca))
        clients: list[Caller] = [partial(_plainly, session, url, _headers(agents[0]))]
        for agent, http2 in zip(agents[1:], (False, True), strict=True):
            client = Transport(ca_file=ca, http2=http2)
            stack.push_async_callback(client.aclose)
            clients.append(partial(_through, client, httpx.URL(url), httpx.Headers(_headers(agent))))
        for _ in range(ROUNDS):
            for number, client_call in enumerate(clients):
                times[number].append(await _round(client_call, in_flight, calls))
        async with session.get(str(httpx.URL(url).join("/connections"))) as response:
            opened = await response.json()
    plain, first, second = (
        Seen(median(cpu for cpu, _ in some), median(rate for _, rate in some), opened[agent], calls * ROUNDS)
        for agent, some in zip(agents, times, strict=True)
    )
    return plain, first, second


def _plain_session(ca: Path) -> aiohttp.ClientSession:
    tls = ssl.create_default_context(cafile=ca)
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=30, ssl=tls))


def _headers(agent: str) -> dict[str, str]:
    return {"content-type": "application/json", "accept-encoding": "identity", "user-agent": agent}


async def _plainly(session: aiohttp.ClientSession, url: str, headers: dict[str, str]) -> None:
    async with session.post(url, data=BODY, headers=headers) as response:
        await response.read()


async def _through(client: Transport, url: httpx.URL, headers: httpx.Headers) -> None:
    reply = await client.send("POST", url, headers, BODY)
    async for _ in reply.chunks(1 << 20):
        pass
    await reply.aclose()


async def _round(call: Caller, in_flight: int, calls: int) -> tuple[float, float]:
    """CPU seconds a call and calls a second; a call that fails ends the benchmark."""
    left = iter(range(calls))

    async def caller() -> None:
        for _ in left:
            await call()

    cpu, began = time.process_time(), time.perf_counter()
    async with asyncio.timeout(LIMIT_S):
        await asyncio.gather(*(caller() for _ in range(in_flight)))
    return (time.process_time() - cpu) / calls, calls / (time.perf_counter() - began)


@contextmanager
def _server(folder: Path) -> Iterator[tuple[str, Path]]:
    """hypercorn, in a process of its own."""
    made = Certificates(folder)
    certificate, key = made.issue("server", LOOPBACK)
    port = next(wished_or_free(None))
    configuration = folder / "hypercorn.toml"
    configuration.write_text(
        f'bind = "{LOOPBACK}:{port}"\ncertfile = "{certificate}"\nkeyfile = "{key}"\n'
        'loglevel = "ERROR"\nbacklog = 2048\nkeep_alive_timeout = 60\nkeep_alive_max_requests = 1000000000\n'
    )
    command = [
        sys.executable,
        "-m",
        "hypercorn",
        "-c",
        str(configuration),
        "tests.benchmarks.answering_app:app",
    ]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        wait_until(lambda: _listens(port), timeout=20)
        yield f"https://{LOOPBACK}:{port}", made.ca
    finally:
        process.terminate()
        process.wait()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex((LOOPBACK, port)) == 0
