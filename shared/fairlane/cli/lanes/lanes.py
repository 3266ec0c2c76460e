"""``fairlane lanes``: shows lanes, sets their limits, pauses and resumes them."""

from typing import Annotated

import typer

from fairlane.cli.invocation import NO_LIMIT, Invocation, JsonOption, read_limit, with_settings
from fairlane.cli.lanes.lane_views import LaneReport, limits_in_words, print_lane, print_lanes
from fairlane.cli.output import emit, say
from fairlane.client.deployment import Deployment
from fairlane.core.errors import ConfigurationError, LaneNotFound
from fairlane.model.lane import FUNCTIONS, LaneLimits
from fairlane.why.reasons import resuming

app = typer.Typer()
group = typer.Typer()
app.add_typer(group, name="lanes")

REMEDY = f'Give a number, or "{NO_LIMIT}" to remove the limit.'
_NUMBERS = (int, float, int | None, float | None)
_IN_WORDS = {name for name, field in LaneLimits.model_fields.items() if field.annotation not in _NUMBERS}

LaneArgument = Annotated[str, typer.Argument(metavar="LANE", help="As `fairlane lanes` names it.")]


@group.callback(invoke_without_command=True)
@with_settings
def lanes(invocation: Invocation, as_json: JsonOption = False) -> None:
    """List lanes and what limits each; set limits, pause, resume.

    A rate is configured, reported by the provider's headers, learned from its 429s ("probed"), or still being
    detected ("probing"); or there is none.
    """
    with invocation.deployment() as deployment:
        reports = read_lanes(deployment, deployment.lanes.names())
    emit([report.document() for report in reports], lambda: print_lanes(reports), as_json=as_json)


@group.command("show")
@with_settings
def show(invocation: Invocation, lane: LaneArgument, as_json: JsonOption = False) -> None:
    """Show all about one lane."""
    with invocation.deployment() as deployment:
        found = _find_lane(deployment, lane, quiet=as_json)
        _require(deployment, found)
        report = read_lanes(deployment, [found])[0]
        emit(report.document(), lambda: print_lane(report), as_json=as_json)


@group.command("set")
@with_settings
def set_limits(
    invocation: Invocation,
    lane: LaneArgument,
    limits: Annotated[dict[str, str], LaneLimits],
    new: Annotated[bool, typer.Option("--new", help="Add the lane if it is not known yet.")] = False,
) -> None:
    """Change a lane's limits within a second, while it runs; "none" removes one."""
    changes = {name: _limit(name, text) for name, text in limits.items()}
    if not changes:
        options = ", ".join(_option(name) for name in LaneLimits.model_fields)
        raise typer.BadParameter(f"say which limit to set: {options}")
    with invocation.deployment() as deployment:
        lane = _find_lane(deployment, lane)
        _require(deployment, lane, new=new)
        deployment.lanes.limit(lane, changes)
        say(f"{lane}: {limits_in_words(deployment.lanes.view(lane).limits)}")
        _mention_file(deployment, lane, set(changes))


@group.command("pause")
@with_settings
def pause(invocation: Invocation, lane: LaneArgument) -> None:
    """Start no new call on a lane; calls in flight end normally."""
    with invocation.deployment() as deployment:
        lane = _find_lane(deployment, lane)
        deployment.lanes.pause(lane)
    say(f"{lane} is paused; {resuming(lane)} opens it")


@group.command("resume")
@with_settings
def resume(invocation: Invocation, lane: LaneArgument) -> None:
    """Resume a lane: end its pause, or else every wait; a parked lane sends a single call first."""
    with invocation.deployment() as deployment:
        lane = _find_lane(deployment, lane)
        parked = deployment.lanes.view(lane).parked
        deployment.lanes.resume(lane)
        report = LaneReport(deployment.lanes.view(lane), 0)
    held = f": {report.hold_in_words}" if report.hold else ""
    say(
        f"{lane} is {report.view.state}{held}"
        if parked is None
        else f"{lane} is tried with a single call; it was parked: {parked}"
    )


def read_lanes(deployment: Deployment, names: list[str]) -> list[LaneReport]:
    """Read these lanes and their queues."""
    queued = deployment.reader.queued()
    return [LaneReport(view, queued.get(view.lane, 0)) for view in deployment.lanes.views(names)]


def _find_lane(deployment: Deployment, lane: str, *, quiet: bool = False) -> str:
    """The lane of that name, else the one that carries its calls. Prints a note if another carries them."""
    carrier = deployment.directory().carrier(lane)
    if carrier != lane and not quiet:
        say(f"calls of {lane} use {carrier}: they share its limit")
    return lane if lane in deployment.lanes.names() else carrier


def _limit(name: str, text: str) -> float | int | str | None:
    """``None`` for "none". Raises `ConfigurationError` for a wrong number; `Lanes.limit` checks the rest."""
    word = text.strip().lower()
    if name in _IN_WORDS and word != NO_LIMIT:
        return word
    return read_limit(_option(name), text, REMEDY)


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _require(deployment: Deployment, lane: str, *, new: bool = False) -> None:
    """Raise `LaneNotFound`, or `ConfigurationError` for a ``new`` lane without a known connection."""
    names = deployment.lanes.names()
    if lane in names:
        return
    connections = deployment.known_connections()
    if not new:
        raise LaneNotFound(lane, names)
    if connections is not None and lane.partition(":")[0] not in (FUNCTIONS, *connections):
        known = ", ".join(sorted(connections)) or "none"
        raise ConfigurationError(
            "LANE", lane, "belongs to no connection", f"A lane is <connection>:<model>; connections: {known}."
        )


def _mention_file(deployment: Deployment, lane: str, changed: set[str]) -> None:
    stated = deployment.settings.lanes.get(lane)
    again = sorted(changed & stated.model_fields_set) if stated else []
    if again:
        say(f"this lasts until somebody changes {', '.join(again)} in the settings, which have it, too")
