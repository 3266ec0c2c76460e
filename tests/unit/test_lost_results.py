"""Redis evicts whole keys of runs that have finished: no reader takes what is left for the run's results."""

from __future__ import annotations

import copy
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry
from redis import Redis
from structlog.testing import capture_logs

from fairlane import JobState, ResultsLost, Run, RunState, llm_judge
from fairlane.client.client import Client
from fairlane.datasets.rows import encode_page
from fairlane.model.run import RunRef, RunSpec
from fairlane.store.read.lost_parts import LOST_RESULT
from fairlane.store.read.reading import RecordReader, RunReader
from fairlane.store.run_queries import read_time
from fairlane.store.write.permits import Offer
from fairlane_scheduler.monitoring.deployment_metrics import DeploymentMetrics
from tests.support.command_line import CommandLine
from tests.support.deployment import Deployment
from tests.support.registries import ScheduledMetrics
from tests.support.stage import Stage

ROWS = 3


def finished(stage: Stage) -> tuple[Run, RunRef]:
    run = stage.client.submit([{"q": n} for n in range(ROWS)], "{{ q }}", model="sim:fast")
    stage.admit()
    stage.answer(run.id, ROWS)
    assert run.status().state is RunState.COMPLETED
    return run, RunRef("search", run.id)


def _spec(stage: Stage, ref: RunRef) -> RunSpec:
    spec = RunReader(stage.redis, stage.keys).overview(ref).spec
    assert spec is not None
    return spec


READS: dict[str, Callable[[Run], Any]] = {
    "results": lambda run: list(run.results()),
    "stream": lambda run: list(run.stream()),
    "summary": lambda run: run.summary(),
}


@pytest.mark.parametrize("read", READS.values(), ids=READS)
def test_a_finished_run_without_its_results_is_not_one_whose_jobs_were_cancelled(
    stage: Stage, read: Callable[[Run], Any]
) -> None:
    run, ref = finished(stage)
    stage.redis.delete(stage.keys.results(ref))
    with pytest.raises(ResultsLost, match=r"lost the results of 3 jobs.*noeviction"):
        read(run)
    assert run.status().by_state == {JobState.SUCCEEDED: ROWS}, "how it ended is still known"


def test_such_a_run_cannot_be_continued_since_every_call_would_be_paid_again(stage: Stage) -> None:
    run, ref = finished(stage)
    stage.redis.delete(stage.keys.results(ref))
    with pytest.raises(ResultsLost):
        stage.client.continue_run(run.id)
    assert stage.client.runs()[0].run == run.id


STATE_READS: dict[str, Callable[[Run, Client], Any]] = {
    "status": lambda run, _: run.status(),
    "wait": lambda run, _: run.wait(),
    "results": lambda run, _: list(run.results()),
    "stream": lambda run, _: list(run.stream()),
    "run": lambda run, client: client.run(run.id).status(),
    "continue": lambda run, client: client.continue_run(run.id),
    "why": lambda run, _: run.why(),
}


@pytest.mark.parametrize("read", STATE_READS.values(), ids=STATE_READS)
def test_a_run_without_its_state_is_not_one_that_never_started(
    stage: Stage, read: Callable[[Run, Client], Any]
) -> None:
    run, ref = finished(stage)
    stage.redis.delete(stage.keys.state(ref))
    with pytest.raises(ResultsLost, match="lost how far it had come") as raised:
        read(run, stage.client)
    assert "Submit it again" not in str(raised.value)
    assert not stage.waits, "it is known at once"


@pytest.mark.parametrize("part", ["plan", "results", "done"])
def test_any_part_that_is_left_shows_that_it_had_started(stage: Stage, part: str) -> None:
    run, ref = finished(stage)
    for each in {"state", "plan", "results", "done", "finished"} - {part}:
        stage.redis.delete(getattr(stage.keys, each)(ref))
    with pytest.raises(ResultsLost):
        run.status()
    with pytest.raises(ResultsLost):
        RunReader(stage.redis, stage.keys).is_lost(ref)


def test_lists_leave_it_out(stage: Stage) -> None:
    _, ref = finished(stage)
    stage.redis.delete(stage.keys.state(ref))
    assert stage.client.runs() == []


