"""``fairlane workers`` and ``capacity``: live workers, their slots, and whether more would help."""

from collections.abc import Sequence
from typing import Any

import typer

from fairlane.cli.invocation import Invocation, JsonOption, with_settings
from fairlane.cli.lanes.lanes import read_lanes
from fairlane.cli.output import ago, emit, fields_of, iso, print_fields, print_table, say
from fairlane.client.deployment import Deployment
from fairlane.store.read.demand import slots_needed, slots_needed_in_all
from fairlane.store.write.workers import Beat, WorkerInfo

app = typer.Typer()


@app.command()
@with_settings
def workers(invocation: Invocation, as_json: JsonOption = False) -> None:
    """List the workers that are connected."""
    with invocation.deployment() as deployment:
        beats, now_ms = deployment.beats(), deployment.now_ms()
        silent_ms = deployment.settings.scheduler.worker_timeout_seconds * 1000
    states = [worker_state(beat, now_ms, silent_ms) for beat in beats]
    found = list(zip(beats, states, strict=True))
    emit(
        [worker_document(beat, state) for beat, state in found],
        lambda: _print(found, now_ms),
        as_json=as_json,
    )


def _print(found: Sequence[tuple[Beat, str]], now_ms: int) -> None:
    if not found:
        say("no worker is connected: `fairlane worker` starts one, `fairlane up` starts everything")
        return
    columns = ["worker", "host", ">pid", ">busy", ">slots", ">lanes", "version", "state", "last beat"]
    print_table(columns, (_row(beat, state, now_ms) for beat, state in found))


def worker_state(beat: Beat, now_ms: int, silent_ms: float) -> str:
    """``alive``, ``draining``, ``drained``, ``stopping``, or ``silent``: the scheduler counts it as dead."""
    if now_ms - beat.beat_ms > silent_ms:
        return "silent"
    if beat.info.draining:
        return "drained" if beat.info.drained else "draining"
    return "stopping" if beat.info.stopping else "alive"


def _row(beat: Beat, state: str, now_ms: int) -> tuple[object, ...]:
    info = beat.info
    numbers = (info.pid, busy_in_words(info), info.slots, len(info.lanes))
    if info.denied:
        state += (
            f", denied on {next(iter(info.denied)) if len(info.denied) == 1 else f'{len(info.denied)} lanes'}"
        )
    return (info.name, info.host, *numbers, info.version, state, ago(beat.beat_ms, now_ms))


def busy_in_words(info: WorkerInfo) -> str:
    """Slots in use, and calls that hold none: ``"3 + 50 pending"``."""
    return f"{info.busy:,}" + (f" + {info.pending:,} pending" if info.pending else "")


def worker_document(beat: Beat, state: str) -> dict[str, Any]:
    """A worker as JSON, times in ISO 8601."""
    info = beat.info
    return {
        "worker": beat.worker,
        **fields_of(info, "name", "host", "pid"),
        "state": state,
        **fields_of(info, "busy", "pending", "slots"),
        "lanes": list(info.lanes),
        "denied": dict(info.denied),
        "version": info.version,
        "started_at": iso(info.started_ms),
        "beat_at": iso(beat.beat_ms),
    }


@app.command()
@with_settings
def capacity(invocation: Invocation, as_json: JsonOption = False) -> None:
    """Show whether more workers would help: compares their slots with the calls that the lanes allow."""
    with invocation.deployment() as deployment:
        found = measure(deployment)
    fields = ((name.replace("_", " "), value) for name, value in found.items() if name != "lanes")
    emit(found, lambda: print_fields(fields), as_json=as_json)


def measure(deployment: Deployment) -> dict[str, object]:
    """Slots of workers that take work, how many are free, and how many lanes could fill: in all and by lane.

    Jobs that a run's own bounds delay count as waiting here; the metric `fairlane_slots_needed` omits them.
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
