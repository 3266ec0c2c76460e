"""Serves `/metrics` to Prometheus, `/healthz` and `/readyz` to probes; bounds the values of labels."""

from __future__ import annotations

import json
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any, Protocol, TypeAlias, cast

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from fairlane.config.sections import MetricsSettings
from fairlane.core.clock import Clock
from fairlane.core.errors import ConfigurationError
from fairlane.core.events import Event
from fairlane.telemetry.logs import get_logger

PORTS_TRIED = 20
"""The configured port and those after it: so many processes of one role can share a machine."""
REQUEST_TIMEOUT_S = 5.0
MOST_REQUESTS = 8
MOST_PROBES = 4
"""Concurrent requests of probes, which have places of their own: a restart follows three that fail."""

MOST_SILENT = 64
"""Connections that have sent nothing yet, as load balancers' checks; the oldest gives way to another."""

STOP_S = 5.0
AGAIN_S = 0.1  # until the next try to accept a connection

OTHER = "(other)"
"""The value that combinations of labels beyond a maximum share; no team or lane can have this name."""

Values: TypeAlias = tuple[str, ...]

log = get_logger("metrics")


class LabelValues:
    """Bounds the values of a metric's labels: keeps the first ``most`` combinations of them.

    Thread-safe, but two threads at once may keep one combination too many.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: dict[Values, Values] = {}

    def known(self) -> list[Values]:
        """The combinations that are kept."""
        return list(self._known)

    def of(self, *values: str) -> Values:
        """The values themselves, or `OTHER` for each of them."""
        known = self._known.get(values)
        if known is not None:
            return known
        if len(self._known) >= self._most:
            return (OTHER,) * len(values)
        return self._known.setdefault(values, values)


class Health(Protocol):
    """Answers probes. Called on a thread of the server; must not wait."""

    def sick(self) -> str | None:
        """Why the process needs a restart; ``None`` while its loop turns."""

    def unready(self) -> str | None:
        """Why the process cannot do its work now; ``None`` if it can."""


class Pulse:
    """Measures the time since an event last occurred, by a monotonic clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last_ms: int | None = None

    def beat(self) -> None:
        """Note an occurrence now."""
        self._last_ms = self._clock.monotonic_ms()

    def silent_s(self) -> float | None:
        """Seconds since the last occurrence; ``None`` before the first."""
        return None if self._last_ms is None else (self._clock.monotonic_ms() - self._last_ms) / 1000


class MetricsServer:
    """One listening thread, and one for each of at most twelve concurrent requests; it closes others.

    A connection is a request once it has sent something.
    """

    def __init__(self, settings: MetricsSettings, port: int, registry: CollectorRegistry, health: Health):
        self._settings, self._port = settings, port
        self._pages: dict[str, Callable[[str], _Page]] = {
            "/metrics": lambda accept: _metrics(registry, accept),
            "/healthz": lambda _: _health_page(health.sick()),
            "/readyz": lambda _: _health_page(health.unready()),
        }
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str | None:
        """The server's URL; ``None`` if it does not listen."""
        if self._server is None:
            return None
        host, port = self._server.server_address[:2]
        return f"http://[{host!s}]:{port}" if ":" in str(host) else f"http://{host!s}:{port}"

    def start(self) -> None:
        """Listen at the port or the next free one; if none is free, log it and continue without."""
        if not self._settings.enabled:
            return
        self._server = self._open()
        if self._server is None:
            return
        self._thread = threading.Thread(
            target=self._server.serve_until_ended, name="fairlane-metrics", daemon=True
        )
        self._thread.start()
        log.info(Event.METRICS_SERVED, url=self.url)

    def stop(self) -> None:
        """Stop listening, if it listens."""
        server, thread, self._server = self._server, self._thread, None
        if server is not None and thread is not None:
            server.end()
            thread.join(STOP_S)
            server.server_close()

    def _open(self) -> _Server | None:
        failure: OSError | None = None
        for port in _ports(self._port):
            try:
                return _Server(self._settings.host, port, self._pages)
            except OSError as error:
                failure = error
        log.warning(Event.METRICS_UNSERVED, host=self._settings.host, port=self._port, error=str(failure))
        return None


def require_address(settings: MetricsSettings) -> None:
    """Raise `ConfigurationError` where this machine cannot listen on ``metrics.host``, at whatever port.

    The probes of such a process would fail for ever.
    """
    if not settings.enabled:
        return
    try:
        family = _family_of(settings.host)
        with socket.socket(family, socket.SOCK_STREAM) as tried:
            tried.bind(socket.getaddrinfo(settings.host, 0, family, socket.SOCK_STREAM)[0][4])
    except (OSError, UnicodeError) as error:
        problem = (
            "does not resolve" if isinstance(error, socket.gaierror) else "is no address of this machine"
        )
        remedy = "Write 127.0.0.1, 0.0.0.0 for all addresses, or :: for those of IPv6, too."
        raise ConfigurationError("metrics.host", settings.host, problem, remedy) from error


