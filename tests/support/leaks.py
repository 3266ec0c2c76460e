"""Finds leaked API keys in Redis and in commands to it; a server that echoes the key that it gets."""

from __future__ import annotations

import base64
import json
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import quote, quote_plus

from redis import Redis

from fairlane.embedded.ports import LOOPBACK
from tests.support.contents import read_contents

TAIL = "c0ffee-4242-Zq8xW7"
"""Letters, digits and hyphens only: no escaping changes this key."""

KEY = f'sk-"q\\w/+=%&{TAIL}'
"""A key with characters that each encoding changes."""


def spellings(key: str) -> dict[str, bytes]:
    """The spellings in which a key may appear, by name."""
    found = {
        "raw": key,
        "tail": TAIL,
        "URL": quote(key, safe=""),
        "form": quote_plus(key),
        "hex": key.encode().hex(),
    }
    escaped = key
    for depth in (1, 2, 3):
        escaped = json.dumps(escaped)[1:-1]
        found[f"JSON {depth}"] = escaped
    for before in range(3):
        for name, encode in (("base64", base64.b64encode), ("base64url", base64.urlsafe_b64encode)):
            # Only whole groups of four characters that no neighbouring byte affects.
            whole = encode(b"0" * before + key.encode())
            found[f"{name} +{before}"] = whole[4 if before else 0 :][: (len(key) - 3) // 3 * 4].decode()
    return {name: text.encode() for name, text in found.items()}


def traces(data: bytes) -> list[str]:
    """The names of the spellings in which the key appears in the data."""
    return [name for name, text in spellings(KEY).items() if text in data]


class Wiretap:
    """Records all commands that Redis gets while it is open, including those of scripts, and messages."""

    def __init__(self, url: str) -> None:
        self._client, self._over, self.heard = Redis.from_url(url), threading.Event(), bytearray()
        self._connection = self._client.connection_pool.get_connection()
        self._connection.send_command("MONITOR")
        assert self._connection.read_response() == b"OK"
        self._thread = threading.Thread(target=self._listen)
        self._thread.start()

    def _listen(self) -> None:
        while not self._over.is_set():
            if self._connection.can_read(0.1):
                self.heard += self._connection.read_response() + b"\n"

    def close(self) -> bytes:
        self._over.set()
        self._thread.join()
        self._connection.disconnect()
        self._client.close()
        return bytes(self.heard)


class Echo(BaseHTTPRequestHandler):
    """A careless server: its error messages quote the key of the request, in several spellings."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        key = self.headers["authorization"].removeprefix("Bearer ")
        basic = base64.b64encode(f"user:{key}".encode()).decode()
        shown = [key, quote(key, safe=""), json.dumps(key), key.encode().hex(), basic]
        body = json.dumps({"error": {"message": f"wrong key: {', '.join(shown)}", "code": "invalid_api_key"}})
        self.send_response(401)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing to standard error."""


@contextmanager
def echoing() -> Iterator[str]:
    server = ThreadingHTTPServer((LOOPBACK, 0), Echo)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://{LOOPBACK}:{server.server_port}/v1"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def stored(redis: Redis) -> bytes:
    """All data in Redis: plain, as dumped, and decompressed where it is compressed."""
    found = bytearray()
    for key, content in read_contents(redis).items():
        found += key.encode() + (redis.dump(key) or b"")
        for value in _values(content.value):
            found += value
            with suppress(zlib.error):
                found += zlib.decompress(value)
    return bytes(found)


def _values(value: object) -> Iterator[bytes]:
    if isinstance(value, bytes):
        yield value
    elif isinstance(value, dict):
        for name, inner in value.items():
            yield from (*_values(name), *_values(inner))
    elif isinstance(value, (list, tuple, set)):
        for inner in value:
            yield from _values(inner)
