"""``fairlane why``: explains what a lane, a run or a job waits for, and when it starts."""

from typing import Annotated, Any

import typer

from fairlane.cli.invocation import Invocation, JsonOption, with_settings
from fairlane.cli.output import emit, fields_of, iso, print_fields, print_line, print_table, when
from fairlane.cli.runs.selection import LATEST, RunCommand, find_run
from fairlane.client.client import Client
from fairlane.client.deployment import Deployment
from fairlane.core.clock import until
from fairlane.core.errors import RunNotFound
from fairlane.why.waiting import Eta, LaneWait, Waiting

app = typer.Typer()

_NOT_TO_START = ("done", "cancelled", "timed_out", "stopped", "run_refused", "running")
_STARTS = {"lane": "last starts", "run": "last starts", "job": "starts"}


@app.command(cls=RunCommand)
@with_settings
def why(
    invocation: Invocation,
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET",
            help='A lane; a run, by its id, the beginning of it, its name or "latest"; or a job: RUN/ITEM or '
            "RUN/ITEM/STEP. Step 0 is the task, the others are its evaluations.",
        ),
    ] = LATEST,
    as_json: JsonOption = False,
) -> None:
    """Explain why a lane, a run or a job waits, and estimate when it starts."""
    with invocation.deployment() as deployment:
        found = Client.over(deployment).why(_whole_id(deployment, target))
    emit(document(found), lambda: print_waiting(found), as_json=as_json)


def document(found: Waiting) -> dict[str, Any]:
    """Every field, times in ISO 8601. ``eta`` is null where it is unknown."""
    return {
        **fields_of(found, "target", "kind", "job", "state", "constraint", "sentence"),
        "until": iso(found.until_ms),
        **fields_of(found, "position", "ahead"),
        "eta": iso(found.eta.at_ms),
        "eta_at_least": found.eta.at_least,
        "lanes": [_lane_document(part) for part in found.lanes],
        "at": iso(found.now_ms),
        "unknown": list(found.unknown),
        "held_teams": [
            {**fields_of(each, "team", "queued", "sentence"), "until": iso(each.until_ms)}
            for each in found.held_teams
        ],
    }


def print_waiting(found: Waiting) -> None:
    """The answer in words, then what waits on each lane of a run."""
    print_fields(waiting_fields(found))
    if found.kind != "run" or not found.lanes:
        return
    columns = [
        "lane",
        ">in flight",
        ">queued",
        ">delayed",
        ">not ready",
        ">to come",
        "last starts",
        "limited by",
    ]
    print_table(columns, (_row(part, found.now_ms) for part in found.lanes), apart=True)
    held = {part.lane: part.sentence for part in found.lanes if part.waits}
    if len(held) > 1:
        print_line("")
        print_fields(held.items())


def waiting_fields(found: Waiting) -> list[tuple[str, object]]:
    """The answer as names and values."""
    now_ms = found.now_ms
    fields: list[tuple[str, object]] = [(found.kind, found.target), ("state", found.state)]
    fields.append(("why", found.sentence))
    if found.until_ms is not None:
        fields.append(("until", when(found.until_ms, now_ms)))
    if found.position is not None:
        fields.append(("position", f"{found.position:,} in its run's queue"))
    if found.ahead is not None:
        last = "its last job" if found.kind == "run" else "it"
        fields.append(("ahead", f"about {found.ahead:,} jobs start before {last}"))
    if _starts(found):
        fields.append((_STARTS[found.kind], eta_in_words(found.eta, now_ms)))
    if found.job is not None:
        run, _, _ = found.target.partition("/")
        fields.append(("in logs", f"run={run} and job={found.job}"))
    fields += [(f"team {each.team}", f"{each.queued:,} jobs: {each.sentence}") for each in found.held_teams]
    if found.unknown:
        fields.append(("unknown", f"{'; '.join(found.unknown)}: this user may not read that"))
    return fields


def eta_in_words(eta: Eta, now_ms: int) -> str:
    """``"about 14:05:09, in 3 min"``; ``"not known"`` where there is no estimate."""
    if eta.at_ms is None:
        return "not known"
    return f"{'at least' if eta.at_least else 'about'} {when(eta.at_ms, now_ms)}"


def _starts(found: Waiting) -> bool:
    if found.constraint in _NOT_TO_START:
        return False
    return found.kind == "job" or any(part.waits for part in found.lanes)


def _row(part: LaneWait, now_ms: int) -> list[object]:
    counts = (part.in_flight, part.queued, part.delayed, part.not_ready, part.unfed)
    starts = "" if not part.waits else "?" if part.eta.at_ms is None else until(part.eta.at_ms, now_ms)
    held = "" if part.constraint in ("nothing", "running") else part.constraint
    return [part.lane, *(f"{count:,}" for count in counts), starts, held]


def _lane_document(part: LaneWait) -> dict[str, Any]:
    return {
        **fields_of(part, "lane", "constraint", "sentence"),
        "until": iso(part.until_ms),
        **fields_of(part, "in_flight", "queued", "delayed"),
        "next_due": iso(part.next_due_ms),
        **fields_of(part, "not_ready", "unfed", "share", "ahead"),
        "eta": iso(part.eta.at_ms),
        "eta_at_least": part.eta.at_least,
    }


def _whole_id(deployment: Deployment, target: str) -> str:
    """The target with its run's full id; unchanged if it names a lane or nothing."""
    if target in deployment.lanes.names():
        return target
    run, slash, rest = target.partition("/")
    try:
        return f"{find_run(deployment, run).id}{slash}{rest}"
    except RunNotFound:
        return target
