"""Sockets that notice when their peer is gone without a word."""

from __future__ import annotations

import socket
from typing import Any

IDLE_S = 30  # below the idle timeouts of common NAT gateways and load balancers (AWS: 350 s, Azure: 240 s)
PROBE_EVERY_S = 10
SILENT_S = 60

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


def watch(sock: socket.socket) -> None:
    """Set the options on a socket, connected or not."""
    for level, name, value in options():
        sock.setsockopt(level, name, value)


def open_socket(address: _ADDRESS) -> socket.socket:
    """A socket for an address as `getaddrinfo` gives it."""
    family, kind, protocol = address[:3]
    sock = socket.socket(family, kind, protocol)
    watch(sock)
    return sock
