"""Flower's own rows of tasks in our words, the attempts that it has heard of, and a bounded memory."""

from __future__ import annotations

import gc
import tracemalloc
from typing import Any

import pytest
from celery.events.state import Task
from flower.events import EventsState
from redis import Redis

from fairlane.broker.app import TASK_NAME
from fairlane.core.errors import RunNotFound
from fairlane.flower.command import FLOWER_MEMORY_TASKS
from fairlane.flower.tasks.task_rows import COLUMNS, TaskRows, attempts_seen
from fairlane.flower.web.pages import BEFORE, StackedLoader
from fairlane.model.job import Attempt
from fairlane.model.run import RunRef, RunSpec
from tests.support.flower_app import served
from tests.support.scheduling import Cluster

REF = RunRef("search", "r1")


def task(job: int, number: int = 1, **fields: Any) -> Task:
    attempt = Attempt(REF.run, REF.team, job, number, "sim:fast")
    shown = f"'run={attempt.run} job={job} attempt={number} team={attempt.team} lane={attempt.lane}'"
    made: Task = Task(attempt.id, name=TASK_NAME, args="()", kwargs=shown, **fields)
    return made


def spec_of(redis: Redis, rows: int = 5) -> RunSpec:
    cluster = Cluster(redis)
    return cluster.specs[cluster.submit(rows, judges=["sim:judge"])]


def test_a_row_has_run_item_team_lane_and_model_and_no_raw_arguments(fake_redis: Redis) -> None:
    spec = spec_of(fake_redis)
    rows = TaskRows(lambda _: spec)
    rows.learn([REF])

    first, judged = rows.format(task(6)).as_dict(), rows.format(task(7, 2, result="'RateLimited'")).as_dict()

    assert {name: first[name] for name in ("run", "item", "team", "lane", "model")} == {
        "run": "r1",
        "item": "3",
        "team": "search",
        "lane": "sim:fast",
        "model": "sim:fast",
    }
    assert (judged["item"], judged["model"], judged["result"]) == (
        "3 (judge0)",
        "sim:judge",
        "RateLimited",
    )
    assert (judged["args"], judged["kwargs"]) == ("attempt 2 of job 7", "")


def test_a_row_of_a_run_that_nobody_can_read_has_what_its_id_says() -> None:
    def gone(ref: RunRef) -> RunSpec:
        raise RunNotFound(ref.run)

    rows = TaskRows(gone)
    rows.learn([REF])

    row = rows.format(task(6)).as_dict()

    assert (row["run"], row["item"], row["team"], row["model"]) == ("r1", "job 6", "search", "")


def test_a_task_that_is_none_of_ours_keeps_its_arguments_and_has_every_column() -> None:
    other = Task("a-b-c", name="celery.ping", args="(1,)", kwargs="{}")
    row = TaskRows(lambda _: None).format(other).as_dict()
    assert row["args"] == "(1,)"
    assert {name: row[name] for name in COLUMNS} == dict.fromkeys(COLUMNS, "") | {"run": "celery.ping"}


def test_flowers_own_pages_show_the_rows_so(real_redis: Redis) -> None:
    cluster = Cluster(real_redis, lanes={"sim:fast": {"requests_per_minute": 1}})
    ref = cluster.submit(5)
    cluster.run_for(2)
    with served(real_redis) as flower, flower.client() as client:
        seen = task(3, received=1.0, state="STARTED")
        flower.tasks[seen.uuid] = seen
        page = client.get(f"/task/{seen.uuid}")
        columns = client.get("/tasks").text

    assert ref == REF
    assert all(f'data-column="{name}"' in columns for name in ("run", "item", "team", "lane", "model"))
    assert 'data-column="args"' not in columns
    assert page.status_code == 200
    shown = page.text.replace("\n", " ")
    assert all(f"<dt>{name}</dt>" in shown for name in ("Run", "Item", "Team", "Lane", "Model"))
    assert "job=3" not in shown


def test_the_attempts_at_a_job_come_in_order_with_the_time_between_them() -> None:
    tasks = [
        task(
            6,
            1,
            received=10.0,
            started=10.1,
            succeeded=12.0,
            runtime=1.9,
            result="'Overloaded'",
            state="SUCCESS",
        ),
        task(6, 3, received=15.5, started=15.6, state="STARTED"),
        task(7, 1, received=16.0),
    ]

    seen = attempts_seen({each.uuid: each for each in tasks}, REF, 6)

    assert [(each["number"], each["outcome"], each["waited_s"]) for each in seen] == [
        (1, "Overloaded", None),
        (3, "", 3.5),
    ]
    assert {each["lane"] for each in seen} == {"sim:fast"}


@pytest.fixture
def navigation(tmp_path: Any) -> StackedLoader:
    (tmp_path / "navbar.html").write_text(f"{BEFORE}<li>Tasks</li></ul>")
    return StackedLoader(str(tmp_path))


def test_our_entries_come_first_in_flowers_navigation(navigation: StackedLoader) -> None:
    text = navigation.load("navbar.html").generate(
        reverse_url=lambda name: f"/{name}", active_tab="fairlane-runs"
    )
    shown = text.decode()
    assert (
        shown.index(">Lanes<")
        < shown.index(">Runs<")
        < shown.index(">Teams<")
        < shown.index("<li>Tasks</li>")
    )
    assert shown.count('aria-current="page"') == 1


def test_a_navigation_that_looks_different_is_left_as_it_is(tmp_path: Any) -> None:
    (tmp_path / "navbar.html").write_text("<nav>another</nav>")
    assert StackedLoader(str(tmp_path)).load("navbar.html").generate() == b"<nav>another</nav>"


def heard(state: EventsState, numbers: range) -> None:
    """The three events of each of so many attempts, of two workers."""
    for number in numbers:
        uuid, common = (
            f"search/r1/{number}/1",
            {"hostname": f"w{number % 2}", "pid": 1, "local_received": number},
        )
        shown = {
            "name": TASK_NAME,
            "args": "()",
            "kwargs": f"run=r1 job={number} lane=sim:fast",
            "retries": 0,
        }
        for clock, (event, more) in enumerate(
            (("received", shown), ("started", {}), ("succeeded", {"result": "Success", "runtime": 0.1}))
        ):
            reported = {"uuid": uuid, "timestamp": number + clock / 10, "clock": 3 * number + clock}
            state.event({"type": f"task-{event}", "utcoffset": 0, **reported, **common, **more})


@pytest.mark.slow
def test_flowers_memory_does_not_grow_with_the_tasks_it_receives() -> None:
    most = FLOWER_MEMORY_TASKS // 50
    state = EventsState(max_tasks_in_memory=most, max_workers_in_memory=100)
    rows = TaskRows(lambda _: None)
    heard(state, range(3 * most))
    tracemalloc.start()
    try:
        heard(state, range(3 * most, 6 * most))
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        heard(state, range(6 * most, 15 * most))
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()

    assert len(state.tasks) == most
    assert len(state.search_engine.documents) <= most
    assert len(state._taskheap) <= state.heap_multiplier * most
    assert list(state.tasks)[-1] == f"search/r1/{15 * most - 1}/1"
    assert (
        grown < 1000 * most
    )  # a task takes about 5 KB: nine times as many came, and none is kept beyond the bound
    assert rows.format(state.tasks[f"search/r1/{15 * most - 1}/1"]).lane == "sim:fast"
