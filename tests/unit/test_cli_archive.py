"""``fairlane archive`` moves what is finished, says what stays, and never shows where it goes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from redis import Redis

from tests.support.command_line import CommandLine


@pytest.fixture
def fairlane(real_redis: Redis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    monkeypatch.setenv("FAIRLANE_ARCHIVE__URL", f"sqlite:///{tmp_path / 'kept-secret.db'}")
    return CommandLine(real_redis)


def test_a_run_is_archived_and_its_results_are_written_as_before(fairlane: CommandLine) -> None:
    run = fairlane.completed()
    before = fairlane.out("results", run)
    result = fairlane("archive", run[:-1])
    assert (result.exit_code, result.stdout) == (0, "")
    assert f"run {run} is in the archive" in result.stderr
    assert fairlane.out("results", run) == before
    assert fairlane.json("status", run)["state"] == "completed"


def test_archiving_again_says_that_it_was_done(fairlane: CommandLine) -> None:
    run = fairlane.completed()
    fairlane("archive", run)
    assert fairlane.json("archive", run) == [{"run": run, "result": "moved before"}]


def test_all_finished_runs_are_archived_and_no_others(fairlane: CommandLine) -> None:
    finished, running = [fairlane.completed(), fairlane.completed()], fairlane.submitted()
    shown = fairlane.json("archive", "--finished")
    assert shown == [{"run": run, "result": "moved"} for run in finished]
    assert "no finished run is left" in fairlane("archive", "--finished").stderr
    assert fairlane.json("status", running)["state"] == "running"


def test_a_run_that_is_not_finished_stays_and_the_command_fails(fairlane: CommandLine) -> None:
    run = fairlane.submitted()
    assert "is not finished: it stays where it is" in fairlane.refused("archive", run)


@pytest.mark.parametrize("arguments", [[], ["--finished", "r1"]])
def test_runs_are_named_or_all_meant(fairlane: CommandLine, arguments: list[str]) -> None:
    assert "name runs, or give --finished" in fairlane.refused("archive", *arguments, code=2)


def test_a_database_that_cannot_be_used_is_reported_without_its_url(
    fairlane: CommandLine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run = fairlane.completed()
    monkeypatch.setenv("FAIRLANE_ARCHIVE__URL", f"sqlite:///{tmp_path / 'hidden-folder' / 'runs.db'}")
    shown = fairlane.refused("archive", run)
    assert "cannot use the archive" in shown
    assert "hidden-folder" not in shown
    assert len(fairlane.out("results", run).splitlines()) == 5


def test_without_an_archive_the_setting_is_named(real_redis: Redis, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FAIRLANE_ARCHIVE__URL", raising=False)
    fairlane = CommandLine(real_redis)
    run = fairlane.completed()
    assert "archive.url: no archive is configured" in fairlane.refused("archive", run, code=2)


def test_a_stub_read_without_the_archive_says_where_its_records_are(
    fairlane: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = fairlane.completed()
    fairlane("archive", run)
    monkeypatch.delenv("FAIRLANE_ARCHIVE__URL")
    assert json.loads(fairlane.out("status", run, "--json"))["run"] == run
    assert "has been moved to the archive; set archive.url" in fairlane.refused("results", run)
