"""``fairlane compare``: the scores of two runs, item by item."""

from collections.abc import Iterator
from typing import Annotated

import typer

from fairlane.cli.invocation import Invocation, JsonOption, with_settings
from fairlane.cli.output import emit, print_fields, print_table, say
from fairlane.cli.runs.selection import LATEST, RunArgument, RunCommand, find_ended
from fairlane.client.views.comparison import Comparison, Difference
from fairlane.core.figures import figure

app = typer.Typer()


@app.command(cls=RunCommand)
@with_settings
def compare(
    invocation: Invocation,
    first: RunArgument,
    second: RunArgument = LATEST,
    by: Annotated[
        list[str] | None,
        typer.Option(metavar="FIELD", help="Field that identifies a row; by default all. Repeatable."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Compare the scores of two runs item by item: the second minus the first; waits for their ends."""
    with invocation.deployment() as deployment:
        before, after = (find_ended(deployment, wanted) for wanted in (first, second))
        compared = before.compare(after, by=by or None)
    emit(compared.to_dict(), lambda: print_comparison(compared), as_json=as_json)


def print_comparison(compared: Comparison) -> None:
    """Print both runs, then a line for each score. Standard error names what no difference includes."""
    alone = f"{compared.only_first:,} in the first alone, {compared.only_second:,} in the second alone"
    print_fields(
        [
            ("first", compared.first),
            ("second", compared.second),
            ("items", f"{compared.matched:,} in both, {alone}. {compared.matched_by}"),
        ]
    )
    if compared.scores:
        columns = [
            "score",
            ">first",
            ">second",
            ">change",
            ">± 95 %",
            ">better",
            ">worse",
            ">equal",
            ">missing",
        ]
        print_table(columns, (tuple(_row(name, each)) for name, each in compared.scores.items()), apart=True)
    for sentence in compared.left_out:
        say(sentence)


def _row(name: str, found: Difference) -> Iterator[str]:
    yield name
    yield from (figure(value) for value in (found.first_mean, found.second_mean))
    yield figure(found.mean, sign="+")
    yield figure(found.margin)
    yield from (f"{count:,}" for count in (found.better, found.worse, found.equal, found.missing))
