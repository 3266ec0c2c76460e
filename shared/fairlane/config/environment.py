"""Reads the environment, completed by the file ``.env``, and its ``FAIRLANE_*`` variables as settings."""

import io
import os
import re
import warnings
from collections import ChainMap
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, get_origin

from fairlane.config.keys import ENTRY, VARIABLE_PREFIX, Key, all_keys, find_key
from fairlane.config.problems import KEY_VARIABLES, ConfigurationWarning, Layer, did_you_mean
from fairlane.core.errors import ConfigurationError
from fairlane.core.json_answers import json_or

CONFIG_VARIABLE = "FAIRLANE_CONFIG"
HEADERS = "headers"

ENV_FILE = Path(".env")

PIPE_READ = "_FAIRLANE_ENV_PIPE"
"""Tells child processes which pipe ``.env`` their parent has read for them: few pipes can be read twice."""

ALIASES = {"FAIRLANE_REDIS_URL": "FAIRLANE_REDIS__URL"}
"""Names that users try first, and the names that they mean."""

# Kubernetes sets these in every pod of a namespace that has a service named fairlane-something.
_SERVICE_LINK = re.compile(r"_(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)\w*)=|_PORT=\w+://")


def process_environment() -> Mapping[str, str]:
    """This process's environment, completed by ``.env`` in the working directory. Nothing else reads it.

    A variable that the environment has under an alias is not read from ``.env``. See `env_file_variables`.
    Raises `ConfigurationError` if that file cannot be read.
    """
    environ = os.environ  # noqa: TID251  every entry point gets the environment from here
    spoken = {name for pair in ALIASES.items() if not environ.keys().isdisjoint(pair) for name in pair}
    below = {name: value for name, value in env_file_variables(environ).items() if name not in spoken}
    return ChainMap(environ, below) if below else environ


def child_environment(changes: Mapping[str, str | None]) -> dict[str, str]:
    """This process's environment with ``changes`` applied, for a child process; ``None`` removes a variable.

    A child inherits all that the user set, a worker's credentials among it.
    """
    merged: dict[str, str | None] = {**process_environment(), **mark_pipe(), **changes}
    return {name: value for name, value in merged.items() if value is not None}


def env_file_variables(environ: Mapping[str, str]) -> Mapping[str, str]:
    """The variables of ``.env``. It does not expand ``${NAME}`` in a value.

    A malformed line, or a ``.env`` that is neither file nor pipe, causes a `ConfigurationWarning`. Raises
    `ConfigurationError` if the file cannot be read.
    """
    place = str(ENV_FILE.absolute())
    if ENV_FILE.is_file():
        return _variables_in(place, _text(ENV_FILE))
    if ENV_FILE.is_fifo():
        return {} if environ.get(PIPE_READ) == place else _variables_in(place, _text_of_pipe(place))
    if ENV_FILE.exists() and not (ENV_FILE / "pyvenv.cfg").exists():
        _warn(f"{place} is ignored: it is neither a file nor a pipe")
    return {}


def mark_pipe() -> dict[str, str]:
    """The variable that keeps a child process from reading a pipe again; empty without a pipe."""
    return {PIPE_READ: str(ENV_FILE.absolute())} if ENV_FILE.is_fifo() else {}


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        problem, remedy = f"cannot be read: {error}", "Make it readable, in UTF-8, or remove it."
        raise ConfigurationError(str(ENV_FILE), str(path.absolute()), problem, remedy) from error


@cache
def _text_of_pipe(place: str) -> str:
    return _text(Path(place))


@cache
def _variables_in(place: str, text: str) -> Mapping[str, str]:
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
def _warn(text: str) -> None:
    """Warn once in a process."""
    warnings.warn(text, ConfigurationWarning, stacklevel=2)


