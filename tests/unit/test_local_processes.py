"""Child processes with a name: started, waited for, stopped within a bound."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fairlane.core.errors import LocalStackError
from fairlane.embedded.guard import Guard
from fairlane.embedded.processes import Process, describe_exit, stop_all
from fairlane.embedded.reaper import is_running
from tests.support.wait import wait_until

MakeProcess = Callable[..., Process]

STUBBORN = 'trap "" TERM; touch "$0"; while true; do sleep 1; done'


@pytest.fixture
def guard() -> Iterator[Guard]:
    with Guard() as guard:
        yield guard


@pytest.fixture
def make(tmp_path: Path, guard: Guard) -> Iterator[MakeProcess]:
    made: list[Process] = []

    def make(name: str, *argv: str, **options: object) -> Process:
        process = Process(name, argv, log=tmp_path / f"{name}.log", guard=guard, **options)  # type: ignore[arg-type]
        made.append(process)
        return process

    yield make
    for process in made:
        process.end_by_force()


def stubborn(make: MakeProcess, tmp_path: Path, name: str = "stubborn") -> Process:
    """A running process that ignores SIGTERM."""
    trapped = tmp_path / f"{name}.trapped"
    process = make(name, "/bin/sh", "-c", STUBBORN, str(trapped))
    process.start()
    wait_until(trapped.exists)
    return process


def test_output_goes_to_the_log_and_the_code_is_kept(make: MakeProcess) -> None:
    process = make("echo", "/bin/sh", "-c", "echo to out; echo to err >&2; exit 3")
    process.start()
    assert process.join(5)
    assert process.returncode == 3
    assert process.log_tail().splitlines() == ["to out", "to err"]


def test_the_child_has_the_number_we_know_and_a_group_of_its_own(make: MakeProcess) -> None:
    process = make("ids", "/bin/sh", "-c", "echo $$; exec sleep 60")
    process.start()
    wait_until(process.log_tail)
    assert process.log_tail() == str(process.pid)
    assert os.getpgid(process.pid) == process.pid


def test_the_environment_is_ours_with_changes(make: MakeProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEPT", "kept")
    monkeypatch.setenv("TAKEN", "taken")
    process = make("env", "/bin/sh", "-c", "echo $KEPT-$TAKEN-$ADDED", env={"TAKEN": None, "ADDED": "added"})
    process.start()
    process.join(5)
    assert process.log_tail() == "kept--added"


def test_arguments_arrive_as_they_are(make: MakeProcess) -> None:
    process = make("args", "/usr/bin/printf", "[%s]", "a b", "", "$HOME", "'\"")
    process.start()
    process.join(5)
    assert process.log_tail() == "[a b][][$HOME]['\"]"


def test_a_program_that_does_not_exist_says_so_in_the_log(make: MakeProcess, tmp_path: Path) -> None:
    process = make("nothing", "/no/such/program", ready_file=tmp_path / "ready")
    process.start()
    with pytest.raises(LocalStackError, match=r"(?s)nothing: exited with code 127.*not found"):
        process.wait_ready(5)


def test_waiting_ends_when_the_ready_file_is_there(make: MakeProcess, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    process = make("ready", "/bin/sh", "-c", 'touch "$0"; exec sleep 60', str(ready), ready_file=ready)
    process.start()
    process.wait_ready(5)
    assert ready.exists()


def test_a_ready_file_of_the_run_before_does_not_count(make: MakeProcess, tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    ready.touch()
    process = make("slow", "/bin/sleep", "60", ready_file=ready)
    process.start()
    with pytest.raises(LocalStackError, match=r"slow: was not ready after 0\.1 s"):
        process.wait_ready(0.1)


def test_a_death_before_it_was_ready_reports_the_end_of_this_runs_log(
    make: MakeProcess, tmp_path: Path
) -> None:
    (tmp_path / "broken.log").write_text("of another run\n")
    process = make("broken", "/bin/sh", "-c", "echo no such thing; exit 2", ready_file=tmp_path / "ready")
    process.start()
    with pytest.raises(LocalStackError, match="no such thing") as caught:
        process.wait_ready(5)
    assert "of another run" not in str(caught.value)
    assert caught.value.log == str(tmp_path / "broken.log")


def test_a_running_process_cannot_be_started_again(make: MakeProcess) -> None:
    process = make("sleep", "/bin/sleep", "60")
    process.start()
    with pytest.raises(LocalStackError, match="is running already"):
        process.start()


def test_a_stopped_process_can_be_started_again(make: MakeProcess) -> None:
    process = make("sleep", "/bin/sleep", "60")
    process.start()
    first = process.pid
    assert process.stop(5) == -signal.SIGTERM
    process.start()
    assert process.is_running
    assert process.pid != first


def test_who_does_not_stop_in_time_is_ended_by_force(make: MakeProcess, tmp_path: Path) -> None:
    assert stubborn(make, tmp_path).stop(0.1) == -signal.SIGKILL


def test_a_paused_process_can_be_stopped(make: MakeProcess) -> None:
    process = make("sleep", "/bin/sleep", "60")
    process.start()
    process.kill(signal.SIGSTOP)
    assert process.stop(5) == -signal.SIGTERM


def test_what_a_child_leaves_behind_goes_with_it(make: MakeProcess) -> None:
    process = make("family", "/bin/sh", "-c", "sleep 60 & echo $!; wait")
    process.start()
    grandchild = int(wait_until(process.log_tail))
    process.stop(5)
    wait_until(lambda: not is_running(grandchild))


def test_signals_to_an_ended_process_do_nothing(make: MakeProcess) -> None:
    process = make("true", "/bin/true")
    process.start()
    process.join(5)
    process.kill()
    assert process.stop() == 0


def test_a_process_that_was_never_started_is_not_running(make: MakeProcess) -> None:
    process = make("never", "/bin/true")
    assert not process.is_running
    assert process.stop() is None
    with pytest.raises(LocalStackError, match="has not been started"):
        _ = process.pid


def test_all_stop_in_reverse_order_role_by_role(make: MakeProcess) -> None:
    processes = [make("redis", "/bin/sleep", "60")]
    processes += [make(f"worker-{n}", "/bin/sleep", "60", role="worker") for n in (1, 2)]
    for process in processes:
        process.start()
    news: list[str] = []
    stop_all(processes, 5, news.append)
    assert news == ["stopping worker (2)", "stopping redis"]
    assert not any(process.is_running for process in processes)


def test_a_role_shares_one_bound(make: MakeProcess, tmp_path: Path) -> None:
    processes = [stubborn(make, tmp_path, f"worker-{n}") for n in (1, 2)]
    news: list[str] = []
    stop_all(processes, 0.1, news.append)
    assert news[-1] == "worker-1 did not stop within 0.1 s; ending it by force"
    assert not any(process.is_running for process in processes)


def test_an_interrupted_stop_ends_everything_by_force(make: MakeProcess, tmp_path: Path) -> None:
    processes = [stubborn(make, tmp_path, name) for name in ("redis", "worker")]

    def interrupt(_: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        stop_all(processes, 60, interrupt)
    assert [process.returncode for process in processes] == [-signal.SIGKILL] * 2


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (0, "exited with code 0"),
        (3, "exited with code 3"),
        (-9, "was killed by SIGKILL"),
        (-99, "was killed by signal 99"),
    ],
)
def test_an_end_is_reported_in_words(code: int, words: str) -> None:
    assert describe_exit(code) == words


def test_a_checkpoint_ends_a_wait(make: MakeProcess, tmp_path: Path) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    deaf = f"trap '' TERM INT; touch {tmp_path}/deaf; exec /bin/sleep 60"
    process = make("sleep", "/bin/sh", "-c", deaf, ready_file=tmp_path / "ready", checkpoint=interrupt)
    process.start()
    with pytest.raises(KeyboardInterrupt):
        process.wait_ready(60)
    wait_until((tmp_path / "deaf").exists)
    with pytest.raises(KeyboardInterrupt):
        process.stop(60)
    process.end_by_force()
    assert process.returncode is not None
