"""What a process tells over HTTP: metrics as they are, probes as its health says, ports that do not clash."""

from __future__ import annotations

import errno
import json
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from prometheus_client import CollectorRegistry, Counter
from structlog.testing import capture_logs

from fairlane.config.sections import MetricsSettings
from fairlane.core.clock import ManualClock
from fairlane.core.errors import ConfigurationError
from fairlane.core.events import Event
from fairlane.embedded.ports import free_ports
from fairlane.telemetry.metrics_server import (
    MOST_REQUESTS,
    PORTS_TRIED,
    REQUEST_TIMEOUT_S,
    MetricsServer,
    Pulse,
    require_address,
)
from tests.support.wait import wait_until


@dataclass(slots=True)
class StatedHealth:
    illness: str | None = None
    hindrance: str | None = None

    def sick(self) -> str | None:
        return self.illness

    def unready(self) -> str | None:
        return self.hindrance


@contextmanager
def served(
    health: StatedHealth | None = None, port: int = 0, settings: MetricsSettings | None = None
) -> Iterator[MetricsServer]:
    registry = CollectorRegistry()
    Counter("fairlane_tests", "Tests", ["lane"], registry=registry).labels('a"b\\c\nd').inc(3)
    server = MetricsServer(settings or MetricsSettings(), port, registry, health or StatedHealth())
    server.start()
    try:
        yield server
    finally:
        server.stop()


def get(server: MetricsServer, path: str, **headers: str) -> tuple[int, str]:
    request = urllib.request.Request(f"{server.url}{path}", headers=headers)  # noqa: S310 - our own
    try:
        with urllib.request.urlopen(request, timeout=10) as reply:  # noqa: S310
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as refused:
        with refused:
            return refused.code, refused.read().decode()


def test_metrics_are_served_escaped_and_without_the_times_counters_were_made() -> None:
    with served() as server:
        status, text = get(server, "/metrics")
    assert status == 200
    assert 'fairlane_tests_total{lane="a\\"b\\\\c\\nd"} 3.0' in text
    assert "_created" not in text


def test_openmetrics_are_served_on_request() -> None:
    with served() as server:
        _, text = get(server, "/metrics", Accept="application/openmetrics-text; version=1.0.0")
    assert text.endswith("# EOF\n")


@pytest.mark.parametrize(("path", "field"), [("/healthz", "illness"), ("/readyz", "hindrance")])
def test_a_probe_sees_what_is_wrong_and_only_that(path: str, field: str) -> None:
    health = StatedHealth()
    with served(health) as server:
        assert get(server, path) == (200, '{"status": "ok"}\n')
        setattr(health, field, "it hangs")
        status, text = get(server, path)
        assert (status, json.loads(text)) == (503, {"status": "it hangs"})
        other = "/readyz" if path == "/healthz" else "/healthz"
        assert get(server, other)[0] == 200


def test_other_paths_are_not_found() -> None:
    with served() as server:
        assert get(server, "/")[0] == 404
        assert get(server, "/metrics?x=1")[0] == 200


def test_a_port_that_is_taken_is_passed_over() -> None:
    port = next(free_ports())
    with served(port=port) as first, served(port=port) as second:
        assert first.url == f"http://127.0.0.1:{port}"
        assert second.url is not None
        assert port < int(second.url.rpartition(":")[2]) < port + PORTS_TRIED
        assert get(second, "/healthz")[0] == 200


def test_without_a_free_port_work_goes_on_and_the_log_says_so() -> None:
    port = 65_535
    with socket.socket() as taken, capture_logs() as logged:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", port))
        taken.listen()
        with served(port=port) as server:
            assert server.url is None
    assert [line["event"] for line in logged] == [Event.METRICS_UNSERVED]


def test_what_is_switched_off_does_not_listen() -> None:
    with served(settings=MetricsSettings(enabled=False)) as server:
        assert server.url is None


def test_it_listens_on_the_loopback_address_unless_reported_otherwise() -> None:
    with served() as server:
        assert (server.url or "").startswith("http://127.0.0.1:")
    with served(settings=MetricsSettings(host="0.0.0.0")) as server:
        assert (server.url or "").startswith("http://0.0.0.0:")


