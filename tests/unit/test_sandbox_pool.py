"""Child processes that do what teams wrote: bounded, replaced when they end, and shared fairly."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from fairlane.core.errors import CutOff, NoChild, TemplateError, WorkRaised
from fairlane.model.choices import Message
from fairlane.model.run import Plan
from fairlane.sandbox.pieces import RenderCall
from fairlane.sandbox.pool import MOST_QUEUED, Pool
from fairlane.sandbox.process import Limits
from tests.support.hostile_pieces import Does
from tests.support.wait import wait_until
from tests.unit.test_reach import spec_of

ENVIRON = {"PYTHONPATH": str(Path(__file__).parents[2]), "FAIRLANE_KEY": "secret"}
LIMITS = Limits(cpu_s=0.3, wall_s=2.0, memory_bytes=256 << 20)
PATIENCE_S = 60


@pytest.fixture
def pool() -> Iterator[Pool]:
    pool = Pool(2, LIMITS, ENVIRON)
    yield pool
    pool.close()


def result(future: Future[Any]) -> Any:
    return future.result(PATIENCE_S)


def test_no_child_starts_before_there_is_work(pool: Pool) -> None:
    assert pool.pids == []
    assert result(pool.submit("a", Does("answers", "yes"))) == "yes"
    assert len(pool.pids) == 1


@pytest.mark.parametrize(
    ("act", "bound"),
    [
        ("spins", "computed for more than 0.3 s (sandbox.cpu_seconds)"),
        ("hangs", "ran for more than 2 s (sandbox.wall_seconds)"),
        ("grows", "needed more than 256 MiB of memory (sandbox.memory_mb)"),
        ("dies", "ended its process"),
        ("floods", "made more than 1 MiB"),
    ],
)
@pytest.mark.slow
def test_what_runs_over_is_ended_and_its_neighbours_are_done(
    pool: Pool, monkeypatch: pytest.MonkeyPatch, act: str, bound: str
) -> None:
    monkeypatch.setattr("fairlane.sandbox.process.MOST_REPLY", 1 << 20)
    before = [pool.submit("a", Does("answers", str(n))) for n in range(20)]
    bad = pool.submit("a", Does(act))
    after = [pool.submit("a", Does("answers", str(n))) for n in range(20)]
    with pytest.raises(CutOff, match="prompts: it was ended, as it") as caught:
        result(bad)
    assert bound in str(caught.value)
    assert [result(each) for each in (*before, *after)] == [str(n) for n in range(20)] * 2


def test_an_error_or_an_unreadable_reply_does_not_end_the_child(pool: Pool) -> None:
    assert result(pool.submit("a", Does("answers", "1"))) == "1"
    pids = pool.pids
    with pytest.raises(WorkRaised, match="prompts: ValueError: no such thing"):
        result(pool.submit("a", Does("raises")))
    with pytest.raises(WorkRaised, match="cannot be read: UnicodeDecodeError"):
        result(pool.submit("a", Does("lies")))
    assert result(pool.submit("a", Does("answers", "2"))) == "2"
    assert pool.pids == pids


def test_another_team_does_not_wait_for_one_that_is_slow(pool: Pool) -> None:
    slow = [pool.submit("slow", Does("spins")) for _ in range(100)]
    wait_until(lambda: bool(pool.pids))
    assert [result(pool.submit("victim", Does("answers", str(n)))) for n in range(5)] == list("01234")
    assert sum(each.done() for each in slow) < 50


def test_a_team_that_waits_for_too_much_is_refused(pool: Pool) -> None:
    waiting = [pool.submit("a", Does("hangs")) for _ in range(MOST_QUEUED + 50)]
    with pytest.raises(NoChild, match="pieces of the team wait already"):
        result(waiting[-1])
    assert result(pool.submit("b", Does("answers", "yes"))) == "yes"


def test_a_child_that_ended_is_replaced(pool: Pool) -> None:
    assert result(pool.submit("a", Does("answers", "1"))) == "1"
    (pid,) = pool.pids
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert result(pool.submit("a", Does("answers", "2"))) == "2"
    assert pool.pids != [pid]


def test_a_closed_pool_ends_its_children_and_all_that_waits() -> None:
    pool = Pool(2, LIMITS, ENVIRON)
    assert result(pool.submit("b", Does("answers", "yes"))) == "yes"
    pids = pool.pids
    waiting = [pool.submit("a", Does("hangs")) for _ in range(3)]
    pool.close()
    for each in waiting:
        with pytest.raises(NoChild, match="the process ends"):
            result(each)
    with pytest.raises(NoChild):
        result(pool.submit("a", Does("answers")))
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_child_ends_with_its_parent() -> None:
    pool = Pool(1, LIMITS, ENVIRON)
    assert result(pool.submit("a", Does("answers", "yes"))) == "yes"
    process = pool._children[0]._process
    assert process is not None
    assert process.stdin is not None
    process.stdin.close()  # as the kernel does where the parent is killed
    assert process.wait(PATIENCE_S) == 0
    pool.close()


def test_a_child_whose_parent_ended_before_it_was_ready_ends_without_a_word() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-P", "-m", "fairlane.sandbox", "2.0", str(1 << 29), str(writer)]
    try:
        child = subprocess.run(command, pass_fds=[writer], input=b"", capture_output=True, check=False)
    finally:
        os.close(writer)
    assert (child.returncode, child.stderr) == (0, b"")


def test_a_child_has_none_of_the_credentials(pool: Pool) -> None:
    assert "FAIRLANE_KEY" not in result(pool.submit("a", Does("environment")))


def test_an_executable_that_is_gone_is_reported(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    with pytest.raises(NoChild, match="can be started"):
        result(pool.submit("a", Does("answers")))


def test_templates_of_many_runs_are_rendered(pool: Pool) -> None:
    def plan(run: int) -> Plan:
        prompts = ((Message(role="user", content=f"{run} {{{{ q|upper }}}}"),),)
        return Plan(spec=spec_of(run=f"r{run}", prompts=prompts))

    plans = [plan(run) for run in range(40)] * 2
    calls = [pool.submit("a", RenderCall(0, {"q": "yes"}), each) for each in plans]
    assert [result(call).messages[0]["content"] for call in calls] == [f"{n} YES" for n in range(40)] * 2
    with pytest.raises(TemplateError, match=r"prompts\[0\], message 1: the row has no field 'q'") as caught:
        result(pool.submit("a", RenderCall(0, {}), plans[0]))
    assert caught.value.variable == "q"


def test_a_pool_without_threads_says_so_and_works_once_there_are_some(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", fail)
        with pytest.raises(NoChild, match="can't start new thread"):
            result(pool.submit("a", Does("answers", "1")))

    assert pool.submit("a", Does("answers", "2")).result(10) == "2"
