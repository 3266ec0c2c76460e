"""Calls of Celery tasks under a lane: a team's own application, served by two of its own worker processes."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from celery import chain, chord, group

from fairlane.celery import limited
from fairlane.client.calls import submit_call, submit_calls
from fairlane.config.environment import process_environment
from fairlane.core.errors import CallFailed
from fairlane.core.events import Event
from fairlane.model.lane import queue_name
from fairlane.store.write.workers import WorkerRequest, Workers
from tests.support import served_app
from tests.support.cluster import Cluster, cluster
from tests.support.wait import wait_until

ROOT = Path(__file__).parents[2]
LANE = "python:crm-api"
CELERY = ("-m", "celery", "-A", "tests.support.served_app", "worker", "--without-gossip", "--without-mingle")


@contextmanager
def app_worker(deployment: Cluster, name: str, pool: str) -> Iterator[subprocess.Popen[bytes]]:
    """A worker of the team's application, with a broker of its own; it serves its lane while this is open."""
    environment = process_environment()
    path = os.pathsep.join([str(ROOT), environment.get("PYTHONPATH", "")])
    broker, results = own_databases(deployment)
    own = {"PYTHONPATH": path, "CRM_BROKER": broker, "CRM_RESULTS": results}
    known = len(serving(deployment))
    log = (deployment.directory / f"{name}.log").open("wb")
    argv = [sys.executable, *CELERY, "--concurrency=1", f"--pool={pool}", f"--hostname={name}@localhost"]
    with (
        log,
        subprocess.Popen(
            argv, env={**environment, **deployment.stack.environment, **own}, stdout=log, stderr=log
        ) as process,
    ):
        try:
            wait_until(lambda: len(serving(deployment)) > known)
            yield process
        finally:
            process.terminate()
            process.wait(30)


def own_databases(deployment: Cluster) -> tuple[str, str]:
    """The application's broker and its results."""
    return deployment.stack.redis_url.replace("/0", "/1"), deployment.stack.redis_url.replace("/0", "/2")


