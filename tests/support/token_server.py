"""An imitation of Google's token endpoint on a free loopback port, with one service account."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat


@dataclass
class TokenServer:
    """Issues ``token-1``, ``token-2`` … that last ``lasts_s``, or answers with ``status``.

    It delays its answers while the event ``held`` is cleared. ``asked`` has the requests.
    """

    url: str = ""
    lasts_s: int = 3600
    status: int = 200
    asked: list[dict[str, str]] = field(default_factory=list)
    held: threading.Event = field(default_factory=threading.Event)

    def key(self) -> str:
        """The JSON key file of the service account."""
        shown = {
            "type": "service_account",
            "project_id": "p-1",
            "private_key_id": "k-1",
            "private_key": private_key(),
            "client_email": "worker@p-1.iam.gserviceaccount.com",
            "token_uri": self.url,
        }
        return json.dumps(shown, indent=2)

    def answer(self, form: dict[str, str]) -> tuple[int, dict[str, Any]]:
        self.asked.append(form)
        self.held.wait(10)
        if self.status != 200:
            return self.status, {"error": "invalid_grant", "error_description": "Invalid JWT Signature."}
        number = len(self.asked)
        return 200, {"access_token": f"token-{number}", "expires_in": self.lasts_s, "token_type": "Bearer"}


@cache
def private_key() -> str:
    """An RSA key in PEM; all calls return the same."""
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


@contextmanager
def token_server() -> Iterator[TokenServer]:
    """Serve from a thread until the block ends."""
    shown = TokenServer()
    shown.held.set()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            text = self.rfile.read(int(self.headers["content-length"])).decode()
            status, document = shown.answer({name: values[0] for name, values in parse_qs(text).items()})
            data = json.dumps(document).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    shown.url = f"http://127.0.0.1:{server.server_address[1]}/token"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield shown
    finally:
        shown.held.set()
        server.shutdown()
        server.server_close()
        thread.join()
