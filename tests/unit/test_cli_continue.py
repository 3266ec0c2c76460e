"""``fairlane continue``, and parts of a dataset."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fairlane.cli.runs.submitting.inputs import sample_of
from fairlane.model.job import JobState
from tests.support.command_line import CommandLine


@pytest.fixture
def rows(tmp_path: Path) -> str:
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(json.dumps({"question": f"q{n}"}) for n in range(20)))
    return str(path)


def failed_in_part(cli: CommandLine) -> str:
    run = cli.submitted(5, name="nightly")
    cli.stage.answer(run, 2, state=JobState.FAILED, output=None, error="400: no")
    cli.stage.answer(run, 3)
    return run


def test_a_finished_run_is_continued_by_name(cli: CommandLine) -> None:
    old = failed_in_part(cli)
    result = cli("continue", "nightly")
    new = cli.stage.client.run(result.stdout.strip())
    assert new.id != old
    assert new.status().items == 5
    assert f"it continues run {old}" in result.stderr
    spec = new._spec
    assert spec is not None
    assert spec.continues is not None
    assert (spec.continues.run, spec.continues.retry_errors) == (old, True)


def test_failures_are_kept_and_rows_and_evaluators_replaced_where_asked(cli: CommandLine, rows: str) -> None:
    old = failed_in_part(cli)
    command = ("continue", old, rows, "--keep-errors", "--evaluator", "contains:text=answer")
    spec = cli.stage.client.run(cli.json(*command)["run"])._spec
    assert spec is not None
    assert spec.continues is not None
    assert spec.continues.retry_errors is False
    assert (spec.items, [each.name for each in spec.evaluators]) == (20, ["contains"])


def test_a_run_that_goes_on_cannot_be_continued(cli: CommandLine) -> None:
    run = cli.submitted()
    assert "is still running" in cli.refused("continue", run, code=2)


def test_the_first_rows_or_some_at_random_are_submitted(cli: CommandLine, rows: str) -> None:
    ask = ("submit", rows, "--prompt", "{{ question }}", "--model", "sim:fast")
    for options, count in (
        (["--limit", "7"], 7),
        (["--sample", "5"], 5),
        (["--limit", "4", "--sample", "9"], 4),
    ):
        assert cli.json(*ask, *options)["items"] == count


def test_a_sample_keeps_the_order_and_its_seed_chooses_it() -> None:
    rows = [{"n": n} for n in range(100)]
    first, again, other = (sample_of(rows, 10, seed) for seed in (0, 0, 1))
    assert first == again != other
    assert first == sorted(first, key=lambda row: row["n"])
    assert len({row["n"] for row in first}) == 10
    assert sample_of(rows, 1000, 0) == rows


def test_a_name_of_nothing_is_refused(cli: CommandLine, rows: str) -> None:
    ask = ("submit", rows, "--prompt", "{{ question }}", "--model", "sim:fast", "--name", " ")
    assert "name: is empty" in cli.refused(*ask, code=2)


def test_what_is_new_is_checked_unless_checks_are_off(cli: CommandLine) -> None:
    old = failed_in_part(cli)
    command = ("continue", old, "--evaluator", "exact_match:expected=qestion")
    assert "Did you mean 'question'" in cli.refused(*command, code=2)
    assert cli(*command, "--no-check").exit_code == 0
