"""Two neighbouring versions side by side: workers, schedulers and clients of both on one deployment."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from fairlane import RunState
from fairlane.core.events import Event
from fairlane.core.version import __version__
from fairlane.embedded.guard import Guard
from fairlane.embedded.processes import Process
from tests.support.cluster import Cluster, all_succeeded, cluster, numbered
from tests.support.next_version import (
    LATER_MESSAGES,
    LATER_SPECS,
    VERSION,
    NextVersion,
    make_next_version,
)
from tests.support.wait import wait_until

PATIENCE_S = 45.0
"""For processes on a machine that does other things, too."""

SUBMIT = """
import json, sys
from fairlane import Client, __version__
with Client(team="ads") as client:
    rows = [{"n": n} for n in range(int(sys.argv[2]))]
    run = client.submit(rows, "question {{ n }}", model=sys.argv[1], timeout=60)
print(json.dumps([__version__, run.id]))
"""


@pytest.fixture(scope="module")
def present(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One scheduler and one worker of this version."""
    with cluster(tmp_path_factory.mktemp("present"), workers=1, slots=10) as made:
        yield made


@pytest.fixture
def deployment(present: Cluster) -> Iterator[Cluster]:
    present.begin()
    yield present
    if not present.process("scheduler-1").is_running:
        present.stack.restart("scheduler-1")
        present.process("scheduler-1").wait_ready(30.0)
    present.wait_ready(1)


@contextmanager
def beside(deployment: Cluster, version: NextVersion, *roles: str) -> Iterator[list[Process]]:
    """A process of the other version for each role, ready; the last one is stopped first."""
    guard, made = Guard(), list[Process]()
    try:
        for number, role in enumerate(roles, start=1):
            name = f"later-{role}-{number}"
            directory = deployment.directory / "data"
            ready = directory / "run" / f"{name}.ready"
            command = (
                sys.executable,
                "-P",
                "-m",
                "fairlane.cli",
                role,
                "--name",
                name,
                "--ready-file",
                str(ready),
            )
            environment = {**deployment.stack.environment, **version.environment}
            log = directory / "logs" / f"{name}.log"
            process = Process(name, command, log=log, guard=guard, env=environment, ready_file=ready)
            process.start()
            made.append(process)
        for process in made:
            process.wait_ready(30.0)
        workers = 1 + sum(role == "worker" for role in roles)
        deployment.wait_ready(workers)
        yield made
        for process in reversed(made):
            stop(process)
    finally:
        guard.close()


def stop(process: Process) -> None:
    if process.is_running:
        process.kill(signal.SIGTERM)
        assert process.join(30.0), process.log_tail()
        assert process.returncode == 0, process.log_tail()


def submitted_by(deployment: Cluster, version: NextVersion, model: str, rows: int) -> str:
    """The id of a run that a client of the other version has submitted."""
    environment = {**deployment.stack.environment, **version.environment}
    command = [sys.executable, "-P", "-c", SUBMIT, model, str(rows)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    shown, run = json.loads(done.stdout)
    assert shown == VERSION
    return str(run)


def errors(deployment: Cluster) -> list[str]:
    """Lines that tell of something that went wrong."""
    files = sorted((deployment.directory / "data" / "logs").glob("*.log"))
    lines = [line for file in files for line in file.read_text(encoding="utf-8").splitlines()]
    return [line for line in lines if '"level": "error"' in line or "Traceback" in line]


def leads(deployment: Cluster) -> str:
    identity = deployment.redis.hget(deployment.keys.leader, "id")
    return identity.decode() if identity else ""


def released_by(deployment: Cluster) -> set[str]:
    return {line["process"].partition("@")[0] for line in deployment.logged(Event.RELEASED)}


def test_both_versions_share_runs_and_take_over_from_each_other(
    deployment: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> None:
    later = make_next_version(tmp_path_factory.mktemp("later"))
    model = deployment.new_model(latency_ms=200, requests_per_minute=3000)
    deployment.lanes.limit(f"sim:{model}", {"requests_per_minute": 2400})
    with beside(deployment, later, "scheduler", "worker") as (scheduler, worker):
        assert {beat.info.version for beat in deployment.beats()} == {__version__, VERSION}
        mine = deployment.client.submit(numbered(250), "question {{ n }}", model=f"sim:{model}")
        theirs = deployment.client_of("ads").run(submitted_by(deployment, later, f"sim:{model}", 250))
        wait_until(lambda: mine.status().jobs_done > 20 and theirs.status().jobs_done > 20, PATIENCE_S)

        stop(deployment.process("scheduler-1"))
        wait_until(lambda: leads(deployment) == scheduler.name, PATIENCE_S)
        before = mine.status().jobs_done
        wait_until(lambda: mine.status().jobs_done >= min(before + 30, 250), PATIENCE_S)

        deployment.stack.restart("scheduler-1")
        deployment.process("scheduler-1").wait_ready(30.0)
        stop(scheduler)
        wait_until(lambda: leads(deployment) == "scheduler-1", PATIENCE_S)
        for run in (mine, theirs):
            records = all_succeeded(run)
            assert {record.attempts for record in records} == {1}
        assert released_by(deployment) == {"worker-1", worker.name}
    assert deployment.served(model).requests == 500, "a call was paid for twice"
    assert not deployment.logged(Event.LEASE_RECOVERED)
    assert not deployment.logged(Event.LATE_REPORT)
    assert errors(deployment) == []


def test_messages_of_a_later_format_are_left_to_workers_that_read_it(
    deployment: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> None:
    later = make_next_version(tmp_path_factory.mktemp("messages"), LATER_MESSAGES, *LATER_SPECS)
    model = deployment.new_model(latency_ms=50)
    stop(deployment.process("scheduler-1"))
    with beside(deployment, later, "scheduler", "worker") as (_, worker):
        mine = deployment.client.submit(numbered(40), "question {{ n }}", model=f"sim:{model}")
        theirs = submitted_by(deployment, later, f"sim:{model}", 20)
        records = all_succeeded(mine)
        assert {record.attempts for record in records} == {1}, "giving back costs no attempt"
        seen = deployment.client_of("ads").run(theirs)
        wait_until(lambda: seen.status().state is RunState.COMPLETED, PATIENCE_S)
        assert deployment.served(model).requests == 60
        gave_back = [line for line in deployment.logged(Event.RETRY) if "version" in line["reason"]]
        assert {line["process"].partition("@")[0] for line in gave_back} == {"worker-1"}
        calls = [line for line in deployment.logged(Event.RELEASED) if line["status_code"] == 200]
        assert {line["process"].partition("@")[0] for line in calls} == {worker.name}
    assert not deployment.logged(Event.LEASE_RECOVERED)
    assert errors(deployment) == []
