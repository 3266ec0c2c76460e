"""How the calls of a run are made: options of every command that submits one. Left out, a client decides."""

from __future__ import annotations

from typing import Annotated

import typer

from fairlane.retry import RetryPolicy

CALLS = "How it is done"

PriorityOption = Annotated[
    int,
    typer.Option(
        metavar="N",
        min=-100,
        max=100,
        help="Higher goes first among the team's runs.",
        rich_help_panel=CALLS,
    ),
]

TimeoutOption = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS", help="What a call may take in all.", show_default="120", rich_help_panel=CALLS
    ),
]

MaxAttemptsOption = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        max=100,
        help="Calls a job may fail; a rate limit is no failure.",
        show_default=str(RetryPolicy().max_attempts),
        rich_help_panel=CALLS,
    ),
]


def retry_of(max_attempts: int | None) -> RetryPolicy | None:
    """The policy that the option asks for; ``None`` where it was left out."""
    return None if max_attempts is None else RetryPolicy(max_attempts=max_attempts)
