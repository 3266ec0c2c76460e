"""``fairlane rehearse``: what it takes, and what it says of a run that is not answered."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from fairlane.cli.main import app
from fairlane.config.sections import MOST_SLOTS
from fairlane.lab.rehearsal import command
from fairlane.lab.rehearsal.scenario import Scenario

Rehearse = Callable[..., Result]
SETTINGS = '[connections.sim]\nprotocol = "openai"\nbase_url = "http://h/v1"\nlane_scope = "{}"\n'


@pytest.fixture
def rehearse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rehearse:
    """Run the command on a connection whose lanes have that scope; four jobs of each model are answered."""
    monkeypatch.chdir(tmp_path)

    def play(scenario: dict[str, Any], *, show: bool) -> dict[str, Any]:
        assert Scenario.model_validate(scenario)
        counts = dict.fromkeys(("calls", "rejected", "input_tokens", "output_tokens"), 0)
        return {"complete": True, "duration_s": 1.0, "succeeded": 4, "lanes": [], **counts}

    def run(*words: str, scope: str = "model", provider: str = "--rpm=60") -> Result:
        Path("fairlane.toml").write_text(SETTINGS.format(scope), encoding="utf-8")
        return CliRunner().invoke(app, ["rehearse", provider, *words])

    monkeypatch.setattr(command, "_play", play)
    return run


def test_a_worker_may_have_as_many_slots_as_a_real_one(rehearse: Rehearse) -> None:
    assert rehearse("--jobs", "4", "--slots", str(MOST_SLOTS)).exit_code == 0


@pytest.mark.parametrize("model", ["sim", "sim:", "other"])
def test_a_model_may_be_a_bare_name(rehearse: Rehearse, model: str) -> None:
    assert rehearse("--jobs", "4", "--model", model).exit_code == 0


def test_jobs_that_end_without_an_answer_are_counted(rehearse: Rehearse) -> None:
    assert "3 jobs end without an answer" in rehearse("--jobs", "7").stderr
    assert rehearse("--jobs", "4").stderr == ""


def test_models_of_one_lane_are_cautioned_against_and_one_twice_is_refused(rehearse: Rehearse) -> None:
    two = ("--jobs", "2", "--model", "sim:a", "--model", "sim:b")
    assert "sim:a and sim:b share the lane sim" in rehearse(*two, scope="connection").stderr
    assert rehearse(*two).stderr == ""
    assert rehearse("--jobs", "2", "--model", "sim:a", "--model", "sim:a").exit_code == 2


def test_a_model_that_answers_no_call_is_refused_at_once(rehearse: Rehearse, tmp_path: Path) -> None:
    (tmp_path / "sim.toml").write_text("[models.a]\nstatus_always = 401\n", encoding="utf-8")
    refused = rehearse("--jobs", "4", "--model", "sim:a", provider="--provider=sim.toml")
    assert (refused.exit_code, "answers no call" in refused.stderr) == (2, True)
