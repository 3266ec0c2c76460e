"""The standard streams of a command: present whatever its caller closed, and able to take any text."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path

from fairlane.cli.failures import FAILED, describe, exit_code_of
from fairlane.cli.output import complain

_STREAMS = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))


def prepare_streams() -> None:
    """Put the null device in place of closed streams, and have output take texts that its locale lacks.

    A pipe or a file gets UTF-8, as JSON demands. A terminal keeps its encoding, and shows other characters by
    their numbers.
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
    """Keep a closed descriptor from becoming a socket's, here and in a program that takes our place."""
    try:
        os.fstat(descriptor)
    except OSError:
        os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)


def _discard(descriptor: int) -> None:
    """Discard buffered output that nobody can have, so that the exit raises no error."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), descriptor)
