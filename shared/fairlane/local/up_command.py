"""``fairlane up``: the local stack in the foreground, until somebody stops it."""

from __future__ import annotations

import json
import os
import shlex
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from fairlane.cli.failures import Interrupted, interruptible
from fairlane.cli.invocation import Invocation, with_settings
from fairlane.cli.output import say
from fairlane.config.sections import MOST_SLOTS
from fairlane.config.settings import Settings
from fairlane.core.clock import SystemClock
from fairlane.local.keeper import Keeper
from fairlane.local.plan import StackPlan
from fairlane.local.planning import (
    choose_redis,
    keep_out_of_git,
    settings_for,
    simulated_connections,
    simulator_port,
    variables_for_others,
)
from fairlane.local.stack import Stack

DATA_DIR = Path(".fairlane")
LOOK_EVERY_S = 0.2


@with_settings
def up(
    invocation: Invocation,
    workers: Annotated[int, typer.Option(min=0, max=256, help="Worker processes.")] = 2,
    schedulers: Annotated[int, typer.Option(min=0, max=16, help="Schedulers; one leads.")] = 1,
    slots: Annotated[
        int | None, typer.Option(min=1, max=MOST_SLOTS, help="Most concurrent calls of a worker.")
    ] = None,
    data_dir: Annotated[
        Path, typer.Option(metavar="DIR", help="Directory for Redis's data and the logs.")
    ] = DATA_DIR,
    ready_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="File for JSON with redis_url and pids, written once everything answers."
        ),
    ] = None,
    simulate: Annotated[
        bool, typer.Option("--simulate", help='Run the simulated provider, as connection "sim".')
    ] = False,
    simulate_config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            exists=True,
            dir_okay=False,
            help="Configuration of the simulated provider; implies --simulate.",
        ),
    ] = None,
    flower: Annotated[bool, typer.Option("--flower", help="Run Flower, Celery's dashboard.")] = False,
) -> None:
    """Run everything on this machine, in the foreground. Ctrl-C takes all of it down."""
    simulate = simulate or simulate_config is not None
    settings = settings_for(invocation, simulate)
    redis_url, redis_port = choose_redis(invocation.redis, settings)
    plan = StackPlan(
        data_dir=data_dir,
        config=Path(settings.config_file) if settings.config_file else None,
        redis_url=redis_url,
        redis_port=redis_port,
        workers=workers,
        schedulers=schedulers,
        slots=slots,
        simulate=simulate,
        simulate_config=simulate_config,
        simulated=simulated_connections(settings),
        simulator_port=simulator_port(settings),
        flower=flower,
    )
    with interruptible(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as check:
        keep_out_of_git(data_dir)
        stack = Stack(plan, tell=say, checkpoint=check)
        run(stack, ready_file, partial(describe, stack, invocation, settings), check)


def run(
    stack: Stack, ready_file: Path | None, welcome: Callable[[], None], check: Callable[[], None]
) -> None:
    """Start the stack, tell where it is, keep it up until ``check`` says that a signal came, take it down.

    Being stopped is how it ends, no failure; only an interruption before it was up is passed on.
    """
    if ready_file is not None:
        ready_file.unlink(missing_ok=True)
    with stack, announced(stack, ready_file) as announce:
        welcome()
        try:
            keep_up(stack, announce, check)
        except Interrupted:
            say("stopping; once more to stop at once")


def keep_up(stack: Stack, announce: Callable[[], None], check: Callable[[], None]) -> NoReturn:
    """Look after the children for ever; only an exception ends it."""
    keeper, pause = Keeper(stack, SystemClock(), say), threading.Event()
    while True:
        check()
        if keeper.tick():
            announce()
        pause.wait(LOOK_EVERY_S)


@contextmanager
def announced(stack: Stack, ready_file: Path | None) -> Iterator[Callable[[], None]]:
    """The ready file is there inside the block; what is yielded writes it anew."""

    def announce() -> None:
        if ready_file is not None:
            write_whole(ready_file, json.dumps(document(stack), indent=2) + "\n")

    announce()
    try:
        yield announce
    finally:
        if ready_file is not None:
            ready_file.unlink(missing_ok=True)


def document(stack: Stack) -> dict[str, Any]:
    """What a program needs to find a running stack."""
    found = {
        "redis_url": stack.redis_url,
        "pids": stack.pids,
        "pid": os.getpid(),
        "base_url": stack.simulator_url,
        "flower_url": stack.flower_url,
        "data_dir": str(stack.plan.data_dir.resolve()),
    }
    return {name: value for name, value in found.items() if value is not None}


def write_whole(path: Path, text: str) -> None:
    """Write a file so that nobody ever reads half of it."""
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


def describe(stack: Stack, invocation: Invocation, settings: Settings) -> None:
    """Tell the person in front of the terminal what is there and how to use it."""
    say("Fairlane is up.")
    if settings.connections:
        say(f"  connections  {', '.join(sorted(settings.connections))}")
    else:
        say("  connections  none: add [connections.NAME] to fairlane.toml, or use --simulate")
    if stack.flower_url:
        say(f"  dashboard    {stack.flower_url}")
    say(f"  logs         {stack.plan.data_dir / 'logs'}")
    variables = variables_for_others(stack, invocation)
    if variables:
        say("  To use it from another terminal:")
        for name, value in variables.items():
            say(f"    export {name}={shlex.quote(value)}")
    say("Ctrl-C stops everything.")


def add_to(app: typer.Typer) -> None:
    """Put the command into the application."""
    app.command()(up)
