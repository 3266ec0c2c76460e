"""No child outlives the process that started it, whatever ends that."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fairlane.embedded.guard import Guard
from fairlane.embedded.processes import Process
from fairlane.embedded.reaper import end_all, is_running, obey, started_at
from tests.support.wait import wait_until

PARENT = """
import signal, sys
from pathlib import Path
from fairlane.embedded.guard import Guard
from fairlane.embedded.processes import Process

folder, guard = Path(sys.argv[1]), Guard()
children = [Process(f"child-{n}", sys.argv[2:], log=folder / f"{n}.log", guard=guard) for n in range(2)]
for child in children:
    child.start()
(folder / "partial").write_text(" ".join(str(pid) for pid in [guard.pid, *(child.pid for child in children)]))
(folder / "partial").rename(folder / "pids")
signal.pause()
"""


@pytest.fixture
def parent(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[bytes]]:
    command = getattr(request, "param", ["/bin/sleep", "60"])
    with subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path), *command]) as process:
        yield process
        process.kill()


def pids_of(tmp_path: Path) -> list[int]:
    wait_until((tmp_path / "pids").exists)
    return [int(pid) for pid in (tmp_path / "pids").read_text().split()]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGABRT])
def test_children_and_guard_end_when_the_parent_is_killed(
    parent: subprocess.Popen[bytes], tmp_path: Path, number: int
) -> None:
    pids = pids_of(tmp_path)
    assert all(is_running(pid) for pid in pids)
    parent.send_signal(number)
    parent.wait()
    wait_until(lambda: not any(is_running(pid) for pid in pids))


@pytest.mark.parametrize("parent", [["/bin/sh", "-c", 'trap "" TERM; sleep 60; sleep 60']], indirect=True)
@pytest.mark.slow
def test_children_that_do_not_listen_are_ended_by_force(
    parent: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    pids = pids_of(tmp_path)
    parent.kill()
    wait_until(lambda: not any(is_running(pid) for pid in pids))


def test_a_guard_that_was_killed_is_replaced_and_learns_everything(tmp_path: Path) -> None:
    with Guard() as guard:
        children = [
            Process(f"c{n}", ["/bin/sleep", "60"], log=tmp_path / f"{n}.log", guard=guard) for n in (1, 2)
        ]
        children[0].start()
        first = guard.pid
        assert first is not None
        os.kill(first, signal.SIGKILL)
        wait_until(lambda: not is_running(first))
        children[1].start()
        assert guard.pid != first
        guard.close()
        wait_until(lambda: not any(child.is_running for child in children))


def test_a_guard_that_watched_nothing_starts_no_process() -> None:
    with Guard() as guard:
        assert guard.pid is None


def test_a_closed_guard_is_gone(tmp_path: Path) -> None:
    with Guard() as guard:
        child = Process("child", ["/bin/sleep", "60"], log=tmp_path / "log", guard=guard)
        child.start()
        pid = guard.pid
        child.stop()
    assert pid is not None
    assert not is_running(pid)


def test_lines_that_are_not_understood_change_nothing() -> None:
    watched: dict[int, str | None] = {}
    for line in (b"", b"watch", b"watch x", b"kill 1", b"forget 7"):
        obey(line, watched)
    assert watched == {}


def test_what_is_forgotten_is_not_watched() -> None:
    watched: dict[int, str | None] = {}
    obey(b"watch %d" % os.getpid(), watched)
    assert watched == {os.getpid(): started_at(os.getpid())}
    obey(b"forget %d" % os.getpid(), watched)
    assert watched == {}


@pytest.mark.skipif(sys.platform != "linux", reason="only /proc tells when a process began")
def test_a_later_process_with_the_same_number_is_left_alone() -> None:
    with subprocess.Popen(["/bin/sleep", "60"], start_new_session=True) as process:
        end_all({process.pid: "1"}, grace_s=0.0)
        assert process.poll() is None
        end_all({process.pid: started_at(process.pid)}, grace_s=5.0)
        assert process.wait() == -signal.SIGTERM