def _family_of(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET


class _Page:
    """The response to one request."""

    def __init__(self, status: HTTPStatus, content_type: str, body: bytes) -> None:
        self.status, self.content_type, self.body = status, content_type, body


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True
    request_queue_size = 128  # a burst beyond it waits a second for its next attempt to connect

    def __init__(self, host: str, port: int, pages: dict[str, Callable[[str], _Page]]) -> None:
        self.address_family = _family_of(host)
        self.pages = pages
        self._places = threading.BoundedSemaphore(MOST_REQUESTS)
        self._probes = threading.BoundedSemaphore(MOST_PROBES)
        self._silent: dict[socket.socket, tuple[float, Any]] = {}  # until when, and whose; oldest first
        self._wake, self._woken = socket.socketpair()
        super().__init__((host, port), _Handler)

    def serve_until_ended(self) -> None:
        """Serve until `end`. ``serve_forever`` would wake up twice a second to check whether to end."""
        with selectors.DefaultSelector() as ready:
            ready.register(self, selectors.EVENT_READ)
            ready.register(self._woken, selectors.EVENT_READ)
            while True:
                for key, _ in ready.select(self._patience_s()):
                    if key.fileobj is self._woken:
                        return
                    if key.fileobj is self:
                        self._accept(ready)
                    elif isinstance(key.fileobj, socket.socket) and key.fileobj in self._silent:
                        self._begin(ready, key.fileobj)
                while self._silent and not self._patience_s():
                    self._drop_oldest(ready)

    def _patience_s(self) -> float | None:
        """Seconds until the oldest silent connection is closed; ``None`` if there is none."""
        until_s = next((until_s for until_s, _ in self._silent.values()), None)
        return None if until_s is None else max(0.0, until_s - time.monotonic())

    def _accept(self, ready: selectors.BaseSelector) -> None:
        try:
            request, address = self.get_request()
        except OSError:  # without a free descriptor the connection stays, and would be tried again at once
            threading.Event().wait(AGAIN_S)
            return
        if len(self._silent) >= MOST_SILENT:
            self._drop_oldest(ready)
        self._silent[request] = (time.monotonic() + REQUEST_TIMEOUT_S, address)
        ready.register(request, selectors.EVENT_READ)

    def _begin(self, ready: selectors.BaseSelector, request: socket.socket) -> None:
        ready.unregister(request)
        _, address = self._silent.pop(request)
        try:
            self.process_request(request, address)
        except (OSError, RuntimeError):  # no more threads, perhaps
            self.handle_error(request, address)
            self.shutdown_request(request)

    def _drop_oldest(self, ready: selectors.BaseSelector) -> None:
        request = next(iter(self._silent))
        del self._silent[request]
        ready.unregister(request)
        self.shutdown_request(request)

    def end(self) -> None:
        """End `serve_until_ended`; safe on any thread."""
        self._wake.send(b".")

    def server_close(self) -> None:
        super().server_close()
        while self._silent:
            self.shutdown_request(self._silent.popitem()[0])
        self._wake.close()
        self._woken.close()

    def server_bind(self) -> None:
        """Bind as `http.server` does, without a reverse lookup of the address, which may take seconds."""
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        places = self._probes if _is_probe(request) else self._places
        if not places.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            serve = threading.Thread(target=self._serve, args=(request, client_address, places), daemon=True)
            serve.start()
        except BaseException:
            places.release()
            raise

    def _serve(self, request: Any, client_address: Any, places: threading.BoundedSemaphore) -> None:
        try:
            self.process_request_thread(request, client_address)
        finally:
            places.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log at debug: clients that disconnect or stay silent for five seconds are normal."""
        log.debug(Event.METRICS_REQUEST_BROKEN, exc_info=True)


def _is_probe(request: socket.socket) -> bool:
    """Whether a request that has begun is a health or readiness probe."""
    try:
        begun = request.recv(16, socket.MSG_PEEK)
    except OSError:
        return False
    return begun.startswith((b"GET /healthz", b"GET /readyz", b"HEAD /healthz", b"HEAD /readyz"))


class _Handler(BaseHTTPRequestHandler):
    timeout = REQUEST_TIMEOUT_S
    server_version, sys_version = "fairlane", ""

    def do_GET(self) -> None:
        page = cast(_Server, self.server).pages.get(self.path.partition("?")[0])
        answer = (
            _text(HTTPStatus.NOT_FOUND, "not found") if page is None else page(self.headers.get("Accept", ""))
        )
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(len(answer.body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    do_HEAD = do_GET  # noqa: N815 - the names are http.server's

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: probes come every few seconds."""


class _WithoutCreationTimes(Collector):
    """A registry without the creation times of counters, which would double the number of series."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterator[Metric]:
        for family in self._registry.collect():
            family.samples = [each for each in family.samples if not each.name.endswith("_created")]
            yield family


def _ports(first: int) -> Iterable[int]:
    return range(first, min(first + PORTS_TRIED, 65_536)) if first else (0,)


def _metrics(registry: CollectorRegistry, accept: str) -> _Page:
    encode, content_type = choose_encoder(accept)
    return _Page(HTTPStatus.OK, content_type, encode(_WithoutCreationTimes(registry)))


def _health_page(problem: str | None) -> _Page:
    if problem is None:
        return _text(HTTPStatus.OK, "ok")
    return _text(HTTPStatus.SERVICE_UNAVAILABLE, problem)


def _text(status: HTTPStatus, text: str) -> _Page:
    return _Page(status, "application/json", json.dumps({"status": text}).encode() + b"\n")
