"""Flower's process: outcomes are states of tasks, it always ends, and it says why it cannot listen."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from typing import Any

import pytest
from celery import Celery
from flower.events import EventsState
from flower.options import options

from fairlane.broker.app import TASK_NAME
from fairlane.flower import process as flower_process
from fairlane.flower.tasks.attempt_events import AttemptEvents, as_shown
from fairlane.model.outcome import Outcome
from tests.support.wait import wait_until

UUID = "search/r1/3/1"
STATES = {"Success": "SUCCESS", "RateLimited": "RETRY", "Aborted": "REVOKED"}
OUTCOMES = [kind.__name__ for kind in Outcome.__args__]  # type: ignore[attr-defined]


def event(kind: str, uuid: str = UUID, **more: Any) -> dict[str, Any]:
    common = {"uuid": uuid, "hostname": "w1", "pid": 1, "utcoffset": 0, "local_received": 1.0}
    return {"type": f"task-{kind}", "timestamp": 1.0, "clock": 1, **common, **more}


def heard(result: str, uuid: str = UUID) -> EventsState:
    state = EventsState(max_tasks_in_memory=10, max_workers_in_memory=10)
    for each in (
        event("received", uuid, name=TASK_NAME, args="()", kwargs="", retries=0),
        event("started", uuid),
        event("succeeded", uuid, result=result, runtime=0.1),
    ):
        shown = as_shown(each)
        if shown is not None:
            state.event(shown)
    return state


@pytest.mark.parametrize("outcome", OUTCOMES)
def test_an_attempt_that_failed_is_a_failed_task(outcome: str) -> None:
    state = heard(f"'{outcome}'")

    task, wanted = state.tasks[UUID], STATES.get(outcome, "FAILURE")
    ends = {"SUCCESS": "succeeded", "RETRY": "retried", "REVOKED": "revoked", "FAILURE": "failed"}
    assert (task.state, task.result, task.runtime) == (wanted, f"'{outcome}'", 0.1)
    assert {name: state.counter["w1"][f"task-{name}"] for name in ends.values()} == {
        name: int(name == ends[wanted]) for name in ends.values()
    }


def test_an_attempt_that_returned_its_slot_has_not_ended() -> None:
    assert heard("'Pending'").tasks[UUID].state == "STARTED"


def test_flower_receives_tasks_of_others_as_they_are_sent() -> None:
    assert heard("'RateLimited'", "a-b-c").tasks["a-b-c"].state == "SUCCESS"
    heartbeat = {"type": "worker-heartbeat", "hostname": "w1"}
    assert as_shown(heartbeat) is heartbeat


def test_a_broker_that_is_away_is_asked_again_and_soon_given_up_when_flower_stops() -> None:
    asked: list[float] = []

    class Away(Celery):  # type: ignore[misc]
        def connection(self, *_: Any, **__: Any) -> Any:
            raise ConnectionRefusedError(errno.ECONNREFUSED, "refused")

    class Counted(AttemptEvents):
        def _pause(self, seconds: float) -> None:
            asked.append(seconds)
            if len(asked) == 6:
                self.stop()

    events = Counted(Away("x"), None, enable_events=False, max_tasks_in_memory=1, max_workers_in_memory=1)
    events.start()
    wait_until(lambda: not events.is_alive())
    assert asked == [1.0, 2.0, 4.0, 8.0, 8.0, 8.0]


def test_a_thread_that_waits_for_ever_does_not_keep_the_process() -> None:
    program = (
        "import threading; from fairlane.flower import process; process.STOP_S = 0.2\n"
        "threading.Thread(target=threading.Event().wait).start(); process.end_soon(code=3)"
    )
    ended = subprocess.run([sys.executable, "-c", program], timeout=30, check=False)
    assert ended.returncode == 3


def test_a_place_that_is_taken_is_named_in_one_line() -> None:
    with pytest.raises(SystemExit) as end:
        flower_process.refuse_place(OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE)))
    said = str(end.value.code)  # the interpreter prints it, and ends with 1
    assert "\n" not in said
    assert f":{options.port} is taken" in said
    assert "--port" in said
    with pytest.raises(OSError, match="broken"):
        flower_process.refuse_place(OSError(errno.EIO, "broken"))


@pytest.mark.parametrize(("stated", "level"), [((), "info"), (("--logging=error",), "error")])
def test_flowers_lines_are_lines_of_our_log(stated: tuple[str, ...], level: str) -> None:
    """Tornado's own form would come in when Flower reads its options."""
    program = (
        "import logging, sys; from fairlane.config.sections import LogSettings\n"
        "from fairlane.flower import process; from tornado.options import parse_command_line\n"
        "process.set_up_logging(LogSettings(format='json')); parse_command_line(sys.argv)\n"
        "said = logging.getLogger('flower.command')\n"
        "said.info('Registered tasks: \\n%s', ['celery.map']); said.info('Broker: %s', 'redis://:pw@h/0')\n"
        "said.error('two\\nlines')"
    )
    command = [sys.executable, "-c", program, *stated]
    ended = subprocess.run(command, timeout=60, check=True, capture_output=True, text=True)
    lines = [json.loads(line) for line in ended.stderr.splitlines()]
    assert [(line["event"], line["level"], line["source"]) for line in lines] == [
        *([("Broker: redis://:***@h/0", "info", "flower.command")] if level == "info" else []),
        ("two\nlines", "error", "flower.command"),
    ]
    assert all(line["process"].startswith("flower@") for line in lines)
    assert ended.stdout == ""
