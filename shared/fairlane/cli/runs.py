"""Commands on runs that are there: list, look, watch, pause, cancel."""

from __future__ import annotations

from typing import Annotated

import typer

from fairlane.cli.deployment import Deployment, open_deployment
from fairlane.cli.failures import FAILED
from fairlane.cli.invocation import Invocation, JsonOption, with_settings
from fairlane.cli.output import print_json, print_json_line, say
from fairlane.cli.panels import RUNS
from fairlane.cli.run_views import ending, pause_in_words, print_run, print_runs, run_document
from fairlane.cli.selection import LATEST, RunArgument, RunCommand, find_run
from fairlane.handle import Run
from fairlane.polling import SystemWaiter
from fairlane.run import RunState, RunStatus

LOOK_EVERY_S = 1.0


@with_settings
def runs(
    invocation: Invocation,
    limit: Annotated[
        int, typer.Option("--limit", "-n", metavar="N", min=1, max=10_000, help="How many, at most.")
    ] = 20,
    as_json: JsonOption = False,
) -> None:
    """List the team's runs, newest first."""
    with open_deployment(invocation) as deployment:
        found, now_ms = deployment.client.runs(limit), deployment.now_ms()
    if as_json:
        print_json([run_document(status) for status in found])
    elif found:
        print_runs(found, now_ms)
    else:
        say(f"team {deployment.settings.team} has no run; `fairlane submit` makes one")


@with_settings
def status(invocation: Invocation, run: RunArgument = LATEST, as_json: JsonOption = False) -> None:
    """Show how a run stands; the latest if none is named."""
    with open_deployment(invocation) as deployment:
        found, now_ms = find_run(deployment, run).status(), deployment.now_ms()
    if as_json:
        print_json(run_document(found))
    else:
        print_run(found, now_ms)


@with_settings
def watch(invocation: Invocation, run: RunArgument = LATEST, as_json: JsonOption = False) -> None:
    """Watch a run until it is over; with --json, a line each time it has moved.

    Ends with 1 if the run was refused or cancelled. To stop watching does not stop the run.
    """
    with open_deployment(invocation) as deployment:
        watched = find_run(deployment, run)
        end = _follow(watched) if as_json else wait_for(deployment, watched)
    conclude(end)


@with_settings
def cancel(
    invocation: Invocation,
    run: RunArgument,
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Return once it is cancelled.")] = False,
) -> None:
    """Cancel a run: what is in flight is broken off, what is done stays."""
    with open_deployment(invocation) as deployment:
        found = find_run(deployment, run)
        if _unfinished(found) is None:
            return
        found.cancel()
        if not wait:
            say(f"run {found.id}: asked to cancel it")
            caution_if_unled(deployment)
            return
        say(f"run {found.id} {ending(found.wait())}")


@with_settings
def pause(invocation: Invocation, run: RunArgument) -> None:
    """Pause a run: nothing of it starts until `fairlane unpause`; calls in flight end, nothing fails."""
    with open_deployment(invocation) as deployment:
        found = find_run(deployment, run)
        before = _unfinished(found)
        if before is None:
            return
        if (paused := pause_in_words(before, deployment.now_ms())) is not None:
            say(f"run {found.id} is paused already, {paused}")
            return
        found.pause()
        say(f"run {found.id}: asked to pause it; `fairlane unpause {found.id}` lets it go on")
        caution_if_unled(deployment)


@with_settings
def unpause(invocation: Invocation, run: RunArgument) -> None:
    """Let a paused run go on where it stopped."""
    with open_deployment(invocation) as deployment:
        found = find_run(deployment, run)
        if _unfinished(found) is None:
            return
        found.unpause()
        say(f"run {found.id}: asked to let it go on")
        caution_if_unled(deployment)


def wait_for(deployment: Deployment, run: Run) -> RunStatus:
    """Show a run's progress until it is over; says that it goes on when that is interrupted."""
    caution_if_unled(deployment)
    try:
        return run.wait(progress=True)
    except KeyboardInterrupt:
        say(f"run {run.id} goes on; `fairlane watch {run.id}` shows it, `fairlane cancel {run.id}` stops it")
        raise


def conclude(status: RunStatus) -> None:
    """Say how the run ended; the command's exit code is 1 if it was refused or cancelled."""
    say(f"run {status.run} {ending(status)}")
    if status.state is not RunState.COMPLETED:
        raise typer.Exit(FAILED)


def _unfinished(run: Run) -> RunStatus | None:
    """How the run stands; ``None``, and a word on it, where it is over."""
    status = run.status()
    if status.state.finished:
        say(f"run {run.id} is over already; it {ending(status)}")
        return None
    return status


def _follow(run: Run) -> RunStatus:
    waiter, told = SystemWaiter(), None
    while True:
        status = run.status()
        if status != told:
            print_json_line(run_document(status))
            told = status
        if status.state.finished:
            return status
        waiter.wait(LOOK_EVERY_S)


def caution_if_unled(deployment: Deployment) -> None:
    """Say so where a run would wait for a scheduler."""
    if not deployment.is_led():
        say("no scheduler leads now: nothing starts until one does (`fairlane doctor` tells more)")


def add_to(app: typer.Typer) -> None:
    """Put these commands into the application."""
    app.command(rich_help_panel=RUNS)(runs)
    app.command(cls=RunCommand, rich_help_panel=RUNS)(status)
    app.command(cls=RunCommand, rich_help_panel=RUNS)(watch)
    app.command(cls=RunCommand, rich_help_panel=RUNS)(pause)
    app.command(cls=RunCommand, rich_help_panel=RUNS)(unpause)
    app.command(cls=RunCommand, rich_help_panel=RUNS)(cancel)
