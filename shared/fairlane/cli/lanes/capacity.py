"""``fairlane capacity``: how many slots there are, and how many the lanes could fill now."""

from __future__ import annotations

import typer

from fairlane.cli.invocation import Invocation, JsonOption, with_settings
from fairlane.cli.lanes.lanes import read_lanes
from fairlane.cli.lanes.workers import worker_state
from fairlane.cli.output import emit, print_fields
from fairlane.client.deployment import Deployment
from fairlane.store.read.demand import slots_needed, slots_needed_in_all

app = typer.Typer()


@app.command()
@with_settings
def capacity(invocation: Invocation, as_json: JsonOption = False) -> None:
    """Show whether more workers would help: compares their slots with the calls that the lanes allow."""
    with invocation.deployment() as deployment:
        found = measure(deployment)
    fields = ((name.replace("_", " "), value) for name, value in found.items() if name != "lanes")
    emit(found, lambda: print_fields(fields), as_json=as_json)


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
