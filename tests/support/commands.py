"""Checks of commands and variables that documents and deployment files name: they must exist."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import typer

from fairlane.cli.main import app
from fairlane.config.environment import CONFIG_VARIABLE
from fairlane.config.loader import load_settings

EXAMPLES = {"LOG__FORMAT": "json", "REDIS__URL": "redis://:secret@redis:6379/0", "METRICS__HOST": "0.0.0.0"}


def unknown_options(command: Sequence[str]) -> set[str]:
    """The options in ``[role, …]`` that this role does not have. Fails if the role does not exist."""
    role, *arguments = command
    group = typer.main.get_command(app)
    with group.make_context("fairlane", [role], resilient_parsing=True) as context:
        found = group.get_command(context, role)  # type: ignore[attr-defined]
        assert found is not None, f"fairlane {role}"
        options = {option for parameter in found.params for option in parameter.opts}
    return {argument for argument in arguments if argument.startswith("--")} - options


def check_variables(names: Iterable[str]) -> None:
    """Raises if Fairlane does not read one of these ``FAIRLANE_`` variables, or if it has no example here."""
    ours = {name.removeprefix("FAIRLANE_") for name in names if name.startswith("FAIRLANE_")}
    ours.discard(CONFIG_VARIABLE.removeprefix("FAIRLANE_"))
    load_settings(None, {f"FAIRLANE_{name}": EXAMPLES[name] for name in ours})