@pytest.mark.slow
def test_silent_clients_block_others_only_briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlane.telemetry.metrics_server._Handler.timeout", REQUEST_TIMEOUT_S / 10)
    with served() as server:
        port = int((server.url or "").rpartition(":")[2])
        silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(2 * MOST_REQUESTS)]
        try:
            wait_until(lambda: _answers(server), timeout=3 * REQUEST_TIMEOUT_S, interval=0.2)
        finally:
            for each in silent:
                each.close()


def _answers(server: MetricsServer) -> bool:
    try:
        return get(server, "/healthz")[0] == 200
    except OSError:
        return False


def test_a_server_that_was_stopped_does_not_listen_and_can_be_stopped_again() -> None:
    with served() as server:
        url = server.url
    server.stop()
    assert server.url is None
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(f"{url}/healthz", timeout=5)  # noqa: S310


def test_a_pulse_is_silent_since_it_beat_last() -> None:
    clock = ManualClock()
    pulse = Pulse(clock)
    assert pulse.silent_s() is None
    pulse.beat()
    clock.advance(2.5)
    assert pulse.silent_s() == 2.5


def connected(server: MetricsServer, count: int, said: bytes = b"") -> list[socket.socket]:
    assert server.url is not None
    host, port = server.url.removeprefix("http://").split(":")
    made = [socket.create_connection((host, int(port)), timeout=5) for _ in range(count)]
    for each in made:
        each.sendall(said)
    return made


def close(connections: list[socket.socket]) -> None:
    for each in connections:
        each.close()


@pytest.mark.parametrize("count", [8, 64, 300])
def test_silent_connections_take_no_place_of_a_request(count: int) -> None:
    with served() as server:
        silent = connected(server, count)
        assert get(server, "/healthz")[0] == 200
        assert get(server, "/metrics")[0] == 200
        close(silent)


def test_probes_have_places_of_their_own() -> None:
    with served() as server:
        begun = connected(server, MOST_REQUESTS, b"GET /metrics HTTP/1.1\r\n")
        wait_until(lambda: server._server._places._value == 0)  # type: ignore[union-attr]
        for _ in range(20):
            assert get(server, "/healthz")[0] == 200
            assert get(server, "/readyz")[0] == 200
        close(begun)


def test_a_silent_connection_is_closed_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fairlane.telemetry.metrics_server.REQUEST_TIMEOUT_S", 0.05)
    with served() as server:
        (silent,) = connected(server, 1)
        assert silent.recv(1) == b""
        assert get(server, "/healthz")[0] == 200
        silent.close()


def test_a_server_that_stops_closes_silent_connections() -> None:
    with served() as server:
        (silent,) = connected(server, 1)
        assert get(server, "/healthz")[0] == 200
    assert silent.recv(1) == b""
    silent.close()


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "localhost"])
def test_an_address_of_this_machine_can_be_listened_on(host: str) -> None:
    require_address(MetricsSettings(host=host))


@pytest.mark.parametrize(
    ("host", "problem"),
    [
        ("no-such-host.invalid", "does not resolve"),
        ("192.0.2.1", "is no address of this machine"),
        ("a..b", "is no address of this machine"),
        (f"{'a' * 70}.invalid", "is no address of this machine"),
    ],
)
def test_an_address_that_cannot_be_listened_on_is_refused_before_a_role_starts(
    host: str, problem: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        require_address(MetricsSettings(host=host))
    assert (caught.value.field, caught.value.value) == ("metrics.host", host)
    assert problem in str(caught.value)
    assert "0.0.0.0" in caught.value.remedy
    require_address(MetricsSettings(host=host, enabled=False))


def test_a_process_without_free_descriptors_does_not_spin(monkeypatch: pytest.MonkeyPatch) -> None:
    tries = list[None]()

    def fail(_: object) -> None:
        tries.append(None)
        raise OSError(errno.EMFILE, "Too many open files")

    with served() as server:
        with monkeypatch.context() as patch:
            patch.setattr("socketserver.TCPServer.get_request", fail)
            (waiting,) = connected(server, 1)
            wait_until(lambda: len(tries) > 1)
            tries.clear()
            threading.Event().wait(0.3)
        assert len(tries) < 10
        waiting.close()
        assert get(server, "/healthz")[0] == 200
