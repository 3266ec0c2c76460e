"""What commands share that become a role's own process."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from fairlane.cli.failures import MISUSED
from fairlane.cli.invocation import Invocation
from fairlane.cli.output import complain
from fairlane.config.environment import child_environment
from fairlane.core.errors import StoreUnavailable
from fairlane.store.connection.connect import require_usable

NameOption = Annotated[str | None, typer.Option("--name", help="Name of this process in lists of processes.")]
ReadyFileOption = Annotated[
    Path | None,
    typer.Option("--ready-file", metavar="FILE", help="Written once the process is ready for work."),
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


def require_ready(invocation: Invocation) -> None:
    """Check settings and the certificates of Redis and broker before the role starts.

    Raises `ConfigurationError`; ends with the code of wrong settings where Redis or broker cannot be used.
    """
    settings = invocation.settings()
    try:
        require_usable(settings.redis, settings.broker_url)
    except StoreUnavailable as error:
        complain(str(error))
        raise typer.Exit(MISUSED) from error
