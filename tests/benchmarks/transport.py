"""What the workers' transport costs, over TLS to a real server."""

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

from fairlane.embedded.ports import LOOPBACK, preferred_or_free
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
    """The transport against plain aiohttp, and the connections it opens at hundreds of calls in flight."""
    with TemporaryDirectory() as folder, _server(Path(folder)) as (url, ca):
        for milliseconds in LATENCIES_MS:
            for in_flight in IN_FLIGHT:
                yield from _compare(f"{url}/{milliseconds}", ca, in_flight, f"{milliseconds} ms")


def _compare(url: str, ca: Path, in_flight: int, latency: str) -> Iterator[Finding]:
    plain, ours = asyncio.run(_measure(url, ca, in_flight))
    at = f"{in_flight} in flight, {latency}"
    note = f"{ours.cpu_s * 1e6:.0f} µs, plain aiohttp {plain.cpu_s * 1e6:.0f} µs"
    yield Finding(NAME, f"{at}: CPU a call ÷ plain aiohttp", ours.cpu_s / plain.cpu_s, bar=1.5, note=note)
    if in_flight == max(IN_FLIGHT):
        used = f"{ours.connections} for {ours.calls:,} calls"
        bar = in_flight / ours.calls
        yield Finding(
            NAME, f"{at}: connections opened ÷ calls", ours.connections / ours.calls, bar=bar, note=used
        )


async def _measure(url: str, ca: Path, in_flight: int) -> tuple[Seen, Seen]:
    """Rounds take turns, so that other load on the machine slows both alike."""
    calls = max(CALLS_LEAST, in_flight * CALLS_EACH)
    agents = [f"{client}, {in_flight} to {url}" for client in ("aiohttp", "fairlane")]
    times: list[list[tuple[float, float]]] = [[] for _ in agents]
    async with AsyncExitStack() as stack:
        session = await stack.enter_async_context(_plain_session(ca))
        client = Transport(ca_file=ca)
        stack.push_async_callback(client.aclose)
        clients: list[Caller] = [
            partial(_plainly, session, url, _headers(agents[0])),
            partial(_through, client, httpx.URL(url), httpx.Headers(_headers(agents[1]))),
        ]
        for _ in range(ROUNDS):
            for number, client_call in enumerate(clients):
                times[number].append(await _round(client_call, in_flight, calls))
        async with session.get(str(httpx.URL(url).join("/connections"))) as response:
            opened = await response.json()
    plain, ours = (
        Seen(median(cpu for cpu, _ in some), median(rate for _, rate in some), opened[agent], calls * ROUNDS)
        for agent, some in zip(agents, times, strict=True)
    )
    return plain, ours


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
    """uvicorn, in a process of its own."""
    made = Certificates(folder)
    certificate, key = made.issue("server", LOOPBACK)
    port = next(preferred_or_free(None))
    options = {
        "--host": LOOPBACK,
        "--port": port,
        "--ssl-certfile": certificate,
        "--ssl-keyfile": key,
        "--log-level": "error",
        "--backlog": 2048,
        "--timeout-keep-alive": 60,
    }
    command = [sys.executable, "-m", "uvicorn", "tests.benchmarks.answering_app:app"]
    command += [str(part) for option in options.items() for part in option]
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
