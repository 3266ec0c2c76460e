"""Sockets to servers, and how they notice that a server is gone without a word."""

from __future__ import annotations

import asyncio
import socket
from typing import Any

from aiohappyeyeballs import start_connection

IDLE_S = 30  # below the idle timeouts of common NAT gateways and load balancers (AWS: 350 s, Azure: 240 s)
PROBE_EVERY_S = 10
SILENT_S = 60
HAPPY_EYEBALLS_S = 0.25  # RFC 8305, 5: then the next address is tried beside the first

_ADDRESS = tuple[Any, ...]


def options() -> list[tuple[int, int, int]]:
    """Level, name and value of each option that this platform has.

    A connection without traffic for 30 s is probed every 10 s; after 60 s without any sign of the peer,
    probes and unacknowledged data alike, it is broken (Linux; other systems use their own patience for data).
    """
    wished = [
        ("TCP_NODELAY", 1),
        ("TCP_KEEPIDLE", IDLE_S),
        ("TCP_KEEPINTVL", PROBE_EVERY_S),
        ("TCP_KEEPCNT", max(1, (SILENT_S - IDLE_S) // PROBE_EVERY_S)),
        ("TCP_USER_TIMEOUT", SILENT_S * 1000),
    ]
    present = [(getattr(socket, name), value) for name, value in wished if hasattr(socket, name)]
    tcp = [(socket.IPPROTO_TCP, name, value) for name, value in present]
    return [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1), *tcp]


def open_socket(address: _ADDRESS) -> socket.socket:
    """A socket with these options for an address as `getaddrinfo` gives it."""
    family, kind, protocol = address[:3]
    sock = socket.socket(family, kind, protocol)
    for level, name, value in options():
        sock.setsockopt(level, name, value)
    return sock


async def connected(host: str, port: int) -> socket.socket:
    """A socket that is connected to the first of a name's addresses that answers. Raises OSError.

    The event loop's own `create_connection` can lose a socket when it is cancelled.
    """
    addresses = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return await start_connection(
        addresses, happy_eyeballs_delay=HAPPY_EYEBALLS_S, socket_factory=open_socket
    )
