"""Entry point of ``fairlane``: runs one command and ends with an exit code whatever happens."""

import io
import os
import sys
import warnings
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer

from fairlane.cli.commands import LazyGroup
from fairlane.cli.failures import FAILED, describe, exit_code_of, terminable
from fairlane.cli.invocation import ConfigOption, Invocation, RedisOption, TeamOption
from fairlane.cli.output import complain, say

app = typer.Typer(
    name="fairlane",
    cls=LazyGroup,
    help="Runs batches of LLM calls on many machines, within the rates their providers allow.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"fairlane {version('fairlane')}")
        raise typer.Exit


@app.callback()
def fairlane(
    ctx: typer.Context,
    config: ConfigOption = None,
    redis: RedisOption = None,
    team: TeamOption = None,
    _version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Keep the options before the name of a command."""
    ctx.obj = Invocation(config, redis, team)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code; ``arguments`` defaults to the process's own."""
    prepare_streams()
    code = 0
    try:
        with terminable(), warnings.catch_warnings():
            warnings.showwarning = _show_warning
            app(args=arguments, prog_name="fairlane")
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except KeyboardInterrupt as interruption:
        say("interrupted")
        code = exit_code_of(interruption)
    except BrokenPipeError as error:
        code = exit_code_of(error)
    except OSError as error:  # --help is printed before there is a command
        complain(describe(error))
        code = exit_code_of(error)
    return finish_streams(code)


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    """Print a warning's message alone: users do not look for the line of code."""
    say(str(message))


_STREAMS = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))


def prepare_streams() -> None:
    """Open closed streams on the null device, and let output take characters that the locale lacks.

    A pipe or a file gets UTF-8, as JSON demands. A terminal keeps its encoding and shows others as escapes.
    """
    for descriptor, (name, mode) in enumerate(_STREAMS):
        _occupy(descriptor)
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open(mode, encoding="utf-8"))  # noqa: SIM115 - to the end
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            encoding = stream.encoding if stream.isatty() else "utf-8"
            stream.reconfigure(encoding=encoding, errors="backslashreplace")


def finish_streams(code: int) -> int:
    """Write what is buffered. Returns the exit code: ``code``, or another if the output cannot be written."""
    try:
        sys.stdout.flush()
    except OSError as error:
        _discard(1)
        if isinstance(error, BrokenPipeError):
            code = exit_code_of(error)
        elif not code:
            complain(describe(error))
            code = FAILED
    try:
        sys.stderr.flush()
    except OSError:
        _discard(2)
    return code


def _occupy(descriptor: int) -> None:
    """Open a closed descriptor on the null device, so that no socket gets it, here or after `exec`."""
    try:
        os.fstat(descriptor)
    except OSError:
        os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)


def _discard(descriptor: int) -> None:
    """Discard buffered output that cannot be written, so that the exit raises no error."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
