"""How an evaluation's runs are waited for, and what the share of failures that one accepts means."""

from __future__ import annotations

from pathlib import Path

import pytest
from redis import Redis

from fairlane.apps.promptfoo.command import _enough_passed
from fairlane.apps.promptfoo.programs.programs import Programs
from fairlane.apps.promptfoo.running import Runner
from fairlane.apps.promptfoo.scoring.tally import Cell, Standing, Tally
from fairlane.client.submitting.trial import FIRST_ROWS
from fairlane.model.ending import Completion
from fairlane.model.job import Feedback, JobState
from fairlane.model.results import TaskResult
from fairlane.model.run import RunRef
from fairlane.store.rejections import ENOUGH_REFUSALS
from fairlane.store.write.workers import WorkerInfo
from tests.support.command_line import CommandLine
from tests.support.promptfoo import Folder, config
from tests.support.stage import Stage


@pytest.fixture
def stage(real_redis: Redis) -> Stage:
    made = Stage(real_redis)
    d, info = made.deployment, WorkerInfo("w1", 100, ("sim:fast", "sim:judge"), "1", 1, "box", 0)
    d.workers.beat("w1", info, [], 1000, changed=True, now_ms=d.now_ms).run(d.redis)
    return made


def judged(stage: Stage, folder: Folder, words: int = 2) -> tuple[Runner, Tally]:
    """An evaluation of two words, whose run lives as the stage's scenes have it."""
    variables = {"word": [f"w{number}" for number in range(words)]}
    evaluation = folder.read(
        config(providers=["sim:fast"], tests=[{"vars": variables}]), connections=frozenset({"sim"})
    )
    runner, tally = Runner(stage.client._deployment, None, "hold"), Tally()
    with Programs() as programs:
        for _ in runner.judged(evaluation, programs, tally):
            pass
    return runner, tally


def latest(stage: Stage) -> str:
    return stage.client.runs(1)[0].run


def test_a_run_that_was_cancelled_did_not_complete(
    stage: Stage, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cancel = lambda: stage.deployment.cancel(RunRef("search", latest(stage)))  # noqa: E731
    stage.then(stage.admit, lambda: stage.answer(latest(stage)), cancel)
    runner, tally = judged(stage, Folder(tmp_path))
    assert not runner.completed
    assert (tally.total, tally.unpassed) == (2, 1)
    assert "was cancelled" in capsys.readouterr().err


def test_a_held_run_says_so_and_its_results_are_awaited(
    stage: Stage, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    d = stage.deployment

    def refuse() -> None:
        failed = TaskResult(JobState.FAILED, error="no such model", attempts=1).to_json()
        for attempt in d.start(RunRef("search", latest(stage)), ENOUGH_REFUSALS):
            feedback = Feedback("answered", reason="no such model", refusal="404 no such model")
            call = d.attempts.finish(attempt, "w1", feedback, Completion(JobState.FAILED, failed), d.now_ms)
            assert call.run(stage.redis) is not None

    printed: list[str] = []

    def cancel_once_told() -> None:
        printed.append(capsys.readouterr().err)
        if "fairlane resume" in printed[-1] or len(printed) == 30:
            d.cancel(RunRef("search", latest(stage)))

    stage.then(stage.admit, refuse, *[cancel_once_told] * 30)
    runner, tally = judged(stage, Folder(tmp_path), ENOUGH_REFUSALS + 1)
    assert len(printed) < 30
    assert not runner.completed
    assert tally.unpassed == ENOUGH_REFUSALS + 1


@pytest.mark.parametrize(("allowed", "enough"), [(0.0, False), (0.28, False), (0.29, True), (1.0, True)])
def test_a_share_of_outputs_may_fail(
    allowed: float, enough: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    standing = Standing()
    standing.outcomes.update(passed=71, failed=20, error=9)
    assert _enough_passed(Tally({Cell("p", "m"): standing}), allowed) is enough
    said = capsys.readouterr().err
    assert ("29 of 100 outputs did not pass, more than --fail-on-error allows" in said) is (allowed == 0.28)


def test_nothing_to_judge_is_no_failure() -> None:
    assert _enough_passed(Tally(), 0.0)


def test_a_test_that_runs_serially_may_stand_behind_any_number_of_others(
    stage: Stage, tmp_path: Path
) -> None:
    tests = [{"vars": {"word": f"w{number}"}} for number in range(FIRST_ROWS)]
    last = {"vars": {"word": "z"}, "options": {"runSerially": True}}
    read = Folder(tmp_path).read(
        config(providers=["sim:fast"], tests=[*tests, last]), connections=frozenset({"sim"})
    )
    runner = Runner(stage.client._deployment, None, "hold")
    run = runner._submit(read.rows, read.runs[0].options)
    assert run.status().items == FIRST_ROWS + 1
    runner._submit(read.rows[:1], read.runs[0].options)


def test_json_is_json_or_refused(cli: CommandLine, tmp_path: Path) -> None:
    assert "leave out --json" in cli.refused("eval", "--check", "--json", code=2)
    (tmp_path / "passed.jsonl").write_text('{"row": {"q": 1}, "scores": {"pass": 1.0}}\n')
    found = cli.json("eval", "--filter-failing", str(tmp_path / "passed.jsonl"))
    assert found == {"runs": [], "results": [], "metrics": []}
