"""A run whose jobs refusals hold says so wherever it is watched."""

from __future__ import annotations

import pytest
from redis import Redis

from fairlane.config.settings import Settings
from fairlane.flower.readings.run_list import RunList
from fairlane.flower.readings.run_page import RunPage
from fairlane.flower.readings.tallies import Tallies
from fairlane.model.ending import Completion
from fairlane.model.job import Feedback, JobState
from fairlane.model.results import TaskResult
from fairlane.model.run import Plan, RunRef, RunState
from fairlane.store.rejections import ENOUGH_REFUSALS
from fairlane.store.write.workers import WorkerInfo
from fairlane_scheduler.monitoring.metrics import SchedulerMetrics
from fairlane_scheduler.state.backlog import REFUSED, ActiveRun, Backlog
from tests.support.command_line import CommandLine
from tests.support.deployment import make_spec

WORDS = "model fsat does not exist"


@pytest.fixture
def cli(real_redis: Redis) -> CommandLine:
    made = CommandLine(real_redis)
    d = made.stage.deployment
    info = WorkerInfo("w1", 100, ("sim:fast", "sim:judge"), "1", 1, "box", 0)
    d.workers.beat("w1", info, [], 1000, changed=True, now_ms=d.now_ms).run(d.redis)
    return made


def held(cli: CommandLine, rows: int = 20, on_refusal: str = "hold") -> str:
    """A run of which five calls were rejected alike; the lane passes over its other jobs."""
    run = cli.submitted(rows, on_refusal=on_refusal)
    d, ref = cli.stage.deployment, RunRef("search", run)
    failed = TaskResult(JobState.FAILED, error=WORDS, attempts=1).to_json()
    for attempt in d.start(ref, ENOUGH_REFUSALS):
        feedback = Feedback("answered", reason=WORDS, refusal=f"404 {WORDS}")
        call = d.attempts.finish(attempt, "w1", feedback, Completion(JobState.FAILED, failed), d.now_ms)
        assert call.run(cli.stage.redis) is not None
    assert d.take(ref) == []
    return run


def test_to_watch_a_held_run_ends_with_one_and_says_what_to_do(cli: CommandLine) -> None:
    run = held(cli)
    for arguments in (("watch", run), ("watch", run, "--json")):
        result = cli(*arguments)
        assert result.exit_code == 1
        assert f"run {run} is held: sim:fast rejected its first calls alike: {WORDS}" in result.stderr
        assert f"`fairlane resume {run}` tries again" in result.stderr


def test_a_held_run_is_waited_for_until_it_is_held_only_by_those_who_want_that(cli: CommandLine) -> None:
    run = cli.stage.client.run(held(cli))
    assert run.is_held()
    assert run.wait(until_held=True).state is RunState.RUNNING
    cli.stage.then(*[lambda: None] * 5, lambda: cli.stage.deployment.cancel(RunRef("search", run.id)))
    assert run.wait().state is RunState.CANCELLED


@pytest.mark.parametrize("why_not", ["fails", "in flight", "paused", "another model"])
def test_a_run_that_may_go_on_by_itself_is_not_held(cli: CommandLine, why_not: str) -> None:
    d = cli.stage.deployment
    if why_not == "another model":
        run = cli.stage.client.run(held(cli))
        d.redis.rpush(d.keys.hot(RunRef("search", run.id), "sim:judge"), "19:10:10:1")
        d.redis.sadd(d.keys.run_lanes(RunRef("search", run.id)), "sim:judge")
        d.redis.hset(d.keys.state(RunRef("search", run.id)), "known:sim:judge", 1)
        assert not run.is_held()
        return
    run = cli.stage.client.run(held(cli, on_refusal="fail" if why_not == "fails" else "hold"))
    ref = RunRef("search", run.id)
    if why_not == "in flight":
        d.redis.hincrby(d.keys.state(ref), "in_flight", 1)
    if why_not == "paused":
        d.runs.pause(ref, "ann@host", d.epoch, d.now_ms)
    cli.stage.then(*[lambda: None] * 30, lambda: d.cancel(ref))
    assert run.wait(until_held=True).state is RunState.CANCELLED


@pytest.mark.parametrize("show_text", [True, False])
def test_flowers_page_of_a_run_shows_what_rejected_it(cli: CommandLine, show_text: bool) -> None:
    run = held(cli)
    with cli.stage.client_of("search") as client:
        deployment = client._deployment
        tallies = Tallies(deployment)
        runs = RunList(deployment, tallies, show_text=show_text)
        page = RunPage(deployment, runs, tallies, show_text=show_text).of("search", run)
    assert page["held"]
    assert [each["lane"] for each in page["rejected_by"]] == ["sim:fast"]
    assert "does not exist" in page["rejected_by"][0]["words"]


def test_the_metrics_count_runs_that_are_held_on_any_lane() -> None:
    backlog, metrics = Backlog(), SchedulerMetrics(Settings())
    refs = [RunRef("search", name) for name in ("r1", "r2", "r3")]
    for ref in refs:
        plan = Plan(spec=make_spec(ref.team, ref.run, 10, 0, 0))
        backlog.add_run(ActiveRun(ref, plan))
        for lane in ("sim:fast", "sim:slow"):
            backlog.add(lane, ref, 5)
    for ref, lane in ((refs[0], "sim:fast"), (refs[0], "sim:slow"), (refs[1], "sim:slow")):
        backlog.throttle(lane, ref, None, REFUSED)
    backlog.throttle("sim:fast", refs[2], None, "run_paused")
    metrics.note(backlog, ["sim:fast", "sim:slow"], lambda team: 1.0, ())
    assert metrics.leader_sample.held_runs == 2
