"""``fairlane workers``: who beats, and who has fallen silent."""

from __future__ import annotations

from typing import Any

import pytest

from fairlane.cli.lanes.workers import worker_state
from fairlane.store.write.workers import Beat, WorkerInfo
from tests.support.command_line import CommandLine


def info(**changes: Any) -> WorkerInfo:
    known: dict[str, Any] = {"slots": 20, "lanes": ("sim:fast", "sim:slow"), "version": "1.0", "pid": 42}
    return WorkerInfo(**{"name": "w1", "host": "box", "started_ms": 0, "busy": 3} | known | changes)


def beat(cli: CommandLine, worker: str, now_ms: str | int = "", **changes: Any) -> None:
    call = cli.stage.deployment.workers.beat(worker, info(**changes), [], 1000, changed=True, now_ms=now_ms)
    call.run(cli.stage.redis)


def test_every_worker_is_listed_with_its_slots_and_lanes(cli: CommandLine) -> None:
    beat(cli, "a")
    _, line = cli.out("workers").splitlines()
    assert line.split() == ["w1", "box", "42", "3", "20", "2", "1.0", "alive", "just", "now"]


def test_calls_that_hold_no_slot_are_reported_beside_those_that_do(cli: CommandLine) -> None:
    beat(cli, "a", pending=50)
    assert "3 + 50 pending" in cli.out("workers")
    assert cli.json("workers")[0]["pending"] == 50


@pytest.mark.parametrize(("lanes", "shown"), [(["c:m"], "c:m"), (["c:m", "d:m"], "2 lanes")])
def test_lanes_on_which_a_worker_s_key_is_denied_are_named(
    lanes: list[str], shown: str, cli: CommandLine
) -> None:
    beat(cli, "a", denied=dict.fromkeys(lanes, "Incorrect API key"))
    assert f"alive, denied on {shown} " in cli.out("workers")
    assert cli.json("workers")[0]["denied"] == dict.fromkeys(lanes, "Incorrect API key")


def test_workers_as_json_name_their_lanes(cli: CommandLine) -> None:
    beat(cli, "a", stopping=True)
    (document,) = cli.json("workers")
    assert (document["worker"], document["state"], document["busy"]) == ("a", "stopping", 3)
    assert document["lanes"] == ["sim:fast", "sim:slow"]
    assert document["started_at"] == "1970-01-01T00:00:00.000Z"


def test_one_that_has_not_beaten_for_long_is_silent(cli: CommandLine) -> None:
    beat(cli, "a", now_ms=cli.stage.deployment.now_ms)
    assert cli.json("workers")[0]["state"] == "silent"


@pytest.mark.parametrize(
    ("age_ms", "stopping", "state"),
    [(5000, False, "alive"), (5001, False, "silent"), (0, True, "stopping"), (5001, True, "silent")],
)
def test_a_worker_is_silent_once_the_scheduler_takes_it_for_dead(
    age_ms: int, stopping: bool, state: str
) -> None:
    assert worker_state(Beat("a", 100_000, info(stopping=stopping)), 100_000 + age_ms, 5000) == state


def test_without_workers_it_says_how_to_start_one(cli: CommandLine) -> None:
    assert "fairlane worker" in cli("workers").stderr
    assert cli.json("workers") == []
