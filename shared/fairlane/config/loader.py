"""Reads `Settings` once, at an entry point: ``fairlane.toml``, then ``FAIRLANE_*``, then arguments."""

import codecs
import os
import re
import tomllib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from fairlane.config.environment import CONFIG_VARIABLE, process_environment, read_environment
from fairlane.config.problems import (
    ConfigurationWarning,
    Layer,
    Problem,
    did_you_mean,
    dotted,
    from_validation,
    origin_of,
    raise_all,
    unknown_key,
)
from fairlane.config.settings import Settings, WorkerSecrets
from fairlane.core.errors import ConfigurationError
from fairlane.core.paths import FORBIDDEN, MISSING, at_home, unreadable
from fairlane.model.lane import FUNCTIONS, endpoint_id

DEFAULT_FILE = Path("fairlane.toml")
_OF_PATTERNS = frozenset("*?")
_UTF_16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)


def load_settings(
    path: Path | None = None, environ: Mapping[str, str] | None = None, **overrides: Any
) -> Settings:
    """The settings in force.

    The file is ``path``, else what ``FAIRLANE_CONFIG`` names, else ``fairlane.toml`` in the working directory
    if there is one. ``overrides`` are sections or top-level keys (``redis={"url": …}``) and win over all;
    ``None`` in them means "not given". ``environ`` defaults to the process's environment.

    Raises `ConfigurationError` that lists every mistake at once. A ``FAIRLANE_*`` variable that
    names no setting is a `ConfigurationWarning`.
    """
    variables = process_environment() if environ is None else environ
    file, layers, ignored = _read_layers(path, variables, overrides)
    problems: list[Problem] = []
    settings = _validate(layers, file, problems)
    for each in ignored:
        warnings.warn(each, ConfigurationWarning, stacklevel=2)
    raise_all(problems)
    return settings


def read_layers(path: Path | None = None, **overrides: Any) -> tuple[Layer, ...]:
    """The sources that `load_settings` reads, highest precedence first. Raises `ConfigurationError`."""
    return _read_layers(path, process_environment(), overrides)[1]


def _read_layers(
    path: Path | None, variables: Mapping[str, str], overrides: Mapping[str, Any]
) -> tuple[Path | None, tuple[Layer, ...], list[str]]:
    file = _find_file(path, variables)
    from_file = Layer(str(file or DEFAULT_FILE), _read_file(file) if file else {})
    from_environment, ignored = read_environment(variables, from_file.data)
    return file, (Layer("the arguments", _given(overrides)), from_environment, from_file), ignored


def load_secrets(settings: Settings, environ: Mapping[str, str] | None = None) -> WorkerSecrets:
    """The credentials in this process's environment; ``missing`` names those that it lacks.

    It reads no key file and runs no command: workers do that before they call.
    """
    variables = process_environment() if environ is None else environ
    places = {name: place for name, c in settings.connections.items() if (place := c.key_place)}
    keys = {name: place.name for name, place in places.items() if not place.changes}
    proxies = {name: c.proxy_credentials_env for name, c in settings.connections.items()}
    return WorkerSecrets.model_validate(
        {
            "keys": _values(keys, variables),
            "proxies": _values(proxies, variables),
            "missing": {name: place.name for name, place in places.items() if place.is_missing(variables)},
        }
    )


def _values(named: Mapping[str, str | None], variables: Mapping[str, str]) -> dict[str, str]:
    """The values of variables by connection, of those that are set."""
    found = {name: variables.get(variable or "", "").strip() for name, variable in named.items()}
    return {name: value for name, value in found.items() if value}


def _find_file(path: Path | None, environ: Mapping[str, str]) -> Path | None:
    named = environ.get(CONFIG_VARIABLE)
    chosen, asked_by = (path, "--config") if path else (Path(named), CONFIG_VARIABLE) if named else (None, "")
    if chosen is None and (DEFAULT_FILE.is_file() or not os.path.lexists(DEFAULT_FILE)):
        return DEFAULT_FILE.absolute() if DEFAULT_FILE.is_file() else None
    # A folder of that name is what containers make of a missing file.
    chosen, asked_by = chosen or DEFAULT_FILE, asked_by or DEFAULT_FILE.name
    file = at_home(chosen).absolute()
    problem = unreadable(file)
    if problem == FORBIDDEN:
        remedy = "Let this user read the file and its folder."
        raise ConfigurationError(asked_by, str(chosen), problem, remedy)
    if problem:
        problem = "there is no such file" if problem == MISSING else problem
        raise ConfigurationError(asked_by, str(chosen), problem, "Name an existing TOML file.")
    return file


def _read_file(file: Path) -> dict[str, Any]:
    try:
        text = file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        known = "UTF-16, not UTF-8" if error.object.startswith(_UTF_16) else "not UTF-8"
        raise ConfigurationError(file.name, str(file), f"is {known}", "Save it as UTF-8.") from error
    except OSError as error:
        problem = f"cannot be read: {error.strerror or error}"
        raise ConfigurationError(file.name, str(file), problem, "Make it readable.") from error
    try:
        return tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        line, problem = _broken_line(text, str(error)), f"is not TOML: {error}"
        raise ConfigurationError(str(file), line, problem, "Texts need quotes.") from error


