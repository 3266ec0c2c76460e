"""Options shared by the commands that submit or rehearse a run; the client has a default for each."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fairlane.model.decision import RetryPolicy
from fairlane.model.run import OnRefusal

PROMPTS, CALLS = "What is asked", "How it is done"

ModelsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--model",
        "-m",
        metavar="MODEL",
        help='"<connection>:<model>", or a template for it. Repeatable.',
        rich_help_panel=PROMPTS,
    ),
]

PromptsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--prompt", metavar="TEXT", help="Jinja2 template over a row. Repeatable.", rich_help_panel=PROMPTS
    ),
]

PromptFilesOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--prompt-file", metavar="FILE", help="A prompt from a file. Repeatable.", rich_help_panel=PROMPTS
    ),
]

MessagesFilesOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--messages-file",
        metavar="FILE",
        help="JSON array of messages with role and content (a template). Repeatable.",
        rich_help_panel=PROMPTS,
    ),
]

CheckOption = Annotated[
    bool,
    typer.Option(
        "--check/--no-check",
        help="Try templates and evaluators on the first rows, and look at parameters, models and keys, "
        "before anything is written.",
    ),
]

ParamsOption = Annotated[
    list[str] | None,
    typer.Option(
        "--param",
        metavar="K=V",
        help="A parameter of the provider, like max_tokens=64; values are JSON or plain words. Repeatable.",
        rich_help_panel=PROMPTS,
    ),
]

RepetitionsOption = Annotated[
    int, typer.Option(metavar="N", min=1, max=10_000, help="Calls for each prompt.", rich_help_panel=PROMPTS)
]

MaxConcurrentOption = Annotated[
    int | None,
    typer.Option(metavar="N", min=1, help="Most calls of a run at once.", rich_help_panel=CALLS),
]

PriorityOption = Annotated[
    int,
    typer.Option(
        metavar="N",
        min=-100,
        max=100,
        help="Runs with a higher number take precedence among the team's runs.",
        rich_help_panel=CALLS,
    ),
]

TimeoutOption = Annotated[
    float | None,
    typer.Option(
        metavar="SECONDS", help="Longest time for a call.", show_default="120", rich_help_panel=CALLS
    ),
]

MaxAttemptsOption = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        min=1,
        max=100,
        help="Failed calls before a job fails; a 429 does not count.",
        show_default=str(RetryPolicy().max_attempts),
        rich_help_panel=CALLS,
    ),
]

OnRefusalOption = Annotated[
    OnRefusal,
    typer.Option(
        help="Where a model rejects the first five calls alike: fail the other jobs for it uncalled, or hold "
        "them until `fairlane resume`.",
        rich_help_panel=CALLS,
    ),
]


def retry_of(max_attempts: int | None) -> RetryPolicy | None:
    """The policy that the option asks for; ``None`` where it was left out."""
    return None if max_attempts is None else RetryPolicy(max_attempts=max_attempts)
