"""Reads the file ``.env`` of the working directory: a file, or a pipe that another program fills."""

from __future__ import annotations

import io
import warnings
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from fairlane.config.problems import ConfigurationWarning
from fairlane.core.errors import ConfigurationError

ENV_FILE = Path(".env")

PIPE_READ = "_FAIRLANE_ENV_PIPE"
"""Names the pipe in the environment of children, which have its variables: few pipes can be read twice."""


def env_file_variables(environ: Mapping[str, str]) -> Mapping[str, str]:
    """The file's variables, as they stand in it: ``${NAME}`` in a value is not replaced.

    A line that is none, and a ``.env`` that is neither file nor pipe, are a `ConfigurationWarning`. Raises
    `ConfigurationError` if the file cannot be read.
    """
    place = str(ENV_FILE.absolute())
    if ENV_FILE.is_file():
        return _parsed(place, _text(ENV_FILE))
    if ENV_FILE.is_fifo():
        return {} if environ.get(PIPE_READ) == place else _parsed(place, _text_of_pipe(place))
    if ENV_FILE.exists() and not (ENV_FILE / "pyvenv.cfg").exists():
        _warn_of_kind(place)
    return {}


def mark_pipe() -> dict[str, str]:
    """What a child's environment needs beside the variables, so that it does not read a pipe again."""
    return {PIPE_READ: str(ENV_FILE.absolute())} if ENV_FILE.is_fifo() else {}


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        problem, remedy = f"cannot be read: {error}", "Make it readable, in UTF-8, or take it away."
        raise ConfigurationError(str(ENV_FILE), str(path.absolute()), problem, remedy) from error


@cache
def _text_of_pipe(place: str) -> str:
    return _text(Path(place))


@cache
def _parsed(place: str, text: str) -> Mapping[str, str]:
    """Cached, so that a process warns once."""
    from dotenv.parser import parse_stream

    found: dict[str, str] = {}
    for binding in parse_stream(io.StringIO(text)):
        if binding.error:
            before = binding.original.string
            line = binding.original.line + before[: len(before) - len(before.lstrip())].count("\n")
            _warn(f"{place}, line {line}, is ignored: it is no NAME=value, or its quotes do not end")
        elif binding.key is not None and binding.value is not None:
            found[binding.key] = binding.value
    return found


@cache
def _warn_of_kind(place: str) -> None:
    _warn(f"{place} is ignored: it is neither a file nor a pipe")


def _warn(text: str) -> None:
    warnings.warn(text, ConfigurationWarning, stacklevel=2)
