"""A provider whose API is nobody else's, as a function that workers call under a lane.

A provider that is known by name, or an API of JSON over HTTP, needs but a connection in fairlane.toml.
For any other, a function makes the call: it is a run's task, and its lane is limited, learns and is shared
like every lane. The HTTP client's error says what to do: a 429 is tried again when its Retry-After says so,
and costs no attempt; a 5xx is tried again; anything else fails the item.

Started alone, this file serves such a provider, asks it twenty questions and prints what came of it.
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
"""The operator's choice, in the environment of the workers, as a key would be: a run cannot name another."""

_http = httpx.AsyncClient(base_url=URL, timeout=30)


async def answer(row: Mapping[str, Any], params: Mapping[str, Any]) -> str:
    """What the house model says to a row's question. Raises what `raise_for_status` does."""
    response = await _http.post("/say", json={"text": row["question"], "tone": params.get("tone", "dry")})
    response.raise_for_status()
    said: str = response.json()["said"]
    return said


class HouseModel(BaseHTTPRequestHandler):
    """The provider: POST /say, of which every seventh is told to come back a little later."""

    asked, refused = 0, 0
    _counting = Lock()

    def do_POST(self) -> None:
        question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self._counting:
            HouseModel.asked += 1
            busy = HouseModel.asked % 7 == 0
            HouseModel.refused += busy
        body = json.dumps({"said": f"({question['tone']}) {question['text']}".upper()}).encode()
        self.send_response(429 if busy else 200)
        if busy:
            self.send_header("Retry-After", "0.1")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Says nothing on standard error."""


@contextmanager
def house_model() -> Iterator[None]:
    """The provider answers at `URL` inside the block."""
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
    """Ask it, with `python:house` as the lane whose limits fairlane.toml may state."""
    rows = [{"question": f"Is {n} a lot?"} for n in range(20)]
    with house_model(), Client(team="search") as client:
        run = client.submit(rows, task="custom_provider:answer", lane="house", params={"tone": "kind"})
        records = list(run.results())
        told = run.status().rate_limits
    print(records[0].output)
    print(f"{len(records)} answers, {HouseModel.refused} refusals, {told} of them counted by the run")


if __name__ == "__main__":
    main()