def _broken_line(text: str, message: str) -> str:
    """The line at fault up to its "=", since what follows may be a secret."""
    line = re.search(r"line (\d+)", message)
    lines = text.splitlines() or [""]
    return lines[min(int(line[1]), len(lines)) - 1 if line else -1].partition("=")[0].strip()


def _given(overrides: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: _given(value) if isinstance(value, Mapping) else value
        for name, value in overrides.items()
        if value is not None
    }


def _merged(low: Mapping[str, Any], high: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(low)
    for name, value in high.items():
        below = merged.get(name)
        if isinstance(below, Mapping) and isinstance(value, Mapping):
            value = _merged(below, value)
        merged[name] = value
    return merged


def _validate(layers: Sequence[Layer], file: Path | None, problems: list[Problem]) -> Settings:
    """The settings of the layers, the first of which wins. Adds mistakes to ``problems``."""
    data: dict[str, Any] = {}
    for layer in reversed(layers):
        data = _merged(data, layer.data)
    if "config_file" in data:
        problems.append(unknown_key(["config_file"], layers[-1].origin))
    data["config_file"] = str(file) if file else None
    try:
        settings = Settings.model_validate(data)
    except ValidationError as error:
        problems.extend(from_validation(error, layers))
        return Settings()
    problems.extend(_contradictions(settings, layers))
    return settings


def _contradictions(settings: Settings, layers: Sequence[Layer]) -> Iterator[Problem]:
    """Mistakes across sections: reserved names, lanes without a connection, times under two heartbeats."""
    if FUNCTIONS in settings.connections:
        remedy = "Choose another name: python:<function> names functions on the workers."
        yield Problem(dotted(["connections", FUNCTIONS]), FUNCTIONS, "this name is reserved", remedy)
    for lane in settings.lanes:
        yield from _lane_problems(settings, ["lanes", lane], lane, layers)
    for lane in settings.worker.lanes:
        if not _fits(settings, lane):
            yield from _lane_problems(settings, ["worker", "lanes"], lane, layers)
    yield from _beat_problems(settings)


def _lane_problems(
    settings: Settings, path: list[str], lane: str, layers: Sequence[Layer]
) -> Iterator[Problem]:
    field, origin = dotted(path), origin_of(path, layers)
    name, separator, model = lane.partition(":")
    if name == FUNCTIONS and model.strip():
        return
    connection = settings.connections.get(name)
    if connection is not None and set(model) & _OF_PATTERNS:
        remedy = f'Name a lane for each model, or write connections.{name}.lane_scope = "connection".'
        yield Problem(field, lane, f"a lane's name is no pattern, in {origin}", remedy)
        return
    if lane in _endpoints(settings):
        return
    if connection is None:
        known = ", ".join(settings.connections) or "none"
        near = did_you_mean(name, settings.connections) or f"configured connections: {known}."
        remedy = f"A lane begins with its connection's name: {near}"
        yield Problem(field, lane, f"there is no connection {name!r}, in {origin}", remedy)
    elif connection.scope == "connection" and separator:
        remedy = f'Write "{name}" alone, or set connections.{name}.lane_scope = "model".'
        yield Problem(field, lane, f"all models of {name!r} share one lane, in {origin}", remedy)
    elif connection.scope == "model" and not model.strip():
        remedy = f'Write "{name}:<model>", or set connections.{name}.lane_scope = "connection".'
        yield Problem(field, lane, f"each model of {name!r} has a lane of its own, in {origin}", remedy)
    elif connection.scope == "endpoint":
        remedy = f'Write "{endpoint_id(connection.base_url)}".'
        yield Problem(field, lane, f"the lane of {name!r} is its server's, in {origin}", remedy)


def _fits(settings: Settings, pattern: str) -> bool:
    """Whether a pattern of `worker.lanes` matches lanes that may exist; false for a plain name."""
    if not set(pattern) & _OF_PATTERNS:
        return False
    whole = {
        *_endpoints(settings),
        *(name for name, c in settings.connections.items() if c.scope == "connection"),
    }
    if any(fnmatchcase(lane, pattern) for lane in whole):
        return True
    begun = [f"{name}:" for name, c in settings.connections.items() if c.scope == "model"]
    return any(_may_begin(pattern, start) for start in (*begun, f"{FUNCTIONS}:"))


def _may_begin(pattern: str, start: str) -> bool:
    """Whether a pattern fits a longer text that begins with ``start``."""
    heads = (pattern[:end] for end in range(1, len(pattern) + 1))
    return any(fnmatchcase(start, head) and (head != pattern or head.endswith("*")) for head in heads)


def _endpoints(settings: Settings) -> set[str]:
    """Lanes of servers, which belong to no single connection."""
    known = settings.connections.values()
    return {endpoint_id(connection.base_url) for connection in known if connection.scope == "endpoint"}


def _beat_problems(settings: Settings) -> Iterator[Problem]:
    """Intervals must let a worker miss one heartbeat."""
    least = 2 * settings.worker.beat_seconds
    limits = {
        "scheduler.worker_timeout_seconds": settings.scheduler.worker_timeout_seconds,
        "scheduler.lease_seconds": settings.scheduler.lease_seconds,
    }
    for field, limit in limits.items():
        if limit < least:
            remedy = f"Raise it to {least:g} or more, or lower worker.beat_seconds."
            yield Problem(field, limit, "is less than two beats of a worker", remedy)
