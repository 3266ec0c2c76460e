"""A provider with an API of its own, called by a Python function under a lane.

Providers that Fairlane knows by name, and JSON APIs over HTTP, need only a connection in fairlane.toml. For
any other API, a function makes the call. It is the task of a run, and its lane has limits, detects them and
is shared like any other lane. The HTTP client's exception decides what follows: after a 429 Fairlane waits
for Retry-After and retries without counting an attempt; it retries a 5xx; any other error fails the item.

Run as a program, this file serves such a provider, asks it twenty questions and prints the result.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any
from urllib.parse import urlsplit

import httpx

from fairlane import Client

URL = os.getenv("HOUSE_MODEL_URL", "http://127.0.0.1:8765")
"""The operator sets it in the environment of the workers, like a key: a run cannot choose another address."""

_http = httpx.AsyncClient(base_url=URL, timeout=30)


async def answer(row: Mapping[str, Any], params: Mapping[str, Any]) -> str:
    """Return the house model's answer to a row's question. Raises `httpx.HTTPStatusError`."""
    response = await _http.post("/say", json={"text": row["question"], "tone": params.get("tone", "dry")})
    response.raise_for_status()
    said: str = response.json()["said"]
    return said


class HouseModel(BaseHTTPRequestHandler):
    """The provider: POST /say. It answers every seventh request with 429 and Retry-After."""

    asked, rejected = 0, 0
    _counting = Lock()

    def do_POST(self) -> None:
        question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self._counting:
            HouseModel.asked += 1
            busy = HouseModel.asked % 7 == 0
            HouseModel.rejected += busy
        body = json.dumps({"said": f"({question['tone']}) {question['text']}".upper()}).encode()
        self.send_response(429 if busy else 200)
        if busy:
            self.send_header("Retry-After", "0.1")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Write nothing to standard error."""


@contextmanager
def house_model() -> Iterator[None]:
    """Serve the provider at `URL` inside the block."""
    place = urlsplit(URL)
    with ThreadingHTTPServer((place.hostname or "", place.port or 80), HouseModel) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


def main() -> None:
    """Submit a run on the lane `python:house`, whose limits fairlane.toml configures."""
    rows = [{"question": f"Is {n} a lot?"} for n in range(20)]
    with house_model(), Client(team="search") as client:
        run = client.submit(rows, task="custom_provider:answer", lane="house", params={"tone": "kind"})
        records = list(run.results())
        counted = run.status().rate_limits
    print(records[0].output)
    print(f"{len(records)} answers, {HouseModel.rejected} rejected, {counted} of them counted by the run")


if __name__ == "__main__":
    main()
