"""The embedded server: real processes, a real append-only file, real kills."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from fairlane.core.errors import LocalStackError
from fairlane.embedded import locks, ports
from fairlane.embedded.reaper import is_running
from fairlane.embedded.server import EmbeddedRedis, ping
from fairlane.embedded.servers import Server, find_server
from fairlane.embedded.writers import writer_of
from tests.support.wait import wait_until


@pytest.fixture
def embedded(tmp_path: Path) -> Iterator[EmbeddedRedis]:
    with EmbeddedRedis(tmp_path / "data") as server:
        yield server


def client_of(server: EmbeddedRedis) -> redis.Redis:
    return redis.Redis.from_url(server.url, decode_responses=True)


def append_only_size(data_dir: Path) -> int:
    return sum(path.stat().st_size for path in data_dir.rglob("*.aof"))


def test_it_listens_on_loopback_only_and_appends_every_write(embedded: EmbeddedRedis) -> None:
    with client_of(embedded) as client:
        wanted = {
            "appendonly": "yes",
            "appendfsync": "everysec",
            "save": "",
            "maxmemory-policy": "noeviction",
            "lazyfree-lazy-expire": "yes",
            "hash-max-ziplist-entries": "16",
            "bind": "127.0.0.1",
            "dir": str(embedded.data_dir),
        }
        assert {name: client.config_get(name)[name] for name in wanted} == wanted
        assert client.info("server")["process_id"] == embedded.pid


def test_the_url_is_on_a_loopback_port_below_the_ephemeral_ones(embedded: EmbeddedRedis) -> None:
    host, _, port = embedded.url.removeprefix("redis://").removesuffix("/0").partition(":")
    assert host == "127.0.0.1"
    assert ports.FIRST <= int(port) < ports.LAST


def test_data_that_cannot_be_read_are_kept_and_no_repair_is_advised(tmp_path: Path) -> None:
    with EmbeddedRedis(tmp_path) as server, client_of(server) as client:
        client.set("answer", "42")
    (base,) = tmp_path.glob("appendonlydir/*.base.rdb")
    whole = base.read_bytes()
    base.write_bytes(b"REDIS9999" + whole[9:])

    with pytest.raises(LocalStackError, match="cannot read the data in") as refused:
        EmbeddedRedis(tmp_path).start()

    assert "--fix" not in str(refused.value)
    base.write_bytes(whole)
    with EmbeddedRedis(tmp_path) as server, client_of(server) as client:
        assert (client.get("answer"), writer_of(tmp_path)) == ("42", find_server().writer)


def test_data_survives_a_stop_and_a_start_elsewhere(tmp_path: Path) -> None:
    with EmbeddedRedis(tmp_path) as server, client_of(server) as client:
        client.set("answer", "42")
    with EmbeddedRedis(tmp_path) as server, client_of(server) as client:
        assert client.get("answer") == "42"


def test_a_killed_server_comes_back_at_its_address_with_what_it_had_written(embedded: EmbeddedRedis) -> None:
    address, pid = embedded.url, embedded.pid
    with client_of(embedded) as client:
        before = append_only_size(embedded.data_dir)
        client.set("answer", "42")
        wait_until(lambda: append_only_size(embedded.data_dir) > before)
        embedded.kill()
        assert not embedded.is_running
        assert ping(address) is not None
        embedded.restart()
        assert (embedded.url, client.get("answer")) == (address, "42")
    assert embedded.pid != pid


def test_a_running_server_can_be_restarted_and_loses_nothing(embedded: EmbeddedRedis) -> None:
    with client_of(embedded) as client:
        client.set("answer", "42")
        embedded.restart()
        assert client.get("answer") == "42"


def test_a_running_server_is_not_started_twice(embedded: EmbeddedRedis) -> None:
    before = embedded.pid
    embedded.start()
    assert embedded.pid == before
    embedded.restart()
    assert embedded.pid != before
    assert ping(embedded.url) is None


def test_a_paused_server_goes_on_after_sigcont(embedded: EmbeddedRedis) -> None:
    embedded.kill(signal.SIGSTOP)
    assert ping(embedded.url, timeout=0.1) is not None
    embedded.kill(signal.SIGCONT)
    assert ping(embedded.url) is None


def test_after_a_stop_nothing_answers_and_nothing_runs(tmp_path: Path) -> None:
    with EmbeddedRedis(tmp_path) as server:
        address, pid = server.url, server.pid
    assert ping(address) is not None
    assert not is_running(pid)
    server.stop()


def test_a_configured_port_is_used(tmp_path: Path) -> None:
    port = next(ports.free_ports())
    with EmbeddedRedis(tmp_path, port=port) as server:
        assert server.url == f"redis://127.0.0.1:{port}/0"


def test_a_configured_port_of_another_server_is_an_error(
    embedded: EmbeddedRedis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fairlane.embedded.server.PORT_PATIENCE_S", 0.0)
    taken = int(embedded.url.rpartition(":")[2].removesuffix("/0"))
    with pytest.raises(LocalStackError, match=r"(?i)address already in use"):
        EmbeddedRedis(tmp_path / "other", port=taken).start()


def test_a_port_that_is_lost_to_another_server_is_given_up_for_the_next(
    embedded: EmbeddedRedis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken, free = int(embedded.url.rpartition(":")[2].removesuffix("/0")), next(ports.free_ports())
    monkeypatch.setattr("fairlane.embedded.server.preferred_or_free", lambda _: iter([taken, taken, free]))
    with EmbeddedRedis(tmp_path / "other") as server:
        assert server.url == f"redis://127.0.0.1:{free}/0"


def test_a_preferred_port_that_is_taken_is_replaced(embedded: EmbeddedRedis, tmp_path: Path) -> None:
    taken = int(embedded.url.rpartition(":")[2].removesuffix("/0"))
    with EmbeddedRedis(tmp_path / "other", preferred_port=taken) as server:
        assert server.url != embedded.url
        assert ping(server.url) is None


def test_two_servers_never_share_a_data_directory(
    embedded: EmbeddedRedis, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(locks, "PATIENCE_S", 0.0)
    with pytest.raises(LocalStackError, match="in use by another local stack"):
        EmbeddedRedis(embedded.data_dir).start()
    assert ping(embedded.url) is None


def test_it_listens_only_on_a_socket_file(tmp_path: Path) -> None:
    with EmbeddedRedis(tmp_path, unix_socket=True) as server, client_of(server) as client:
        assert server.url.startswith("unix:///")
        assert client.config_get("port") == {"port": "0"}
        client.set("answer", "42")
        server.restart()
        assert client.get("answer") == "42"


def test_a_socket_file_in_a_deep_directory_is_put_where_its_path_is_short_enough(tmp_path: Path) -> None:
    with EmbeddedRedis(tmp_path / ("deep" * 30), unix_socket=True) as server:
        socket = Path(server.url.removeprefix("unix://").removesuffix("?db=0"))
        assert ping(server.url) is None
    assert not socket.parent.exists()


def test_a_server_that_does_not_come_up_reports_the_end_of_its_log(tmp_path: Path) -> None:
    found = find_server()
    broken = Server((*found.command, "--no-such-option", "1"), found.version)
    with pytest.raises(LocalStackError, match="no-such-option") as caught:
        EmbeddedRedis(tmp_path, server=broken).start()
    assert caught.value.log == str(tmp_path / "logs" / "redis.log")
    with EmbeddedRedis(tmp_path) as server:
        assert ping(server.url) is None


def test_a_url_of_no_redis_scheme_is_refused() -> None:
    with pytest.raises(ValueError, match="scheme"):
        ping("http://127.0.0.1:1/")
