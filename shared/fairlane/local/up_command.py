"""``fairlane up``: runs the local stack in the foreground until a signal."""

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

from fairlane.cli.failures import Interrupted, interruptible, written_below
from fairlane.cli.invocation import Invocation, existing_file, with_settings
from fairlane.cli.operate.connection_views import lacks_of
from fairlane.cli.output import say
from fairlane.config.loader import load_secrets
from fairlane.config.modules import not_found
from fairlane.config.sections import MOST_SLOTS
from fairlane.config.settings import Settings
from fairlane.core.clock import SystemClock
from fairlane.core.redaction import mask_text
from fairlane.embedded.ports import FLOWER_PORT, is_free
from fairlane.export.files import partial_file
from fairlane.local.joining import require_unused
from fairlane.local.keeper import Keeper
from fairlane.local.plan import StackPlan
from fairlane.local.planning import (
    choose_redis,
    hide_data_dir,
    settings_for,
    simulated_connections,
    variables_for_others,
)
from fairlane.local.planning import simulator_port as settings_port
from fairlane.local.stack import Stack

app = typer.Typer()

DATA_DIR = Path(".fairlane")
LOOK_EVERY_S = 0.2


def _port(of: str, default: str) -> Any:
    return typer.Option(metavar="PORT", min=1, max=65_535, help=f"Port of {of}.", show_default=default)


@app.command()
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
            callback=existing_file,
            help="Configuration of the simulated provider; implies --simulate.",
        ),
    ] = None,
    flower: Annotated[bool, typer.Option("--flower", help="Run Flower, Celery's dashboard.")] = False,
    join: Annotated[
        bool, typer.Option("--join", help="Add processes to a deployment that is up on that Redis already.")
    ] = False,
    redis_port: Annotated[int | None, _port("Redis", "the settings' port, or 6379")] = None,
    simulator_port: Annotated[int | None, _port("the simulated provider", "the settings' port")] = None,
    flower_port: Annotated[int | None, _port("Flower", str(FLOWER_PORT))] = None,
    scheduler_port: Annotated[int | None, _port("schedulers' metrics", "metrics.scheduler_port")] = None,
    worker_port: Annotated[int | None, _port("workers' metrics", "metrics.worker_port")] = None,
) -> None:
    """Run everything on this machine, in the foreground. Ctrl-C stops all of it.

    Where a default port is taken, it uses another one.
    """
    simulate = simulate or simulate_config is not None
    settings = settings_for(invocation, simulate)
    redis_url, preferred_port = choose_redis(invocation.redis, settings)
    if redis_port is not None and redis_url is not None:
        raise typer.BadParameter(
            f"--redis-port is for a Redis of its own, and {mask_text(redis_url)} is used"
        )
    ports = {"redis": redis_port, "simulator": simulator_port, "flower": flower_port}
    needed = {"simulator": (simulate, "--simulate"), "flower": (flower, "--flower")}
    for name, port in ports.items():
        _require_port(name, port, *needed.get(name, (True, "")))
    if redis_url is not None and not join:
        require_unused(settings, redis_url)
    metrics = {"SCHEDULER": scheduler_port, "WORKER": worker_port}
    plan = StackPlan(
        data_dir=data_dir,
        config=Path(settings.config_file) if settings.config_file else None,
        env={f"FAIRLANE_METRICS__{role}_PORT": str(port) for role, port in metrics.items() if port},
        redis_url=redis_url,
        redis_port=redis_port or preferred_port,
        workers=workers,
        schedulers=schedulers,
        slots=slots,
        simulate=simulate,
        simulate_config=simulate_config,
        simulated=simulated_connections(settings),
        simulator_port=simulator_port or settings_port(settings),
        flower=flower,
        flower_port=flower_port or FLOWER_PORT,
    )
    stops = interruptible(signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    with written_below(data_dir), stops as check:
        hide_data_dir(data_dir)
        stack = Stack(plan, report=say, checkpoint=check)
        run(stack, ready_file, partial(describe, stack, invocation, settings), check)


def _require_port(name: str, port: int | None, used: bool, by: str) -> None:
    """Raise ``typer.BadParameter`` for a stated port that is taken, or without a process to use it."""
    if port is None:
        return
    if not used:
        raise typer.BadParameter(f"--{name}-port needs {by}")
    if not is_free(port):
        raise typer.BadParameter(f"port {port} is taken: give another --{name}-port, or leave it out")


def run(
    stack: Stack, ready_file: Path | None, welcome: Callable[[], None], check: Callable[[], None]
) -> None:
    """Start the stack, call ``welcome``, restart children that die until ``check`` raises, and stop it.

    `Interrupted` is the usual end; it is raised only if it comes before the stack is up.
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
    """Restart children that die, and announce the new ones; only an exception ends it."""
    keeper, pause = Keeper(stack, SystemClock(), say), threading.Event()
    while True:
        check()
        if keeper.tick():
            announce()
        pause.wait(LOOK_EVERY_S)


@contextmanager
def announced(stack: Stack, ready_file: Path | None) -> Iterator[Callable[[], None]]:
    """Write the ready file, and remove it after the block; yields a function that writes it again."""

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
    """The contents of the ready file, by which a program finds the stack."""
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
    """Write a file atomically, readable by its owner only: a URL in it may have a password."""
    partial = partial_file(path)
    number = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(number, "w", encoding="utf-8") as file:
        file.write(text)
    partial.replace(path)


def describe(stack: Stack, invocation: Invocation, settings: Settings) -> None:
    """Print what runs, and how to use it."""
    say("Fairlane is up.")
    if settings.connections:
        say(f"  connections  {', '.join(sorted(settings.connections))}")
    else:
        say("  connections  none: add [connections.NAME] to fairlane.toml, or use --simulate")
    for line in missing(stack.plan, settings):
        say(line)
    if stack.flower_url:
        say(f"  dashboard    {stack.flower_url}")
    say(f"  logs         {stack.plan.data_dir / 'logs'}")
    variables = variables_for_others(stack, invocation)
    if variables:
        say("  To use it from another terminal:")
        for name, value in variables.items():
            say(f"    export {name}={shlex.quote(value)}")
    say("Ctrl-C stops everything.")


def missing(plan: StackPlan, settings: Settings) -> list[str]:
    """A line for each connection that lacks something, such as its key, and for each missing module.
    Simulated connections need nothing.
    """
    simulated, secrets = plan.simulated if plan.simulate else {}, load_secrets(settings)
    found = {
        name: lacks_of(name, connection, secrets)
        for name, connection in settings.connections.items()
        if name not in simulated
    }
    lines = [
        f"  ! {name:<11}lacks {', '.join(lacks)}: its calls cannot succeed"
        for name, lacks in found.items()
        if lacks
    ]
    remedy = "install it, put it on PYTHONPATH, or start Fairlane in its folder"
    lines += [
        f"  ! {name}, of worker.modules, is not found: {remedy}"
        for name in not_found(settings.worker.modules)
    ]
    return lines
