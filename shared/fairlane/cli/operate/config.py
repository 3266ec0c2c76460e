"""``fairlane config``: the settings in force, and where each comes from."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from fairlane.cli.invocation import Invocation, JsonOption, with_settings
from fairlane.cli.output import emit, print_table, say
from fairlane.config.effective import DEFAULT, Effective, effective

app = typer.Typer()


@app.command()
@with_settings
def config(
    invocation: Invocation,
    prefix: Annotated[
        str, typer.Argument(metavar="KEY", help="Only this key, or those that begin with it: redis.")
    ] = "",
    changed: Annotated[bool, typer.Option("--changed", help="Only what is not a default.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Show the settings in force, each with its source; secrets are masked.

    A source is the file, the environment (with .env), the arguments, the preset of a connection's provider,
    or the default. This needs neither Redis nor a scheduler.
    """
    settings = invocation.settings()
    found = [
        each
        for each in effective(settings, invocation.layers())
        if each.key.startswith(prefix) and not (changed and each.source == DEFAULT)
    ]
    if not found:
        say(f"no setting begins with {prefix!r}" if prefix else "nothing but defaults is in force")
    documents = [each._asdict() for each in found]
    emit(
        documents,
        lambda: print_table(("key", "value", "source"), map(_row, found)) if found else None,
        as_json=as_json,
    )


def _row(setting: Effective) -> tuple[str, str, str]:
    value = setting.value
    return setting.key, "–" if value is None else json.dumps(value, ensure_ascii=False), setting.source
