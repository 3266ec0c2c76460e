"""``fairlane scheduler`` and ``worker``: commands that replace their process with a role's."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from fairlane.cli.failures import MISUSED
from fairlane.cli.invocation import Invocation, expanded, with_settings
from fairlane.cli.output import complain
from fairlane.config.environment import child_environment
from fairlane.config.sections import MOST_SLOTS
from fairlane.core.errors import StoreUnavailable
from fairlane.store.connection.connect import require_usable

app = typer.Typer()

NameOption = Annotated[str | None, typer.Option("--name", help="Name of this process in lists of processes.")]
ReadyFileOption = Annotated[
    Path | None,
    typer.Option(
        "--ready-file",
        metavar="FILE",
        callback=expanded,
        help="File to write once the process is ready for work.",
    ),
]


def exec_module(module: str, arguments: list[str], changes: Mapping[str, str]) -> NoReturn:
    """Replace this process with ``python -m module``; pid and parent stay the same."""
    sys.stdout.flush()
    sys.stderr.flush()
    # -P as for a console script: no file of the working directory hides a module.
    os.execve(sys.executable, [sys.executable, "-P", "-m", module, *arguments], child_environment(changes))  # noqa: S606


def to_arguments(**options: object) -> list[str]:
    """The options that are not ``None``, as arguments: ``ready_file=x`` → ``--ready-file x``."""
    given = (
        (f"--{name.replace('_', '-')}", str(value)) for name, value in options.items() if value is not None
    )
    return [part for pair in given for part in pair]


def require_ready(invocation: Invocation) -> None:
    """Check settings and the certificates of Redis and broker before the role starts.

    Raises `ConfigurationError`; ends with code 2 if Redis or the broker cannot be used.
    """
    settings = invocation.settings()
    try:
        require_usable(settings.redis, settings.broker_url)
    except StoreUnavailable as error:
        complain(str(error))
        raise typer.Exit(MISUSED) from error


@app.command()
@with_settings
def scheduler(invocation: Invocation, name: NameOption = None, ready_file: ReadyFileOption = None) -> None:
    """Run a scheduler: one leads, others stand by."""
    require_ready(invocation)
    exec_module(
        "fairlane_scheduler", to_arguments(name=name, ready_file=ready_file), invocation.environment()
    )


@app.command()
@with_settings
def worker(
    invocation: Invocation,
    slots: Annotated[
        int | None, typer.Option(min=1, max=MOST_SLOTS, help="Most concurrent calls of this worker.")
    ] = None,
    lanes: Annotated[
        str | None, typer.Option(metavar="A,B", help="Serve only these lanes, separated by commas.")
    ] = None,
    name: NameOption = None,
    ready_file: ReadyFileOption = None,
) -> None:
    """Run a worker."""
    require_ready(invocation)
    arguments = to_arguments(slots=slots, lanes=lanes, name=name, ready_file=ready_file)
    exec_module("fairlane_workers", arguments, invocation.environment())
