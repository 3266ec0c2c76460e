"""The demonstration's parts: its questions, its arithmetic, what it shows, and where its data lies."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from fairlane.cli.failures import Interrupted
from fairlane.config.loader import load_settings
from fairlane.core.errors import LocalStackError
from fairlane.local import demo_command as demonstration
from fairlane.local.demo.questions import demo_file, read_questions
from fairlane.local.demo.session import JUDGE_LANE, MEDIAN_S
from fairlane.local.demo.session import ideal_seconds as ideal_of_all
from fairlane.local.demo.summary import (
    LaneUse,
    Summary,
    ideal_seconds,
    mean_scores,
    provider_stats,
    show_summary,
)
from fairlane.local.demo_command import QUESTIONS, data_folder
from fairlane.local.keeper import WatchfulWaiter
from fairlane.model.job import JobState
from fairlane.model.lane import LaneLimits
from fairlane.model.record import Record
from fairlane.model.run import RunState
from fairlane.model.run_status import RunStatus
from fairlane.model.tokens import Usage
from fairlane.testing import SimulatedModel, SimulatorConfig, serve_in_thread

LIMITS = LaneLimits(requests_per_minute=600)


def test_every_question_has_a_number_for_an_answer_and_one_in_three_is_slow() -> None:
    rows = list(read_questions())
    assert len(rows) == QUESTIONS
    assert all(float(row["answer"].replace(",", "")) == float(row["answer"].replace(",", "")) for row in rows)
    assert sum(row["lane"] == "slow" for row in rows) == 440


def test_a_limit_takes_the_first_questions() -> None:
    assert list(read_questions(5)) == list(read_questions())[:5]


def test_what_is_said_of_the_simulated_models_is_what_they_do() -> None:
    with demo_file("simulator.toml") as path:
        models = tomllib.loads(path.read_text())["models"]
    assert {f"sim:{name}": model["latency_ms"] / 1000 for name, model in models.items()} == MEDIAN_S
    with demo_file("fairlane.toml") as path:
        stated = load_settings(path, environ={}).lanes
    rates = {f"sim:{name}": model["requests_per_minute"] for name, model in models.items()}
    assert {lane: limits.requests_per_minute for lane, limits in stated.items()} == rates


def test_the_ideal_is_the_jobs_beyond_the_burst_over_the_rate_and_a_latency() -> None:
    assert ideal_seconds(110, LIMITS, 0.5) == pytest.approx(100 / 10 + 0.5)
    assert ideal_seconds(3, LIMITS, 0.5) == 0.5
    assert ideal_seconds(1000, LaneLimits(), 0.5) == 0.5


def use(lane: str, ideal_s: float) -> LaneUse:
    return LaneUse(lane, jobs=1, calls=1, rejected=0, rate=0.0, limit=600.0, ideal_s=ideal_s)


def test_the_whole_ends_with_its_slowest_lane_and_a_last_judge() -> None:
    fast = [use("sim:fast", 5.0), use("sim:slow", 9.0)]
    assert ideal_of_all([*fast, use(JUDGE_LANE, 2.0)]) == pytest.approx(9.0 + MEDIAN_S[JUDGE_LANE])
    assert ideal_of_all([*fast, use(JUDGE_LANE, 30.0)]) == 30.0


def counted(admitted: int, first_s: float | None = 0.0, last_s: float | None = 10.0) -> Mapping[str, Any]:
    return {"admitted": admitted, "rejected": 2, "first_admitted_s": first_s, "last_completed_s": last_s}


def test_the_rate_of_a_lane_is_counted_without_its_burst() -> None:
    found = LaneUse.of("sim:slow", 100, LIMITS, 0.5, counted(110))
    assert (found.calls, found.rejected, found.limit) == (110, 2, 600.0)
    assert found.rate == pytest.approx(600.0)


@pytest.mark.parametrize("stats", [counted(0, None, None), counted(1, 0.0, 0.0), counted(5)])
def test_a_lane_that_hardly_ran_has_no_rate(stats: Mapping[str, Any]) -> None:
    assert LaneUse.of("sim:slow", 5, LIMITS, 0.5, stats).rate == 0.0


def record(**scores: float | None) -> Record:
    return Record(0, {}, "m", 0, 0, JobState.SUCCEEDED, "x", scores, {}, Usage(), 1, None)


def test_a_mean_is_taken_over_the_items_that_have_a_score() -> None:
    records = [record(a=1.0, b=None), record(a=0.0, b=0.5), record(a=None)]
    assert mean_scores(records) == {"a": 0.5, "b": 0.5}


def test_the_summary_reports_everything_within_80_columns() -> None:
    status = RunStatus(
        run="r1",
        team="demo",
        name="gsm8k",
        state=RunState.COMPLETED,
        items=1319,
        items_done=1319,
        jobs=2638,
        jobs_done=2638,
        by_state={JobState.SUCCEEDED: 2600, JobState.FAILED: 38},
        in_flight=0,
        retries=17,
        rate_limits=3,
        late_reports=0,
        lanes=(),
        submitted_ms=0,
        started_ms=0,
        finished_ms=1,
    )
    lanes = [LaneUse("sim:fast", 879, 888, 4, 1764.0, 1800.0, 29.0)]
    shown = StringIO()
    console = Console(file=shown, width=80, highlight=False)
    show_summary(console, Summary(status, lanes, {"exact_match": 0.928}, wall_s=46.2, ideal_s=44.0))
    reported = shown.getvalue()
    assert "sim:fast   879    888     1,764      1,800   98%     4" in reported
    assert "2,638 of 2,638: 38 failed, 2,600 succeeded" in reported
    assert "17, and 3 answers of 429" in reported
    assert "92.8%" in reported
    assert "46.2 s; the limits allow 44.0 s: 1.05 × ideal" in reported


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where temporary folders are made."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def fill(folder: Path) -> None:
    (folder / "logs").mkdir()
    (folder / "logs" / "redis.log").write_text("said")


def fill_and_raise(error: BaseException) -> None:
    with data_folder(None) as folder:
        fill(folder)
        raise error


def test_without_a_folder_of_its_own_nothing_is_kept(temporary: Path) -> None:
    with data_folder(None) as folder:
        fill(folder)
    with pytest.raises(Interrupted):
        fill_and_raise(Interrupted())
    assert list(temporary.iterdir()) == []


def test_the_logs_of_a_failure_are_kept_and_their_place_is_reported(
    temporary: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(LocalStackError):
        fill_and_raise(LocalStackError("redis", "died"))
    (folder,) = temporary.iterdir()
    assert (folder / "logs" / "redis.log").read_text() == "said"
    assert capsys.readouterr().err.replace("\n", "").endswith(str(folder / "logs"))


def test_a_folder_that_was_named_is_kept(temporary: Path) -> None:
    with data_folder(temporary / "data") as folder:
        fill(folder)
    assert {entry.name for entry in (temporary / "data").iterdir()} == {"logs", ".gitignore"}


def test_variables_that_lead_elsewhere_do_not_reach_the_demonstration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Mapping[str, str]] = []

    class NoStack:
        def __init__(self, plan: Any, **_: Any) -> None:
            seen.append(plan.environment("redis://here/0", "http://simulated/v1"))

        def __enter__(self) -> NoStack:
            return self

        def __exit__(self, *_: object) -> None: ...

    monkeypatch.setattr(demonstration, "Stack", NoStack)
    monkeypatch.setenv("FAIRLANE_CELERY__BROKER_URL", "redis://elsewhere/0")
    monkeypatch.setenv("FAIRLANE_REDIS__DEPLOYMENT", "elsewhere")
    with demonstration.local_stack(tmp_path, 2, lambda: None):
        settings = load_settings(environ=seen[0])
    assert settings.broker_url == "redis://here/0"
    assert settings.redis.deployment == "main"


class Keeper:
    def __init__(self) -> None:
        self.ticks = 0

    def tick(self) -> bool:
        self.ticks += 1
        return False


def test_a_wait_looks_after_the_stack_and_ends_with_a_signal() -> None:
    keeper, looks = Keeper(), 0

    def check() -> None:
        nonlocal looks
        looks += 1
        if looks == 3:
            raise Interrupted

    waiter = WatchfulWaiter(check, keeper)
    waiter.wait(0.0)
    with pytest.raises(Interrupted):
        waiter.wait(60.0)
    assert keeper.ticks == 2


def test_a_proxy_of_the_environment_is_not_asked_for_what_is_on_this_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    with serve_in_thread(SimulatorConfig(models={"fast": SimulatedModel()})) as served:
        assert set(provider_stats(served.base_url)) == {"fast"}