def test_a_run_whose_jobs_were_all_cancelled_has_no_results_to_lose(stage: Stage) -> None:
    run = stage.client.submit([{"q": 1}], "{{ q }}", model="sim:fast")
    stage.admit()
    run.cancel()
    stage.admit()
    assert [record.state for record in run.results()] == [JobState.CANCELLED]


def test_the_error_survives_a_process_pool() -> None:
    error = copy.copy(ResultsLost("r1", "its results"))
    assert (error.run_id, str(error)) == ("r1", str(ResultsLost("r1", "its results")))


def test_the_leader_says_once_that_redis_would_delete_parts_of_runs(real_redis: Redis) -> None:
    shown = ScheduledMetrics(real_redis)
    policy, limit = ("maxmemory-policy", "volatile-lru"), ("maxmemory", "1gb")
    try:
        with capture_logs() as logs:
            shown.sampler.tick()
            real_redis.config_set(*policy)
            shown.sampler.tick()
            assert logs == [], "without a limit nothing is deleted"
            real_redis.config_set(*limit)
            shown.sampler.tick()
            shown.sampler.tick()
    finally:
        real_redis.config_set("maxmemory-policy", "noeviction")
        real_redis.config_set("maxmemory", "0")
    assert [(line["event"], line["log_level"], line["policy"]) for line in logs] == [
        ("store_evicts", "error", "volatile-lru")
    ]


def test_gauges_say_that_redis_evicts_and_how_far_time_is_ahead(real_redis: Redis) -> None:
    shown = ScheduledMetrics(real_redis)
    registry, leader = CollectorRegistry(), cast(Any, shown).leader
    registry.register(DeploymentMetrics(leader, shown.metrics, shown.sampler))
    gauges = ("fairlane_redis_evicts", "fairlane_clock_ahead_seconds")
    assert [registry.get_sample_value(name) for name in gauges] == [None, None]
    shown.sampler.tick()
    assert [registry.get_sample_value(name) for name in gauges] == [0, 0]
    try:
        real_redis.config_set("maxmemory-policy", "volatile-lru")
        real_redis.config_set("maxmemory", "1gb")
        now_ms = read_time(real_redis, shown.sampler._keys).now_ms
        noted = {"seen_ms": now_ms, "ahead_ms": 60_000, "from_ms": now_ms}
        real_redis.hset(shown.sampler._keys.clock, mapping=noted)
        shown.sampler.tick()
        evicts, ahead_s = (registry.get_sample_value(name) for name in gauges)
    finally:
        real_redis.config_set("maxmemory-policy", "noeviction")
        real_redis.config_set("maxmemory", "0")
    assert (evicts, round(ahead_s or 0)) == (1, 60)
    leader.epoch = 0
    assert [registry.get_sample_value(name) for name in gauges] == [None, None]


