"""What files outside of the code say of ours: that a command line is one, and a variable is read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import typer

from fairlane.cli.main import app
from fairlane.configuration import load_settings
from fairlane.configuration.environment import CONFIG_VARIABLE

EXAMPLES = {"LOG__FORMAT": "json", "REDIS__URL": "redis://:secret@redis:6379/0", "METRICS__HOST": "0.0.0.0"}


def unknown_options(command: Sequence[str]) -> set[str]:
    """Options of ``[role, …]`` that the role does not take. Fails where there is no such role."""
    role, *arguments = command
    group = typer.main.get_command(app)
    with group.make_context("fairlane", [role], resilient_parsing=True) as context:
        found = group.get_command(context, role)  # type: ignore[attr-defined]
        assert found is not None, f"fairlane {role}"
        options = {option for parameter in found.params for option in parameter.opts}
    return {argument for argument in arguments if argument.startswith("--")} - options


def check_variables(names: Iterable[str]) -> None:
    """Raises where a ``FAIRLANE_`` variable is none that is read, or one that has no example here."""
    ours = {name.removeprefix("FAIRLANE_") for name in names if name.startswith("FAIRLANE_")}
    ours.discard(CONFIG_VARIABLE.removeprefix("FAIRLANE_"))
    load_settings(None, {f"FAIRLANE_{name}": EXAMPLES[name] for name in ours})
