"""Ends a failed command with a message and an exit code, never with a traceback."""

from __future__ import annotations

import errno
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import typer
from typer.core import TyperGroup

from fairlane.cli.output import complain, say
from fairlane.core.errors import ConfigurationError, FairlaneError, SubmissionError, TemplateError

FAILED, MISUSED = 1, 2
INSISTENT_SIGNALS = 3
"""So many signals without a check between them end the process, as an uncaught signal does."""

BY_SIGNAL = 128  # added to a signal's number, as shells do

_DISK_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS})
_MISUSES = (ConfigurationError, SubmissionError, TemplateError)


class Interrupted(KeyboardInterrupt):
    """A signal asked us to stop. ``number`` is the signal's."""

    def __init__(self, number: int = signal.SIGINT) -> None:
        super().__init__(signal.Signals(number).name)
        self.number = number


@contextmanager
def interruptible(*numbers: int) -> Iterator[Callable[[], None]]:
    """Record these signals inside the block. Yields a function that raises `Interrupted` once one has come.

    Call it during every wait. A handler that raised by itself might do so inside a destructor, where Python
    prints the exception and continues. `INSISTENT_SIGNALS` without a call, as in a read that hangs, end the
    process.
    """
    noted: list[int] = []

    def check() -> None:
        if noted:
            number = noted.pop()
            noted.clear()
            raise Interrupted(number)

    def note(number: int, _: FrameType | None) -> None:
        noted.append(number)
        if len(noted) >= INSISTENT_SIGNALS:
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)

    before = {number: signal.signal(number, note) for number in numbers}
    try:
        yield check
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def terminable() -> Iterator[None]:
    """Inside the block SIGTERM raises `Interrupted`, so that cleanup runs as after Ctrl-C."""

    def end(number: int, _: FrameType | None) -> None:
        raise Interrupted(number)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class CarefulGroup(TyperGroup):
    """A group of commands that reports failures in words."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command; report a failure in words and end with its exit code."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as interruption:
            say("interrupted")
            raise typer.Exit(exit_code_of(interruption)) from interruption
        except BrokenPipeError as error:
            raise typer.Exit(exit_code_of(error)) from error
        except (FairlaneError, OSError) as error:
            complain(describe(error))
            raise typer.Exit(exit_code_of(error)) from error


@contextmanager
def after(change: str) -> Iterator[None]:
    """Wrap the rest of a command that has made a change: if it fails, standard error names ``change``."""
    try:
        yield
        sys.stdout.flush()
    except OSError:
        say(f"{change}; what this command prints could not be written")
        raise
    except FairlaneError:
        say(f"{change}; what follows failed")
        raise


@contextmanager
def written_below(folder: Path) -> Iterator[None]:
    """Wrap a block that writes files below ``folder``: the error of a full or read-only disk names it."""
    try:
        yield
    except OSError as error:
        if error.errno not in _DISK_ERRORS or error.filename is not None:
            raise
        raise OSError(error.errno, error.strerror, str(folder)) from error


def exit_code_of(error: BaseException) -> int:
    """1 for a failure, 2 for wrong usage, 128 plus the signal's number for a signal."""
    match error:
        case Interrupted():
            return BY_SIGNAL + error.number
        case KeyboardInterrupt():
            return BY_SIGNAL + signal.SIGINT
        case BrokenPipeError():
            return BY_SIGNAL + signal.SIGPIPE
        case _:
            return MISUSED if isinstance(error, _MISUSES) else FAILED


def describe(error: BaseException) -> str:
    """The error message that the command prints."""
    if isinstance(error, FileNotFoundError) and error.filename is None and _is_working_directory_gone():
        return "the working directory is gone: change to one that is there"
    if isinstance(error, OSError) and not isinstance(error, FairlaneError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    return str(error) or type(error).__name__


def _is_working_directory_gone() -> bool:
    try:
        Path.cwd()
    except FileNotFoundError:
        return True
    return False