def test_a_scheduler_that_takes_over_says_it_too(real_redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = ScheduledMetrics(real_redis)
    leads = [False, False, True, True, False, True]
    monkeypatch.setattr(shown.sampler, "_leads", lambda: leads[0])
    server = SimpleNamespace(evicts=True, memory_limit=1, eviction="volatile-lru", refusing=None)
    monkeypatch.setattr(shown.sampler._deployment, "server", lambda: server)
    said = []
    while leads:
        with capture_logs() as logs:
            shown.sampler.tick()
        said.append(len(logs))
        leads.pop(0)
    assert said == [0, 0, 1, 0, 0, 1]


def test_records_of_lost_rows_say_so_once(stage: Stage) -> None:
    run, ref = finished(stage)
    stage.redis.delete(stage.keys.rows(ref))
    with pytest.warns(UserWarning, match=r"lost rows of it.*noeviction.*empty") as warned:
        assert [record.row for record in run.results()] == [{}] * ROWS
    assert len(warned) == 1


@pytest.mark.parametrize("rows", [None, [{"q": n} for n in range(ROWS)]])
def test_a_run_whose_rows_are_lost_is_not_continued_and_is_not_unknown(
    stage: Stage, rows: list[dict[str, int]] | None
) -> None:
    run, ref = finished(stage)
    stage.redis.delete(stage.keys.rows(ref))
    with pytest.raises(ResultsLost, match=r"lost rows of it"):
        stage.client.continue_run(run.id, rows)
    assert [each.run for each in stage.client.runs()] == [run.id]


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_a_single_page_that_is_lost_is_named_too(stage: Stage, lost: int) -> None:
    run, ref = finished(stage)
    reader = RecordReader(stage.redis, stage.keys, _spec(stage, ref).model_copy(update={"page_rows": 1}))
    for number in range(ROWS):
        stage.redis.hset(stage.keys.rows(ref), str(number), encode_page([{"q": number}]))
    stage.redis.hdel(stage.keys.rows(ref), str(lost))
    with pytest.raises(ResultsLost):
        list(reader.rows(ROWS))
    assert run.status().state is RunState.COMPLETED


def test_a_run_that_is_admitted_between_two_reads_is_not_lost(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = stage.client.submit([{"q": n} for n in range(ROWS)], "{{ q }}", model="sim:fast")
    look = RunReader._require_submitted

    def late(reader: RunReader, ref: RunRef) -> None:
        stage.admit()
        look(reader, ref)

    monkeypatch.setattr(RunReader, "_require_submitted", late)
    assert run.status().state is RunState.SUBMITTED
    assert run.status().state is RunState.RUNNING


@pytest.mark.parametrize("counted", [False, True])
@pytest.mark.parametrize("lost", ["state", "plan", "run_lanes", "spec", "rows", "jobs"])
def test_a_running_run_of_which_redis_has_lost_a_part_is_shown_in_words(
    real_redis: Redis, lost: str, counted: bool
) -> None:
    cli = CommandLine(real_redis)
    run, other = cli.submitted(rows=5), cli.submitted(rows=5)
    keys, ref = cli.stage.keys, RunRef(cli.stage.client.team, run)
    real_redis.delete(getattr(keys, lost)(ref))
    if lost == "state" and counted:
        real_redis.hincrby(keys.state(ref), "retries", 1)  # by a call that was in flight

    for command in (["why", run], ["why", f"{run}/3"], ["status", run]):
        result = cli(*command)
        assert result.exception is None or isinstance(result.exception, SystemExit), command
    assert other in cli.out("runs")
    assert lost != "state" or "lost how far it had come" in cli.refused("status", run)


@pytest.mark.parametrize("counted", [False, True])
def test_no_call_is_granted_to_a_run_whose_state_is_lost(real_redis: Redis, counted: bool) -> None:
    d = Deployment(real_redis)
    lost, whole = d.queued_lane(jobs=3), d.queued_lane(jobs=3, run="r2")
    real_redis.delete(d.keys.state(lost))
    if counted:
        real_redis.hincrby(d.keys.state(lost), "retries", 1)

    grant = d.ask([Offer(lost, 3), Offer(whole, 3)])

    assert [permit.offer for permit in grant.permits] == [1, 1, 1]
    assert list(grant.queued) == [0, 0], "so the scheduler does not offer it again"


def test_a_result_that_is_lost_alone_is_a_failure_that_says_so(stage: Stage) -> None:
    run = stage.client.submit(
        [{"q": n} for n in range(ROWS)],
        "{{ q }}",
        model="sim:fast",
        evaluators=[llm_judge("sim:judge", "{{ output }}", choices={"yes": 1.0}, name="j")],
    )
    stage.admit()
    stage.answer(run.id, ROWS)
    stage.judge(run.id, ROWS)
    results = stage.keys.results(RunRef("search", run.id))
    stage.redis.hdel(results, "0", "3")  # the first task, and the second item's evaluation

    first, second, third = run.results()

    assert (first.state, first.error) == (JobState.FAILED, LOST_RESULT)
    assert (second.state, second.scores, second.score_errors) == (
        JobState.SUCCEEDED,
        {"j": None},
        {"j": LOST_RESULT},
    )
    assert (third.state, third.scores) == (JobState.SUCCEEDED, {"j": 1.0})
    assert [failure.count for failure in run.summary().failures] == [1, 1], "a task's, and an evaluation's"
