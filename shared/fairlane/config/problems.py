"""Turns mistakes in a configuration into messages for the person who wrote it."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any, NamedTuple

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from fairlane.config.connections.key_place import KEY_FIELDS
from fairlane.config.keys import Key, all_keys, entry_key, entry_model, find_key, names_below
from fairlane.core.errors import ConfigurationError
from fairlane.core.redaction import MASK, mask_value, shown_url
from fairlane.core.section import SERVER_URLS, in_words

KEY_VARIABLES = ("api_key_env", "proxy_credentials_env")
"""Fields of a connection that name the variable of a secret."""


class ConfigurationWarning(UserWarning):
    """Something in the configuration has no effect, probably by mistake."""


class Problem(NamedTuple):
    """One mistake, with the fields of `ConfigurationError`."""

    field: str
    value: object
    problem: str
    remedy: str


class Layer(NamedTuple):
    """Settings from one source, and its name for messages."""

    origin: str
    data: Mapping[str, Any]


def raise_all(problems: Sequence[Problem]) -> None:
    """Raise a `ConfigurationError` for the first problem; it lists the others. No problem: do nothing."""
    if not problems:
        return
    first, *others = problems
    more = "".join(f"\n{ConfigurationError(*other)}" for other in others)
    raise ConfigurationError(first.field, first.value, first.problem, first.remedy + more)


def dotted(path: Iterable[object]) -> str:
    """A path as TOML writes it: ``lanes."openai:gpt-4o".min_gap_ms``."""
    parts = (str(part) for part in path)
    return ".".join(part if re.fullmatch(r"[\w-]+", part, re.ASCII) else json.dumps(part) for part in parts)


def did_you_mean(word: str, candidates: Iterable[str], prefix: str = "") -> str:
    """``"did you mean 'x'?"`` for the nearest candidate; empty where none is near.

    A ``prefix`` that all have in common does not count as likeness; nor does case as difference.
    """
    by_likeness = {candidate.removeprefix(prefix).lower(): candidate for candidate in candidates}
    near = get_close_matches(word.removeprefix(prefix).lower(), by_likeness, n=1)
    return f"did you mean {by_likeness[near[0]]!r}?" if near else ""


def unknown_key(path: Sequence[str], origin: str) -> Problem:
    """A key that does not exist. Its value is not shown: it may be a secret put in a wrong place."""
    *parent, name = path
    table = entry_model(parent)
    siblings = sorted(table.model_fields) if table else names_below(parent)
    suggestion = did_you_mean(name, siblings) or _in_another_section(name)
    if suggestion:
        remedy = f"There is no such key: {suggestion}"
    else:
        remedy = f"There is no such key; known here: {', '.join(siblings)}."
    return Problem(_place(path), name, f"unknown key in {origin}", remedy)


def from_validation(error: ValidationError, layers: Sequence[Layer]) -> list[Problem]:
    """Each error of the models as a problem that says which layer it came from."""
    return [_from_detail(detail, layers) for detail in error.errors(include_url=False)]


def _from_detail(detail: ErrorDetails, layers: Sequence[Layer]) -> Problem:
    path = [str(part) for part in detail["loc"] if part != "[key]"]
    origin = origin_of(path, layers)
    kind = detail["type"]
    if kind == "extra_forbidden":
        return unknown_key(path, origin)
    if kind == "mistake":
        context = detail.get("ctx", {})
        problem = f"{context['problem']}, in {origin}"
        return Problem(_place(path), _shown(path[-1], detail["input"]), problem, context["remedy"])
    key = find_key(path) or find_key(path[:-1]) or entry_key(path)
    if kind == "missing":
        return Problem(_place(path), None, f"is missing in {origin}", f"Add it. {_meaning(key)}".strip())
    if "[key]" in detail["loc"]:
        return Problem(
            dotted(path),
            path[-1],
            f"is not a name that can be used, in {origin}",
            "Use letters, digits, _ and -.",
        )
    if key is None:
        remedy = f"Write it as a section, [{dotted(path)}], with its keys below."
        return Problem(dotted(path), detail["input"], f"must be a section, in {origin}", remedy)
    said = re.sub(r"a valid dictionary or instance of \w+", "a table", in_words(detail))
    return Problem(_place(path), _shown(path[-1], detail["input"]), f"{said}, in {origin}", _meaning(key))


def _place(path: Sequence[str]) -> str:
    """A path as TOML writes it, with the number of a table in a list: ``teams.a.budgets, table 2: per``."""
    for end in range(1, len(path) + 1):
        if entry_model(path[:end]):
            within = f": {dotted(path[end:])}" if path[end:] else ""
            return f"{dotted(path[: end - 1])}, table {int(path[end - 1]) + 1}{within}"
    return dotted(path)


def _meaning(key: Key | None) -> str:
    if key is None:
        return ""
    required = key.field.is_required() or key.field.default_factory
    default = None if required else key.field.default
    return f"{key.description}{'' if default is None else f' Default: {json.dumps(default)}.'}"


def _shown(name: str, value: object) -> object:
    # A key that was pasted where the name of its variable belongs must not reach a terminal or a log.
    if name in SERVER_URLS and isinstance(value, str):
        return shown_url(value)
    return MASK if name in (*KEY_VARIABLES, *KEY_FIELDS) else mask_value(name, value)


def origin_of(path: Sequence[str], layers: Sequence[Layer]) -> str:
    """The source of the value at ``path``; ``layers`` are in order of precedence."""
    return max(layers, key=lambda layer: depth_of(path, layer.data)).origin


def depth_of(path: Sequence[str], data: object) -> int:
    """How many parts of ``path`` lead into ``data``."""
    for depth, part in enumerate(path):
        if not isinstance(data, Mapping) or part not in data:
            return depth
        data = data[part]
    return len(path)


def _in_another_section(name: str) -> str:
    home = next((".".join(key.path) for key in all_keys() if key.path[-1] == name), None)
    return f"did you mean {home!r}?" if home else ""
