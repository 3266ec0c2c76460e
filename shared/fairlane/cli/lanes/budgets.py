"""``fairlane budgets``: what teams may use in a day or a month, and how much of it is used."""

import re
from typing import Annotated, Any, Literal

import typer

from fairlane.cli.invocation import NO_LIMIT, Invocation, JsonOption, read_limit, with_settings
from fairlane.cli.output import emit, fields_of, print_table, say
from fairlane.core.errors import ConfigurationError, LaneNotFound
from fairlane.core.figures import percent
from fairlane.store.write.budgets import ALL_LANES, Allowance, Unit, amount_in_words

app = typer.Typer()
group = typer.Typer()
app.add_typer(group, name="budgets")

REMEDY = f'Give a number, or "{NO_LIMIT}" to remove the budget.'
_TEAM = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
_STATES = {"open": "open", "nearly_used": "80 % used", "used_up": "used up"}

TeamArgument = Annotated[str, typer.Argument(metavar="TEAM", help="Team that has the budget.")]
Amount = Annotated[str | None, typer.Option(metavar="N", help='"none" removes the budget.')]


@group.callback(invoke_without_command=True)
@with_settings
def budgets(invocation: Invocation, as_json: JsonOption = False) -> None:
    """List the teams' budgets and their use; change them.

    The use includes what calls in flight have reserved.
    """
    with invocation.deployment() as deployment:
        found = deployment.budgets
        allowances = found.of(found.teams(), deployment.now_ms())
    emit([_document(each) for each in allowances], lambda: _print(allowances), as_json=as_json)


@group.command("set")
@with_settings
def set_budget(
    invocation: Invocation,
    name: TeamArgument,
    per: Annotated[
        Literal["day", "month"], typer.Option(help="The budget's period; it ends at midnight UTC.")
    ],
    requests: Amount = None,
    tokens: Amount = None,
    usd: Amount = None,
    lane: Annotated[str, typer.Option(metavar="LANE", help="As `fairlane lanes` names it.")] = ALL_LANES,
) -> None:
    """Change a team's budget within a second; its use stays counted."""
    given: dict[Unit, str | None] = {"requests": requests, "tokens": tokens, "usd": usd}
    limits: dict[str, float | None] = {
        unit: read_limit(f"--{unit}", text, REMEDY) for unit, text in given.items() if text is not None
    }
    if not limits:
        raise typer.BadParameter("say what to limit: --requests, --tokens, --usd")
    if not _TEAM.fullmatch(name):
        raise ConfigurationError("TEAM", name, "is no name of a team", "Letters, digits, - and _.")
    with invocation.deployment() as deployment:
        found, now_ms = deployment.budgets, deployment.now_ms()
        if lane != ALL_LANES:
            lane = deployment.directory().carrier(lane)
            budgeted = {each.lane for each in found.of([name], now_ms)}
            if lane not in (known := deployment.lanes.names()) and lane not in budgeted:
                raise LaneNotFound(lane, known)
        found.set(name, per, limits, lane)
        now = [each for each in found.of([name], now_ms) if each.lane == lane and each.per == per]
        for each in now:
            say(f"{name}: {each.name}, {amount_in_words(each.unit, each.used)} used")
        if not now:
            say(f"{name}: no budget a {per}" + ("" if lane == ALL_LANES else f" on {lane}"))
        if usd is not None and not deployment.settings.prices:
            say("these settings have no [prices]: calls of models without a price cost nothing")


def _document(each: Allowance) -> dict[str, Any]:
    return {
        **fields_of(each, "team", "lane", "per", "unit", "most", "used", "share"),
        "state": each.state,
        "period": each.period.name,
        "until_ms": each.period.end_ms,
    }


def _print(allowances: list[Allowance]) -> None:
    if not allowances:
        say("no team has a budget: they come from [[teams.NAME.budgets]], or from `fairlane budgets set`")
        return
    print_table(
        ("team", "lane", "per", ">used", ">budget", ">share", "state", "until"),
        [
            (
                each.team,
                "all" if each.lane == ALL_LANES else each.lane,
                each.per,
                amount_in_words(each.unit, each.used),
                amount_in_words(each.unit, each.most),
                f"{percent(each.share)}%",
                _STATES[each.state],
                each.end_in_words,
            )
            for each in allowances
        ],
    )
