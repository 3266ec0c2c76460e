"""Lists the commands of ``fairlane`` without importing them, and imports the one that is used.

A distribution adds commands by an entry point in group ``fairlane.commands`` that names a tuple of `Command`.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from types import MappingProxyType
from typing import Any, cast

import typer
from typer.core import TyperCommand, TyperGroup

from fairlane.cli.failures import CarefulGroup
from fairlane.core.startup import lasting_imports

GROUP = "fairlane.commands"

HERE = "Everything on this machine"
RUNS = "Runs"
OPERATIONS = "Operations"
ROLES = "One role at a time"
_PANELS = (HERE, RUNS, OPERATIONS, ROLES)
_OWN = ("fairlane.cli.", "fairlane.local")


@dataclass(frozen=True, slots=True)
class Command:
    """A command before it is loaded.

    ``summary`` is the first line of its help, ``panel`` the heading that ``fairlane --help`` lists it under.
    ``module`` registers it in its own `typer.Typer`, named ``app``.
    """

    name: str
    panel: str
    summary: str
    module: str

    def load(self) -> Any:
        """Import the command's module and build the command."""
        with lasting_imports():
            app = import_module(self.module).app
        app.callback()(lambda: None)  # with a callback, typer keeps the names even of a single command
        group = typer.main.get_command(app)
        return cast(TyperGroup, group).commands[self.name]

    def listed(self) -> TyperCommand:
        """A stand-in with the command's name and summary, for the list of commands."""
        stand_in = TyperCommand(self.name, help=self.summary)
        stand_in.rich_help_panel = self.panel
        return stand_in


def commands(
    panel: str, room: str, summaries: Mapping[str, str], modules: Mapping[str, str] = MappingProxyType({})
) -> tuple[Command, ...]:
    """Commands of one panel by summary. ``modules``: a command's module, where its name differs."""
    return tuple(
        Command(name, panel, summary, f"{room}.{modules.get(name, name)}")
        for name, summary in summaries.items()
    )


@cache
def find_commands() -> dict[str, Command]:
    """All commands by name: panel by panel, those of the command line itself first in each.

    Reads the entry points once in a process.
    """
    found: dict[str, Command] = {}
    points = sorted(
        entry_points(group=GROUP), key=lambda point: (not point.module.startswith(_OWN), point.name)
    )
    for point in points:
        if not is_installed(point.module):
            continue
        with lasting_imports():
            listed = point.load()
        for command in listed:
            found.setdefault(command.name, command)
    order = {panel: place for place, panel in enumerate(_PANELS)}
    ordered = sorted(found.values(), key=lambda command: order.get(command.panel, len(order)))
    return {command.name: command for command in ordered}


def is_installed(module: str) -> bool:
    """Whether a module can be imported: extras may be missing, and the production image lacks some rooms."""
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:
        return False


class LazyGroup(CarefulGroup):
    """A group that imports a command's module when the command is used."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._found = find_commands()
        self._listing = False

    def list_commands(self, ctx: Any) -> list[str]:
        """Names in the order of the help."""
        return list(self._found)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """The command of that name; while the list of commands is printed, a stand-in for it."""
        command = self._found.get(cmd_name)
        if command is None:
            return None
        return command.listed() if self._listing else command.load()

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """Complete a command's name or an option without loading any command."""
        with self._listed():
            return super().shell_complete(ctx, incomplete)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help without loading any command."""
        with self._listed():
            super().format_help(ctx, formatter)

    @contextmanager
    def _listed(self) -> Iterator[None]:
        self._listing = True
        try:
            yield
        finally:
            self._listing = False