def serving(deployment: Cluster) -> list[str]:
    """Workers that take the lane's calls now."""
    return [beat.worker for beat in deployment.beats() if LANE in beat.info.lanes]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A deployment, and two processes of the application: one with a prefork pool, one with threads."""
    with ExitStack() as stack:
        made = stack.enter_context(cluster(tmp_path_factory.mktemp("calls"), workers=1))
        made.lanes.limit(LANE, {"max_concurrency": 3})
        for name, pool in (("one", "prefork"), ("two", "threads")):
            stack.enter_context(app_worker(made, name, pool))
        yield made


def test_a_call_returns_what_the_task_returned(served: Cluster) -> None:
    handle = submit_call(served.client, "crm.fetch", [7], {"of": "single"}, lane="crm-api")

    assert handle.result(timeout=45) == {"number": 7, "of": "single"}
    assert handle.done()
    assert served.client.run(handle.id).status().name == "call crm.fetch"


def test_the_processes_of_an_application_share_one_budget(served: Cluster) -> None:
    calls = [([number], {"of": "many"}) for number in range(60)]

    found = submit_calls(served.client, "crm.fetch", calls, lane="crm-api").results(timeout=60)

    assert [each["number"] for each in found] == list(range(60))
    assert served.redis.scard("crm:many:pids") == 2, "both took part"
    together = [count for _, count in served.redis.zrange("crm:many:together", 0, -1, withscores=True)]
    assert len(together) == 60, "each was called once"
    assert max(together) == 3, "as many as the lane allows, and never more"


def test_a_call_that_fails_says_why(served: Cluster) -> None:
    handle = submit_call(served.client, "crm.fail", ["no such customer"], lane="crm-api")

    with pytest.raises(CallFailed, match="ValueError: no such customer") as failed:
        handle.result(timeout=45)
    assert (failed.value.call, failed.value.attempts) == (handle.id, 1)


def test_a_map_reports_each_result_or_its_failure(served: Cluster) -> None:
    calls = submit_calls(
        served.client,
        "tests.support.served_app.double",
        [([1], {}), (["x", "y"], {}), ([3], {})],
        lane="crm-api",
    )

    first, second, third = calls.results(timeout=45, return_exceptions=True)

    assert (first, third) == (2, 6)
    assert isinstance(second, CallFailed)
    assert "TypeError" in second.error
    assert dict(calls.stream()).keys() == {0, 1, 2}


def test_a_task_that_the_application_does_not_have_fails_by_name(served: Cluster) -> None:
    handle = submit_call(served.client, "crm.nothing", lane="crm-api")

    with pytest.raises(CallFailed, match=r"'crm' has no task 'crm\.nothing'"):
        handle.result(timeout=45)


def test_a_limited_task_goes_through_its_lane_when_it_is_sent(served: Cluster) -> None:
    double = limited(served.client, lane="crm-api")(served_app.double.task)

    handle = double.delay(21)

    assert handle.result(timeout=45) == 42
    assert [lane.lane for lane in handle.run.status().lanes] == [LANE]
    assert double(4) == 8, "called, it runs here"


def test_stopping_a_worker_frees_its_slots_and_loses_no_call(served: Cluster) -> None:
    before = serving(served)
    with app_worker(served, "three", "threads"):
        calls = submit_calls(
            served.client, "crm.fetch", [([n], {"of": "leaving"}) for n in range(40)], lane="crm-api"
        )
        wait_until(lambda: calls.run.status().jobs_done > 5)

    assert serving(served) == before
    assert len(calls.results(timeout=60)) == 40
    assert served.redis.zcard("crm:leaving:together") == 40
    assert served.redis.llen(queue_name(LANE)) == 0


def test_connections_that_are_dropped_lose_no_call(served: Cluster) -> None:
    """The task has no connection of its own, whose loss would be its own failure."""
    task, numbers = "tests.support.served_app.double", range(300)
    calls = submit_calls(served.client, task, [([n], {}) for n in numbers], lane="crm-api")
    wait_until(lambda: calls.run.status().jobs_done > 5, interval=0.005)
    served.redis.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")

    assert calls.results(timeout=60) == [2 * n for n in numbers]
    wait_until(lambda: len(serving(served)) == 2)


def test_a_call_that_reaches_a_worker_without_its_task_goes_back_for_one_that_has_it(tmp_path: Path) -> None:
    """A worker that runs other functions takes calls of this lane, too."""
    path = os.pathsep.join([str(ROOT), process_environment().get("PYTHONPATH", "")])
    worker: dict[str, Any] = {"modules": ["tests.support.user_functions"]}
    with cluster(tmp_path, worker=worker, workers=1, env={"PYTHONPATH": path}) as mixed:
        mixed.lanes.limit(LANE, {})
        wait_until(lambda: len(serving(mixed)) == 1)
        with app_worker(mixed, "crm", "threads"):
            calls = submit_calls(
                mixed.client, "crm.fetch", [([n], {"of": "mixed"}) for n in range(12)], lane="crm-api"
            )

            assert len(calls.results(timeout=60)) == 12
            assert {record.attempts for record in calls.run.results()} == {1}
            assert mixed.logged(Event.RETRY, lane=LANE), "none went astray: nothing was tried"


@pytest.fixture(scope="module")
def canvas(served: Cluster) -> Iterator[None]:
    """The application in this process sends and reads what its workers do."""
    app = served_app.app
    app.conf.broker_url, app.conf.result_backend = own_databases(served)
    yield
    app.close()


@pytest.mark.usefixtures("canvas")
def test_limited_tasks_are_steps_of_chains_groups_and_chords_under_their_lane(served: Cluster) -> None:
    double, total = served_app.double, served_app.total
    before = served.client.lanes(LANE)[0].succeeded

    chained = (double.s(3) | double.s() | double.si(5)).apply_async()
    grouped = group(double.s(n) for n in range(3)).apply_async()
    summed = chord([double.s(n) for n in range(4)], total.s()).apply_async()
    then_limited = chain(total.s([1, 2]), double.s()).apply_async()

    assert (chained.get(timeout=45), chained.parent.get(timeout=45)) == (10, 12)
    assert grouped.get(timeout=45) == [0, 2, 4]
    assert summed.get(timeout=45) == 12
    assert then_limited.get(timeout=45) == 6
    assert served.client.lanes(LANE)[0].succeeded == before + 11, "each step was one call of the lane"


@pytest.mark.usefixtures("canvas")
def test_a_limited_step_that_fails_ends_its_chain_and_calls_its_errback(served: Cluster) -> None:
    key = "crm:errback"
    failing = chain(served_app.refuse.s("no such customer"), served_app.double.s())
    sent = failing.apply_async(link_error=served_app.note.s(key))

    with pytest.raises(Exception, match="no such customer"):
        sent.parent.get(timeout=45)
    wait_until(lambda: served.redis.get(key))
    assert b"CallFailed" in served.redis.get(key)


def test_a_limited_task_starts_after_its_countdown_and_says_so(served: Cluster) -> None:
    double = limited(served.client, lane="crm-api")(served_app.double.task)

    late = double.apply_async([4], countdown=1.5)
    at_once = double.delay(5)

    assert at_once.get(timeout=45) == 10
    assert not late.ready()
    assert (late.why().constraint, late.get(timeout=45), late.successful()) == ("delay", 8, True)
    status = late.run.status()
    assert status.finished_ms is not None
    assert status.finished_ms - status.submitted_ms >= 1500


def test_a_drained_application_takes_no_fairlane_calls_and_keeps_running(served: Cluster) -> None:
    before, workers = set(serving(served)), Workers(served.keys)
    with app_worker(served, "three", "threads") as process:
        (third,) = set(serving(served)) - before
        assert workers.ask(served.redis, third, WorkerRequest.IDLE)
        wait_until(lambda: any(b.info.drained for b in served.beats() if b.worker == third))
        assert workers.ask(served.redis, third, WorkerRequest.WORK)
        wait_until(lambda: any(not b.info.stopping for b in served.beats() if b.worker == third))

        assert workers.ask(served.redis, third, WorkerRequest.STOP)

        wait_until(lambda: third not in {beat.worker for beat in served.beats()})
        assert process.poll() is None, "it is not ours to stop"
