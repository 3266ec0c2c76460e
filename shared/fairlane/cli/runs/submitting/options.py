"""Options shared by the commands that submit or rehearse a run; the client has a default for each."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from fairlane.model.decision import RetryPolicy
from fairlane.model.run import OnRefusal

call_option = partial(typer.Option, rich_help_panel="How it is done")

CheckOption = Annotated[
    bool,
    typer.Option(
        "--check/--no-check",
        help="Try templates and evaluators on the first rows, and look at parameters, models and keys, "
        "before anything is written.",
    ),
]

WaitOption = Annotated[
    bool, typer.Option("--wait/--no-wait", help="Show progress, and return when the run is over.")
]

MaxConcurrentOption = Annotated[
    int | None, call_option(metavar="N", min=1, help="Most calls of a run at once.")
]

PriorityOption = Annotated[
    int,
    call_option(
        metavar="N",
        min=-100,
        max=100,
        help="Runs with a higher number take precedence among the team's runs.",
    ),
]

TimeoutOption = Annotated[
    float | None, call_option(metavar="SECONDS", help="Longest time for a call.", show_default="120")
]

MaxAttemptsOption = Annotated[
    int | None,
    call_option(
        metavar="N",
        min=1,
        max=100,
        help="Failed calls before a job fails; a 429 does not count.",
        show_default=str(RetryPolicy().max_attempts),
    ),
]

OnRefusalOption = Annotated[
    OnRefusal,
    call_option(
        help="Where a model rejects the first five calls alike: fail the other jobs for it uncalled, or hold "
        "them until `fairlane resume`."
    ),
]


def retry_of(max_attempts: int | None) -> RetryPolicy | None:
    """The policy that the option asks for; ``None`` where it was left out."""
    return None if max_attempts is None else RetryPolicy(max_attempts=max_attempts)
