"""Commands that are one role each: they become the role's own process, or serve in this one."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from fairlane.cli.invocation import Invocation, with_settings
from fairlane.cli.output import say
from fairlane.cli.panels import ROLES
from fairlane.errors import LocalStackError
from fairlane.local.environment import child_environment
from fairlane.local.plan import FLOWER_PORT
from fairlane.local.ports import LOOPBACK
from fairlane.store.connect import require_trust

SIMULATOR_PORT = 8100
FLOWER_MEMORY_TASKS = 10_000  # Flower keeps about 5 KB a task; its own default of 100,000 is half a gigabyte
FLOWER_MEMORY_WORKERS_S = 86_400  # every restart is a worker of another name

NameOption = Annotated[
    str | None, typer.Option("--name", help="What to call this process where processes are listed.")
]
ReadyFileOption = Annotated[
    Path | None, typer.Option("--ready-file", metavar="FILE", help="Written once it is ready for work.")
]


def become(module: str, arguments: list[str], changes: Mapping[str, str]) -> NoReturn:
    """Replace this process with ``python -m module``: same number, same parent, nothing in between."""
    sys.stdout.flush()
    sys.stderr.flush()
    # -P as for a console script: what lies in the working directory is no module of ours.
    os.execve(sys.executable, [sys.executable, "-P", "-m", module, *arguments], child_environment(changes))  # noqa: S606


def stated(**options: object) -> list[str]:
    """Those options that were given, as arguments: ``ready_file=x`` → ``--ready-file x``."""
    given = (
        (f"--{name.replace('_', '-')}", str(value)) for name, value in options.items() if value is not None
    )
    return [part for pair in given for part in pair]


def _ready_for(invocation: Invocation) -> None:
    """Tell what no waiting would mend before the role begins: settings, and certificates of Redis' and the
    broker's. Raises `ConfigurationError` and `StoreUnavailable`.
    """
    settings = invocation.settings()
    for url in dict.fromkeys((settings.redis.url, settings.broker_url)):
        require_trust(url, settings.redis.deployment)


@with_settings
def scheduler(invocation: Invocation, name: NameOption = None, ready_file: ReadyFileOption = None) -> None:
    """Run a scheduler: one leads, others stand by."""
    _ready_for(invocation)
    become("fairlane_scheduler", stated(name=name, ready_file=ready_file), invocation.environment())


@with_settings
def worker(
    invocation: Invocation,
    slots: Annotated[int | None, typer.Option(min=1, max=2000, help="Calls it runs at once.")] = None,
    lanes: Annotated[
        str | None, typer.Option(metavar="A,B", help="Serve these lanes alone, separated by commas.")
    ] = None,
    name: NameOption = None,
    ready_file: ReadyFileOption = None,
) -> None:
    """Run a worker."""
    _ready_for(invocation)
    arguments = stated(slots=slots, lanes=lanes, name=name, ready_file=ready_file)
    become("fairlane_workers", arguments, invocation.environment())


@with_settings
def flower(
    invocation: Invocation,
    address: Annotated[str, typer.Option(help="Where it listens.")] = LOOPBACK,
    port: Annotated[int, typer.Option(min=1, max=65_535)] = FLOWER_PORT,
    events: Annotated[bool, typer.Option(help="Have the workers report every task to it.")] = True,
    show_text: Annotated[
        bool, typer.Option("--show-text", help="Show rows and outputs on the pages of items.")
    ] = False,
    extra: Annotated[
        list[str] | None, typer.Argument(metavar="[-- OPTIONS]", help="Further options of Flower's own.")
    ] = None,
) -> None:
    """Run Flower, Celery's dashboard, with pages for lanes, runs and teams."""
    _ready_for(invocation)
    if importlib.util.find_spec("flower") is None:
        raise LocalStackError("flower", "is not installed. `pip install 'fairlane[flower]'` brings it")
    options = list(extra or ())
    if address not in (LOOPBACK, "localhost", "::1") and not any("auth" in option for option in options):
        say(
            f"caution: Flower on {address} lets whoever reaches it stop workers. "
            "Give it a login: fairlane flower … -- --basic_auth=USER:PASSWORD"
        )
    own = [f"--address={address}", f"--port={port}", f"--max_tasks={FLOWER_MEMORY_TASKS}"]
    own += [f"--purge_offline_workers={FLOWER_MEMORY_WORKERS_S}"]
    own += [] if events else ["--enable_events=False"]
    own += ["--show-text"] if show_text else []
    become("fairlane.dashboard", [*own, *options], invocation.environment())


def simulate(
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            exists=True,
            dir_okay=False,
            help="TOML with a \\[models.NAME] table for each model; left out: fast and judge.",
        ),
    ] = None,
    host: Annotated[str, typer.Option(help="Where it listens.")] = LOOPBACK,
    port: Annotated[int, typer.Option(min=0, max=65_535, help="0 takes a free one.")] = SIMULATOR_PORT,
    ready_file: ReadyFileOption = None,
    seed: Annotated[int | None, typer.Option(help="Replaces the seed of the file.")] = None,
) -> None:
    """Run the simulated provider alone: every protocol, with limits and faults."""
    # It brings a web server along, which no other command needs.
    from fairlane.testing.provider import SimulatedModel, SimulatorConfig, run_simulator

    if config is not None:
        simulated = SimulatorConfig.from_toml(config)
    else:
        models = {"fast": SimulatedModel(), "judge": SimulatedModel(output="judge")}
        simulated = SimulatorConfig(models=models)
    if seed is not None:
        simulated = simulated.model_copy(update={"seed": seed})
    say(f"simulating {', '.join(simulated.models)} on {host}, port {port or 'any'}")
    run_simulator(simulated, host, port, ready_file)


def add_to(app: typer.Typer) -> None:
    """Put these commands into the application."""
    app.command(rich_help_panel=ROLES)(scheduler)
    app.command(rich_help_panel=ROLES)(worker)
    app.command(rich_help_panel=ROLES)(simulate)
    app.command(rich_help_panel=ROLES)(flower)