def read_environment(environ: Mapping[str, str], from_file: Mapping[str, Any]) -> tuple[Layer, list[str]]:
    """The settings from variables, and a warning for each ``FAIRLANE_*`` variable that names no key.

    That is no error, since another program may use the variable. An empty variable counts as not set. A name
    of a connection, lane or team matches one in the file regardless of case and punctuation, since no
    variable is called ``openai:gpt-4o``. Another name becomes lower case, and a header's gets hyphens.
    """
    data: dict[str, Any] = {}
    unknown: list[str] = []
    for variable, value in _candidates(environ):
        path = _path_of(variable, from_file)
        key = find_key(path)
        if key is None:
            unknown.append(variable)
        elif value:
            _put(data, path, _parsed(key, value))
    keep_keys = _credential_variables(from_file) | _credential_variables(data)
    warnings = [_unknown(variable) for variable in unknown if variable not in keep_keys]
    warnings += [
        f"{alias} is ignored, since {name} has another value: unset one of them"
        for alias, name in ALIASES.items()
        if environ.get(alias) and environ.get(name) not in (None, "", environ[alias])
    ]
    return Layer("the environment", data), warnings


def _candidates(environ: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    named = {name: value for name, value in environ.items() if name.startswith(VARIABLE_PREFIX)}
    for alias, name in ALIASES.items():
        if alias in named:
            value = named.pop(alias)
            named[name] = named.get(name) or value
    named.pop(CONFIG_VARIABLE, None)
    return ((name, value) for name, value in named.items() if not _SERVICE_LINK.search(f"{name}={value}"))


def _path_of(variable: str, from_file: Mapping[str, Any]) -> list[str]:
    path = variable.removeprefix(VARIABLE_PREFIX).lower().split("__")
    key = find_key(path)
    below: Any = from_file
    for place, part in enumerate(key.path if key else ()):
        names = below if isinstance(below, Mapping) else {}
        if part == ENTRY:
            path[place] = _as_in_file(path[place], names, header=path[place - 1] == HEADERS)
        below = names.get(path[place])
    return path


def _as_in_file(word: str, names: Iterable[str], *, header: bool) -> str:
    found = next((name for name in names if _folded(name) == _folded(word)), None)
    return found or (word.replace("_", "-") if header else word)


def _folded(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "_", name.lower())


def _parsed(key: Key, value: str) -> Any:
    if get_origin(key.field.annotation) is tuple:
        if (listed := _json_list(value)) is not None:
            return listed
        return [part.strip() for part in value.split(",") if part.strip()]
    return value


def _json_list(value: str) -> list[Any] | None:
    """The elements of ``["a", "b"]``, as other programs take lists; ``None`` for anything else."""
    found = json_or(value) if value.lstrip().startswith("[") else None
    return found if isinstance(found, list) else None


def _put(data: dict[str, Any], path: list[str], value: Any) -> None:
    for part in path[:-1]:
        data = data.setdefault(part, {})
    data[path[-1]] = value


def _credential_variables(data: Mapping[str, Any]) -> set[str]:
    """Variables that hold a connection's secrets may begin with our prefix too."""
    connections = data.get("connections")
    entries = connections.values() if isinstance(connections, Mapping) else ()
    return {
        str(entry[name])
        for entry in entries
        for name in KEY_VARIABLES
        if isinstance(entry, Mapping) and name in entry
    }


def _with_names_of(variable: str, known: str) -> str:
    """The variable ``known`` with the user's names of ``variable`` in place of `ENTRY`."""
    parts, given = known.split("__"), variable.split("__")
    return "__".join(
        given[place] if part == ENTRY.upper() and place < len(given) else part
        for place, part in enumerate(parts)
    )


def _unknown(variable: str) -> str:
    known = {CONFIG_VARIABLE, *(_with_names_of(variable, key.variable) for key in all_keys())}
    near = did_you_mean(variable, known, prefix=VARIABLE_PREFIX)
    remedy = near or "sections and keys are joined by two underscores, as in FAIRLANE_REDIS__URL"
    return f"{variable} is ignored: there is no such setting; {remedy}"
