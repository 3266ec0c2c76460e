"""What a command that waited for a run ends with."""

from __future__ import annotations

import pytest

from fairlane.cli.runs.conclusion import with_shares
from fairlane.model.job import JobState
from tests.support.command_line import CommandLine


def with_failures(cli: CommandLine, failed: int, rows: int = 10) -> str:
    run = cli.submitted(rows)
    cli.stage.answer(run, failed, state=JobState.FAILED, output=None, error="400: no")
    cli.stage.answer(run, rows - failed)
    return run


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ([], 1),
        (["--fail-on-error"], 1),
        (["--fail-on-error=0.1"], 1),
        (["--fail-on-error", "19%"], 1),
        (["--fail-on-error", "0.2"], 0),
        (["--fail-on-error=20%"], 0),
        (["--fail-on-error=1"], 0),
    ],
)
@pytest.mark.parametrize("form", [[], ["--json"]])
def test_a_run_of_which_a_fifth_failed(
    cli: CommandLine, options: list[str], code: int, form: list[str]
) -> None:
    run = with_failures(cli, 2)
    result = cli("watch", *options, *form, run)
    assert result.exit_code == code, result.output
    assert ("2 jobs failed" in result.stderr) == (code == 1)
    assert (f"`fairlane summary {run}` says why" in result.stderr) == (code == 1)


@pytest.mark.parametrize("share", ["-1", "101%", "2", "many", "nan"])
def test_what_is_no_share_is_reported_before_anything_happens(cli: CommandLine, share: str) -> None:
    run = with_failures(cli, 2)
    assert "no share of the items" in cli.refused("watch", run, f"--fail-on-error={share}", code=2)


def test_an_option_without_a_share_takes_no_other_argument() -> None:
    assert with_shares([]) == []
    assert with_shares(["--fail-on-error", "latest"]) == ["--fail-on-error", "0", "latest"]
    assert with_shares(["--fail-on-error", "5%", "latest"]) == ["--fail-on-error", "5%", "latest"]
    assert with_shares(["latest", "--fail-on-error"]) == ["latest", "--fail-on-error", "0"]
    assert with_shares(["--fail-on-error=0.5"]) == ["--fail-on-error=0.5"]
