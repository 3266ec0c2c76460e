"""``fairlane top``: the deployment's lanes, runs, teams and workers, live."""

import signal
from typing import Annotated, Any

import typer
from rich.console import Console

from fairlane.cli.failures import Interrupted
from fairlane.cli.invocation import Invocation, with_settings
from fairlane.cli.lanes.workers import worker_document
from fairlane.cli.output import emit, fields_of, iso, print_line, print_table
from fairlane.cli.runs.run_views import run_document
from fairlane.top.panes import PANES, Pane, sorted_lines
from fairlane.top.reading import LaneLine, Reader, Snapshot, TeamLine
from fairlane.top.screen import Top

app = typer.Typer()

INTERVAL_S = 2.0


@app.command()
@with_settings
def top(
    invocation: Invocation,
    interval: Annotated[
        float | None,
        typer.Option(
            *("--interval", "-i"),
            metavar="S",
            min=0.2,
            max=3600,
            help="Seconds between updates.",
            show_default=f"{INTERVAL_S:g}",
        ),
    ] = None,
    once: Annotated[bool, typer.Option("--once", help="Print everything once, as tables.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything once, as JSON.")] = False,
) -> None:
    """Show lanes, runs, teams and workers, live: h lists the keys, q quits.

    A lane's used/min covers the last minute; its 429 % covers the last 15 minutes.
    """
    if interval is not None and (as_json or once):
        raise typer.BadParameter(
            f"--interval is for the live view: leave out {'--json' if as_json else '--once'}"
        )
    with invocation.deployment() as deployment:
        if as_json or once:
            snapshot = Reader(deployment).read()
            emit(_document(snapshot), lambda: _print(snapshot), as_json=as_json)
        else:
            try:
                Top(deployment, interval or INTERVAL_S, Console(highlight=False)).run()
            except Interrupted as interruption:
                if interruption.number != signal.SIGINT:
                    raise


def _print(snapshot: Snapshot) -> None:
    for number, pane in enumerate(PANES):
        if number:
            print_line("")
        _print_pane(pane, snapshot)


def _print_pane(pane: Pane[Any], snapshot: Snapshot) -> None:
    lines = sorted_lines(pane, snapshot, pane.sort, reverse=False)
    if not lines:
        print_line(pane.empty)
        return
    columns = [f">{column.title}" if column.number else column.title for column in pane.columns]
    print_table(columns, ([column.cell(line, snapshot.now_ms) for column in pane.columns] for line in lines))


def _document(snapshot: Snapshot) -> dict[str, Any]:
    leader = snapshot.leader
    return {
        "deployment": snapshot.deployment,
        "at": iso(snapshot.now_ms),
        "leader": None if leader is None else {"name": leader.identity, "epoch": leader.epoch},
        "active_runs": snapshot.active,
        "lanes": [_lane(line) for line in snapshot.lanes],
        "runs": [run_document(line.status) for line in snapshot.runs],
        "teams": [_team(line) for line in snapshot.teams],
        "workers": [worker_document(line.beat, line.state) for line in snapshot.workers],
        "hidden": list(snapshot.hidden),
    }


def _lane(line: LaneLine) -> dict[str, Any]:
    return line.report.document() | {"used_per_minute": line.used_per_minute, "rejected_share": line.refused}


def _team(line: TeamLine) -> dict[str, Any]:
    budget = line.budget
    used = None
    if budget is not None:
        used = fields_of(budget, "lane", "per", "unit", "most", "used", "state")
        used["ends"] = iso(budget.period.end_ms)
    return {**fields_of(line, "team", "weight", "runs", "in_flight", "queued"), "budget": used}
