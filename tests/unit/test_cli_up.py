"""``fairlane up`` as a process: what it tells, and that nothing of it stays, whenever it is stopped."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fairlane.embedded.reaper import is_running
from fairlane.embedded.server import EmbeddedRedis, ping
from tests.support.processes import processes_below
from tests.support.wait import wait_until

Up = Callable[..., "subprocess.Popen[str]"]

# Schedulers and workers are other packages' matter: what is shown here holds for any child.
ALONE = ("--workers", "0", "--schedulers", "0", "--data-dir", "data", "--ready-file", "ready.json")

linux = pytest.mark.skipif(sys.platform != "linux", reason="leftovers are looked for in /proc")


@pytest.fixture
def up(tmp_path: Path) -> Iterator[Up]:
    started: list[subprocess.Popen[str]] = []

    def start(*options: str) -> subprocess.Popen[str]:
        with (tmp_path / "out").open("w") as out:
            command = [sys.executable, "-m", "fairlane.cli", "up", *ALONE, *options]
            process = subprocess.Popen(command, cwd=tmp_path, text=True, stdout=out, stderr=out)
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()


def ready_document(folder: Path) -> dict[str, Any]:
    wait_until((folder / "ready.json").exists)
    document: dict[str, Any] = json.loads((folder / "ready.json").read_text())
    return document


def test_the_ready_file_says_where_everything_is(up: Up, tmp_path: Path) -> None:
    process = up("--simulate")
    document = ready_document(tmp_path)
    assert set(document["pids"]) == {"redis", "simulator"}
    assert document["pid"] == process.pid
    assert document["base_url"].endswith("/v1")
    assert ping(document["redis_url"]) is None
    assert (tmp_path / "ready.json").stat().st_mode & 0o777 == 0o600, "a URL in it may have a password"
    assert all(is_running(pid) for pid in document["pids"].values())
    assert (tmp_path / "data" / ".gitignore").read_text() == "*\n", "invisible to git"


@linux
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
@pytest.mark.slow
def test_a_signal_takes_everything_down(up: Up, tmp_path: Path, number: int) -> None:
    process = up("--simulate")
    ready_document(tmp_path)
    process.send_signal(number)
    assert process.wait() == 0
    assert processes_below(tmp_path) == set()
    assert not (tmp_path / "ready.json").exists()
    assert (tmp_path / "out").read_text().splitlines()[-2:] == ["stopping simulator", "stopping redis"]


@linux
@pytest.mark.slow
def test_a_killed_parent_leaves_nothing(up: Up, tmp_path: Path) -> None:
    process = up("--simulate")
    ready_document(tmp_path)
    process.kill()
    process.wait()
    wait_until(lambda: processes_below(tmp_path) == set())


MOMENTS = {
    "the data directory is there": lambda folder: (folder / "data").exists(),
    "the directory is locked": lambda folder: (folder / "data" / "lock").exists(),
    "redis is being started": lambda folder: (folder / "data" / "logs" / "redis.log").exists(),
    "redis writes": lambda folder: (folder / "data" / "appendonlydir").exists(),
    "the simulator is being started": lambda folder: (folder / "data" / "logs" / "simulator.log").exists(),
    "the simulator is ready": lambda folder: (folder / "data" / "run" / "simulator.ready").exists(),
}


@linux
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])  # SIGINT and SIGHUP: as SIGTERM
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.slow
def test_stopped_at_any_moment_of_the_start_it_leaves_nothing(
    up: Up, tmp_path: Path, moment: str, number: int
) -> None:
    process = up("--simulate")
    wait_until(lambda: MOMENTS[moment](tmp_path), interval=0.001)
    process.send_signal(number)
    process.wait()
    wait_until(lambda: processes_below(tmp_path) == set())
    assert "Traceback" not in (tmp_path / "out").read_text()


@linux
@pytest.mark.slow
def test_a_second_signal_stops_at_once(up: Up, tmp_path: Path) -> None:
    process = up("--simulate")
    pids = ready_document(tmp_path)["pids"]
    os.kill(pids["redis"], signal.SIGSTOP)
    os.kill(pids["simulator"], signal.SIGSTOP)
    process.send_signal(signal.SIGINT)
    wait_until(lambda: "stopping" in (tmp_path / "out").read_text())
    process.send_signal(signal.SIGINT)
    process.wait()
    wait_until(lambda: processes_below(tmp_path) == set())
    assert "Traceback" not in (tmp_path / "out").read_text()


@pytest.mark.slow
def test_a_child_that_dies_is_reported_and_started_again(up: Up, tmp_path: Path) -> None:
    up("--simulate")
    before = ready_document(tmp_path)
    os.kill(before["pids"]["redis"], signal.SIGKILL)
    wait_until(lambda: ready_document(tmp_path)["pids"] != before["pids"])
    assert ready_document(tmp_path)["redis_url"] == before["redis_url"]
    assert wait_until(lambda: ping(before["redis_url"]) is None)
    reported = (tmp_path / "out").read_text()
    assert "redis was killed by SIGKILL" in reported
    assert "redis was started again" in reported


def test_a_given_redis_is_left_running(up: Up, tmp_path: Path) -> None:
    with EmbeddedRedis(tmp_path / "given") as given:
        process = up("--redis", given.url)
        document = ready_document(tmp_path)
        assert (document["redis_url"], document["pids"]) == (given.url, {})
        process.terminate()
        assert process.wait() == 0
        assert ping(given.url) is None


def test_a_given_redis_that_does_not_answer_is_one_line_and_code_1(up: Up, tmp_path: Path) -> None:
    (tmp_path / "ready.json").write_text("{}")
    assert up("--redis", "redis://127.0.0.1:1/0").wait() == 1
    reported = (tmp_path / "out").read_text()
    assert reported.startswith("error: redis: nothing answers at redis://127.0.0.1:1/0")
    assert len(reported.splitlines()) == 1
    assert not (tmp_path / "ready.json").exists(), "a stale one is removed at the start"
