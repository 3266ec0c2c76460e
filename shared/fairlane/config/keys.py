"""All keys of the configuration, as a flat list from the settings models."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from types import UnionType
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from fairlane.config.settings import Settings
from fairlane.core.section import descriptions

ENTRY = "<name>"
"""Placeholder in a path for the name that a user gives to a connection, a lane or a team."""

VARIABLE_PREFIX = "FAIRLANE_"

_SET_BY_THE_LOADER = frozenset({"config_file"})


@dataclass(frozen=True, slots=True)
class Key:
    """One setting: its path, its field, and its section (a settings model)."""

    path: tuple[str, ...]
    field: FieldInfo
    section: type[BaseModel]

    @property
    def table(self) -> tuple[str, ...]:
        """The path of the section."""
        return self.path[: -2 if self.path[-1] == ENTRY else -1]

    @property
    def name(self) -> str:
        """What it is called in its section: ``url``, or ``headers.<name>`` where users choose the names."""
        return ".".join(self.path[len(self.table) :])

    @property
    def description(self) -> str:
        """What it does, on one line."""
        return descriptions(self.section).get(self.path[len(self.table)], "")

    @property
    def variable(self) -> str:
        """The environment variable that overrides it."""
        return variable_name(self.path)

    def covers(self, path: Sequence[str]) -> bool:
        """Whether ``path`` is this key, or the beginning of it."""
        return len(path) <= len(self.path) and all(
            known in (ENTRY, part) for known, part in zip(self.path, path, strict=False)
        )


@cache
def all_keys() -> tuple[Key, ...]:
    """Every key, in the order of the models."""
    return tuple(_walk(Settings, ()))


def find_key(path: Sequence[str]) -> Key | None:
    """The key at exactly ``path``, if there is one."""
    return next((key for key in all_keys() if len(key.path) == len(path) and key.covers(path)), None)


def names_below(parent: Sequence[str]) -> list[str]:
    """The names that may stand directly below ``parent``; none where users choose the names."""
    depth = len(parent)
    found = {key.path[depth] for key in all_keys() if len(key.path) > depth and key.covers(parent)}
    return sorted(found - {ENTRY})


def entry_key(path: Sequence[str]) -> Key | None:
    """The field at ``path`` inside one of a list of tables: ``teams.search.budgets.1.per``."""
    *parent, name = path
    model = entry_model(parent)
    field = model.model_fields.get(name) if model else None
    return Key(tuple(path), field, model) if model and field else None


def entry_model(path: Sequence[str]) -> type[BaseModel] | None:
    """The model of the table at ``path`` in a list of tables, such as ``teams.search.budgets.1``."""
    key = find_key(path[:-1]) if path and path[-1].isdigit() else None
    kind = next(iter(get_args(key.field.annotation)), None) if key else None
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def variable_name(path: Sequence[str]) -> str:
    """``("redis", "url")`` → ``"FAIRLANE_REDIS__URL"``."""
    return VARIABLE_PREFIX + "__".join(path).upper()


def _section_in(kind: Any) -> type[BaseModel] | None:
    """The model of a field that is a table, also of an optional one; else ``None``."""
    options = get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)
    found = (option for option in options if isinstance(option, type) and issubclass(option, BaseModel))
    return next(found, None)


def _walk(model: type[BaseModel], parent: tuple[str, ...]) -> Iterator[Key]:
    for name, field in model.model_fields.items():
        path = (*parent, name)
        kind = field.annotation
        if get_origin(kind) is dict:
            entry = get_args(kind)[1]
            if isinstance(entry, type) and issubclass(entry, BaseModel):
                yield from _walk(entry, (*path, ENTRY))
            else:
                yield Key((*path, ENTRY), field, model)
        elif section := _section_in(kind):
            yield from _walk(section, path)
        elif name not in _SET_BY_THE_LOADER:
            yield Key(path, field, model)
