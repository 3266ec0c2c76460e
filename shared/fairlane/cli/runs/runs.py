"""Commands on submitted runs: list, status, watch, pause, resume, cancel."""

from typing import Annotated

import typer

from fairlane.cli.failures import after
from fairlane.cli.invocation import Invocation, JsonOption, with_settings
from fairlane.cli.output import emit, print_json, print_json_line, print_line, say
from fairlane.cli.runs.conclusion import FailingRunCommand, FailOnErrorOption, conclude
from fairlane.cli.runs.run_views import ending, pause_in_words, print_run, print_runs, run_document
from fairlane.cli.runs.selection import LATEST, RunArgument, RunCommand, find_run
from fairlane.client.client import Client
from fairlane.client.deployment import Deployment, SystemWaiter
from fairlane.client.following.standstill import HeldDetector
from fairlane.client.outputs import Run
from fairlane.core.figures import counted
from fairlane.model.run_status import RunStatus

app = typer.Typer()

LOOK_EVERY_S = 1.0


@app.command()
@with_settings
def runs(
    invocation: Invocation,
    limit: Annotated[
        int, typer.Option("--limit", "-n", metavar="N", min=1, max=10_000, help="Most runs to list.")
    ] = 20,
    as_json: JsonOption = False,
) -> None:
    """List the team's runs, newest first."""
    with invocation.deployment() as deployment:
        found, now_ms = Client.over(deployment).runs(limit), deployment.now_ms()
    if not (found or as_json):
        say(f"team {deployment.settings.team} has no run; `fairlane submit` submits one")
        return
    documents = [run_document(status) for status in found]
    emit(documents, lambda: print_runs(found, now_ms), as_json=as_json)


@app.command(cls=RunCommand)
@with_settings
def status(invocation: Invocation, run: RunArgument = LATEST, as_json: JsonOption = False) -> None:
    """Show the progress of a run, by default the latest."""
    with invocation.deployment() as deployment:
        found, now_ms = find_run(deployment, run).status(), deployment.now_ms()
    emit(run_document(found), lambda: print_run(found, now_ms), as_json=as_json)


@app.command(cls=FailingRunCommand)
@with_settings
def watch(
    invocation: Invocation,
    run: RunArgument = LATEST,
    fail_on_error: FailOnErrorOption = 0.0,
    as_json: JsonOption = False,
) -> None:
    """Watch a run until it finishes; with --json, a line at each change.

    Ends with 1 if an item failed, if the run did not complete, or if refusals hold all that is left of it. An
    interrupt does not stop the run.
    """
    with invocation.deployment() as deployment:
        watched = find_run(deployment, run)
        end = _follow(watched) if as_json else wait_for(deployment, watched)
    conclude(end, fail_on_error)


@app.command(cls=RunCommand)
@with_settings
def cancel(
    invocation: Invocation,
    run: RunArgument,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Return once it is cancelled.")] = False,
) -> None:
    """Cancel a run: abort calls in flight, keep finished jobs."""
    with invocation.deployment() as deployment:
        found = find_run(deployment, run)
        _unfinished(found)
        found.cancel()
        if not wait:
            say(f"run {found.id}: asked to cancel it")
            warn_without_leader(deployment)
            return
        say(f"run {found.id} {ending(found.wait())}")


@app.command(cls=RunCommand)
@with_settings
def pause(invocation: Invocation, run: RunArgument) -> None:
    """Pause a run: no call of it starts until `fairlane resume`; calls in flight end."""
    with invocation.deployment() as deployment:
        found = find_run(deployment, run)
        if (paused := pause_in_words(_unfinished(found), deployment.now_ms())) is not None:
            say(f"run {found.id} is paused already, {paused}")
            return
        found.pause()
        say(f"run {found.id}: asked to pause it; `fairlane resume {found.id}` resumes it")
        warn_without_leader(deployment)


@app.command(cls=RunCommand)
@with_settings
def resume(invocation: Invocation, run: RunArgument) -> None:
    """Resume a paused run.

    A run that submit --on-refusal=hold holds tries five more calls to each model that rejected its first.
    """
    with invocation.deployment() as deployment:
        found = find_run(deployment, run)
        _unfinished(found)
        found.resume()
        say(f"run {found.id}: asked to resume it")
        warn_without_leader(deployment)


def conclude_submission(
    deployment: Deployment, run: Run, *, wait: bool, allowed: float, as_json: bool, note: str = ""
) -> None:
    """Show a run that was just submitted. With ``wait``, wait for its end and end as `conclude` does.

    ``note`` follows the numbers of items and jobs.
    """
    with after(f"run {run.id} was submitted"):
        if not as_json:
            print_line(run.id)
        status = run.status()
    if not as_json:
        say(f"{counted(status.items, 'item')}, {counted(status.jobs, 'job')}{note}")
        if run.serial:
            say("its items run one at a time: each ends before the next begins")
    if wait:
        status = wait_for(deployment, run)
    elif not as_json:
        warn_without_leader(deployment)
    if as_json:
        with after(f"run {run.id} was submitted"):
            print_json(run_document(status))
    if wait:
        conclude(status, allowed)


def wait_for(deployment: Deployment, run: Run) -> RunStatus:
    """Show a run's progress until it finishes; an interrupt says that the run continues."""
    warn_without_leader(deployment)
    try:
        return run.wait(progress=True, until_held=True)
    except KeyboardInterrupt:
        say(
            f"run {run.id} continues; `fairlane watch {run.id}` shows it, `fairlane cancel {run.id}` stops it"
        )
        raise


def _unfinished(run: Run) -> RunStatus:
    """The run's status. Ends the command with a message for a finished run."""
    status = run.status()
    if status.state.finished:
        say(f"run {run.id} has finished already; it {ending(status)}")
        raise typer.Exit
    return status


def _follow(run: Run) -> RunStatus:
    waiter, shown, held = SystemWaiter(), None, HeldDetector(run.is_held)
    while True:
        status = run.status()
        if status != shown:
            print_json_line(run_document(status))
            shown = status
        if status.state.finished or held.check(status):
            return status
        waiter.wait(LOOK_EVERY_S)


def warn_without_leader(deployment: Deployment) -> None:
    """Print a warning if no scheduler leads, since runs then wait for one."""
    if not deployment.is_led():
        say("no scheduler leads now: nothing starts until one does (see `fairlane doctor`)")
