"""``fairlane compare``."""

from __future__ import annotations

from fairlane import exact_match
from tests.support.command_line import CommandLine


def scored(cli: CommandLine, name: str, right: int) -> str:
    run = cli.stage.client.submit(
        [{"question": f"q{n}", "answer": "a"} for n in range(4)],
        "{{ question }}",
        model="sim:fast",
        name=name,
        evaluators=[exact_match("answer")],
    )
    cli.stage.admit()
    cli.stage.answer(run.id, right, output="a", scores={"exact_match": 1.0})
    cli.stage.answer(run.id, 4 - right, output="b", scores={"exact_match": 0.0})
    return run.id


def test_two_runs_are_compared_by_name(cli: CommandLine) -> None:
    scored(cli, "before", right=1)
    scored(cli, "after", right=3)
    found = cli.json("compare", "before", "after")
    assert found["matched"] == 4
    assert found["scores"]["exact_match"]["mean"] == 0.5
    printed = cli.out("compare", "before")
    assert "4 in both" in printed
    assert any(line.split()[:4] == ["exact_match", "0.25", "0.75", "+0.5"] for line in printed.splitlines())


def test_a_field_that_no_row_has_is_reported(cli: CommandLine) -> None:
    scored(cli, "before", right=1)
    scored(cli, "after", right=3)
    assert "nope" in cli.refused("compare", "before", "after", "--by", "nope", code=2)
