"""``fairlane why``: which target is meant, and how the answer is printed."""

from __future__ import annotations

import pytest
from redis import Redis

from fairlane.cli.runs.why import eta_in_words
from fairlane.evaluators.builders import llm_judge
from fairlane.model.job import JobState
from fairlane.store.write.workers import WorkerInfo
from fairlane.why.waiting import Eta
from tests.support.command_line import CommandLine

NOW = 1_700_000_000_000


@pytest.fixture
def cli(real_redis: Redis) -> CommandLine:
    made = CommandLine(real_redis)
    d = made.stage.deployment
    info = WorkerInfo("w1", 100, ("sim:fast", "sim:judge"), "1", 1, "box", 0)
    d.workers.beat("w1", info, [], 1000, changed=True, now_ms=d.now_ms).run(d.redis)
    return made


def test_a_lane_is_reported_with_its_constraint(cli: CommandLine) -> None:
    cli.stage.deployment.lanes.pause("sim:fast")
    shown = cli.out("why", "sim:fast")
    assert shown.splitlines()[0].split() == ["lane", "sim:fast"]
    assert "sim:fast is paused by an operator; `fairlane lanes resume sim:fast` resumes it" in shown
    assert cli.json("why", "sim:fast")["constraint"] == "paused"


def test_a_run_is_explained_lane_by_lane(cli: CommandLine) -> None:
    d = cli.stage.deployment
    d.lane("sim:fast", requests_per_minute=60)
    run = cli.submitted(rows=61)
    d.ask(d.runs.active()[0])
    shown = cli.out("why", run)
    assert "60 requests/min, configured" in shown
    assert "last starts  about " in shown
    header, row = shown.splitlines()[-2:]
    assert header.split()[0] == "lane"
    assert row.split()[:6] == ["sim:fast", "1", "60", "0", "0", "0"]
    document = cli.json("why", run)
    assert (document["kind"], document["lanes"][0]["queued"]) == ("run", 60)
    assert document["eta"].endswith("Z")


def test_a_job_is_reported_with_its_place(cli: CommandLine) -> None:
    run = cli.submitted(rows=5)
    shown = cli.out("why", f"{run}/3")
    assert "4 in its run's queue" in shown
    assert "about 3 jobs start before it" in shown
    assert cli.json("why", f"{run}/3/task")["position"] == 4


def test_a_job_that_failed_is_reported_with_its_attempts_its_error_and_its_number(cli: CommandLine) -> None:
    run = cli.submitted(rows=2, evaluators=[llm_judge("sim:judge", "{{ output }}", {"yes": 1})])
    failed = {"state": JobState.FAILED, "output": None, "error": "500: no luck"}
    cli.stage.answer(run, 2, attempts=3, **failed)
    shown = cli.out("why", f"{run}/1/task")
    assert "it is over: failed after 3 attempts: 500: no luck" in shown
    assert shown.splitlines()[-1] == f"in logs  run={run} and job=2"
    assert cli.json("why", f"{run}/1/1")["job"] == 3


def test_a_job_that_is_over_needs_no_eta(cli: CommandLine) -> None:
    shown = cli.out("why", f"{cli.completed()}/0")
    assert "it is over: succeeded" in shown
    assert "starts" not in shown


@pytest.mark.parametrize("asked", [(), ("latest",), ("-1",)])
def test_the_latest_run_needs_no_id(cli: CommandLine, asked: tuple[str, ...]) -> None:
    run = cli.submitted()
    assert cli.json("why", *asked)["target"] == run


def test_the_beginning_of_an_id_is_enough_also_of_a_job(cli: CommandLine) -> None:
    run = cli.submitted()
    assert cli.json("why", run[:-2])["target"] == run
    assert cli.json("why", f"{run[:-2]}/1")["target"] == f"{run}/1/0"
    assert cli.json("why", "latest/1")["target"] == f"{run}/1/0"


def test_an_unknown_target_is_reported_with_similar_ones(cli: CommandLine) -> None:
    assert "did you mean sim:fast?" in cli.refused("why", "sim:fats")
    run = cli.submitted(rows=5)
    assert "has the items 0 to 4" in cli.refused("why", f"{run}/5")
    assert "no lane, run or job" in CommandLine(cli.stage.redis, team="other").refused("why", run)


def test_a_client_and_its_run_answer_alike(cli: CommandLine) -> None:
    run = cli.stage.client.run(cli.submitted())
    assert run.why().ahead == cli.stage.client.why(run.id).ahead == 4
    assert run.why(2).position == cli.stage.client.why(f"{run.id}/2/0").position == 3
    assert run.why(2, "task").target == f"{run.id}/2/0"
    assert cli.stage.client.why("sim:fast").kind == "lane"


def test_an_eta_says_how_sure_it_is() -> None:
    assert eta_in_words(Eta(), NOW) == "not known"
    assert eta_in_words(Eta(NOW + 61_000), NOW).startswith("about ")
    assert eta_in_words(Eta(NOW + 61_000, at_least=True), NOW).endswith(", in 1 min")
    assert eta_in_words(Eta(NOW + 61_000, at_least=True), NOW).startswith("at least ")
