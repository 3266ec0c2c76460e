"""``fairlane capacity``: how many slots there are, and how many the lanes could fill now."""

from __future__ import annotations

import typer

from fairlane.admission.demand import slots_needed, slots_needed_in_all
from fairlane.cli.deployment import Deployment, open_deployment
from fairlane.cli.invocation import Invocation, JsonOption, with_settings
from fairlane.cli.lanes import read_lanes
from fairlane.cli.output import print_fields, print_json
from fairlane.cli.panels import OPERATIONS
from fairlane.cli.workers import worker_state


@with_settings
def capacity(invocation: Invocation, as_json: JsonOption = False) -> None:
    """Compare the workers' slots with what the lanes could fill now: whether more workers would help."""
    with open_deployment(invocation) as deployment:
        found = measure(deployment)
    if as_json:
        print_json(found)
        return
    print_fields((name.replace("_", " "), value) for name, value in found.items() if name != "lanes")


def measure(deployment: Deployment) -> dict[str, object]:
    """Slots of workers that take work, those that are free, those that lanes could fill, in all and by lane.

    What a run's own bounds hold back counts as waiting here; `fairlane_slots_needed` leaves it out.
    """
    now_ms, bounds = deployment.now_ms(), deployment.settings.scheduler
    silent_ms = bounds.worker_timeout_seconds * 1000
    alive = [b.info for b in deployment.beats() if worker_state(b, now_ms, silent_ms) == "alive"]
    needed = {
        report.view.lane: slots_needed(report.view, report.queued)
        for report in read_lanes(deployment, deployment.lanes.names())
    }
    slots, busy = sum(info.slots for info in alive), sum(info.busy for info in alive)
    return {
        "workers": len(alive),
        "slots": slots,
        "free": max(0, slots - busy),
        "needed": slots_needed_in_all(needed.values(), bounds.max_in_flight),
        "lanes": needed,
    }


def add_to(app: typer.Typer) -> None:
    """Put the command into the application."""
    app.command(rich_help_panel=OPERATIONS)(capacity)
