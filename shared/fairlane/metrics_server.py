"""Serves what a process tells of itself: `/metrics` for Prometheus, `/healthz` and `/readyz` for probes."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterable, Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any, Protocol, cast

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from fairlane.clock import Clock
from fairlane.events import Event
from fairlane.logs import get_logger
from fairlane.settings import MetricsSettings

PORTS_TRIED = 20
"""A wished port and those after it: as many processes of one role may share a machine."""
REQUEST_TIMEOUT_S = 5.0
MOST_REQUESTS = 8
STOP_S = 5.0

log = get_logger("metrics")


class Health(Protocol):
    """What probes ask. Called on a thread of the server's; must not wait."""

    def sick(self) -> str | None:
        """Why the process had better be restarted; ``None`` while its loop turns."""
        ...

    def unready(self) -> str | None:
        """Why it cannot do its work now; ``None`` where it can."""
        ...


class Pulse:
    """When something happened last, by a clock that never runs backwards."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last_ms: int | None = None

    def beat(self) -> None:
        """It happens now."""
        self._last_ms = self._clock.monotonic_ms()

    def silent_s(self) -> float | None:
        """Seconds since; ``None`` before the first time."""
        return None if self._last_ms is None else (self._clock.monotonic_ms() - self._last_ms) / 1000


class MetricsServer:
    """One listening thread, and one for each of at most eight requests at a time; more are turned away."""

    def __init__(self, settings: MetricsSettings, port: int, registry: CollectorRegistry, health: Health):
        self._settings, self._wished = settings, port
        self._pages: dict[str, Callable[[str], _Page]] = {
            "/metrics": lambda accept: _metrics(registry, accept),
            "/healthz": lambda _: _verdict(health.sick()),
            "/readyz": lambda _: _verdict(health.unready()),
        }
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str | None:
        """Where it is asked; ``None`` where it does not listen."""
        if self._server is None:
            return None
        host, port = self._server.server_address[:2]
        return f"http://[{host!s}]:{port}" if ":" in str(host) else f"http://{host!s}:{port}"

    def start(self) -> None:
        """Listen at the port or the next that is free; where none is, work goes on and the log says so."""
        if not self._settings.enabled:
            return
        self._server = self._open()
        if self._server is None:
            return
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="fairlane-metrics", daemon=True
        )
        self._thread.start()
        log.info(Event.METRICS_SERVED, url=self.url)

    def stop(self) -> None:
        """Listen no longer. Harmless where it does not."""
        server, thread, self._server = self._server, self._thread, None
        if server is not None and thread is not None:
            server.shutdown()
            thread.join(STOP_S)
            server.server_close()

    def _open(self) -> _Server | None:
        refused: OSError | None = None
        for port in _ports(self._wished):
            try:
                return _Server(self._settings.host, port, self._pages)
            except OSError as error:
                refused = error
        log.warning(Event.METRICS_UNSERVED, host=self._settings.host, port=self._wished, error=str(refused))
        return None


class _Page:
    """What one request gets."""

    def __init__(self, status: HTTPStatus, content_type: str, body: bytes) -> None:
        self.status, self.content_type, self.body = status, content_type, body


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True

    def __init__(self, host: str, port: int, pages: dict[str, Callable[[str], _Page]]) -> None:
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self.pages = pages
        self._places = threading.BoundedSemaphore(MOST_REQUESTS)
        super().__init__((host, port), _Handler)

    def server_bind(self) -> None:
        """As `http.server` does, without asking for the name of the address: that may take seconds."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._places.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away, or says nothing for five seconds, is no news."""
        log.debug("metrics_request_broken", exc_info=True)


class _Handler(BaseHTTPRequestHandler):
    timeout = REQUEST_TIMEOUT_S
    server_version, sys_version = "fairlane", ""

    def do_GET(self) -> None:
        page = cast(_Server, self.server).pages.get(self.path.partition("?")[0])
        answer = _text(HTTPStatus.NOT_FOUND, "not found") if page is None else page(self._accepted)
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    do_HEAD = do_GET  # noqa: N815 - the names are http.server's

    @property
    def _accepted(self) -> str:
        return self.headers.get("Accept", "")

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: a probe every few seconds is not worth a line."""


class _Lasting(Collector):
    """A registry without the times at which counters were made: they would double the number of series."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterator[Metric]:
        for family in self._registry.collect():
            family.samples = [each for each in family.samples if not each.name.endswith("_created")]
            yield family


def _ports(wished: int) -> Iterable[int]:
    return range(wished, min(wished + PORTS_TRIED, 65_536)) if wished else (0,)


def _metrics(registry: CollectorRegistry, accept: str) -> _Page:
    encode, content_type = choose_encoder(accept)
    return _Page(HTTPStatus.OK, content_type, encode(_Lasting(registry)))


def _verdict(problem: str | None) -> _Page:
    if problem is None:
        return _text(HTTPStatus.OK, "ok")
    return _text(HTTPStatus.SERVICE_UNAVAILABLE, problem)


def _text(status: HTTPStatus, text: str) -> _Page:
    return _Page(status, "application/json", json.dumps({"status": text}).encode() + b"\n")
