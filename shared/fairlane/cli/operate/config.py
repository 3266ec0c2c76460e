"""``fairlane config``: the settings in force, and where each comes from."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

import typer
from pydantic import BaseModel

from fairlane.cli.invocation import Invocation, JsonOption, with_settings
from fairlane.cli.output import emit, print_table, say
from fairlane.config.keys import find_key, variable_name
from fairlane.config.problems import Layer, depth_of, dotted
from fairlane.config.settings import Settings
from fairlane.core.redaction import MASK, mask_value, shown_url
from fairlane.core.section import SERVER_URLS

app = typer.Typer()


@app.command()
@with_settings
def config(
    invocation: Invocation,
    prefix: Annotated[
        str, typer.Argument(metavar="KEY", help="Only keys that begin with this, such as redis.")
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
        say(f"no setting begins with {prefix!r}" if prefix else "all settings have their defaults")
    documents = [each._asdict() for each in found]
    emit(
        documents,
        lambda: print_table(("key", "value", "source"), map(_row, found)) if found else None,
        as_json=as_json,
    )


def _row(setting: Effective) -> tuple[str, str, str]:
    value = setting.value
    return setting.key, "–" if value is None else json.dumps(value, ensure_ascii=False), setting.source


DEFAULT, PRESET = "default", "preset"


class Effective(NamedTuple):
    """A setting: its key as TOML writes it, its value without secrets, its source, and its variable."""

    key: str
    value: Any
    source: str
    variable: str | None


def effective(settings: Settings, layers: Sequence[Layer]) -> Iterator[Effective]:
    """Each setting of ``settings``, which `load_settings` made of ``layers``.

    The source is the layer that sets it, "preset" for a value of a connection's provider, or "default".
    """
    for path, value, stated in _walk(settings, ()):
        layer = next((each.origin for each in layers if depth_of(path, each.data) == len(path)), None)
        source = layer or (PRESET if stated and path[0] == "connections" else DEFAULT)
        key = find_key(path)
        yield Effective(
            dotted(path), _shown(path[-1], value), source, variable_name(path) if key is not None else None
        )


def _walk(section: BaseModel, above: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any, bool]]:
    for name in type(section).model_fields:
        if not above and name == "config_file":
            continue
        value, path = getattr(section, name), (*above, name)
        if isinstance(value, BaseModel):
            yield from _walk(value, path)
        elif isinstance(value, Mapping) and any(isinstance(each, BaseModel) for each in value.values()):
            for entry, inside in value.items():
                yield from _walk(inside, (*path, str(entry)))
        else:
            yield path, value, name in section.model_fields_set


def _shown(name: str, value: Any) -> Any:
    """A value ready for JSON, without secrets. The name of a key's variable is not secret."""
    if isinstance(value, BaseModel):
        return {field: _shown(field, inner) for field, inner in value}
    if name == "api_key_command":  # its arguments may hold a key
        return [*value[:1], *(MASK for _ in value[1:2])]
    if isinstance(value, (list, tuple)):
        return [_shown(name, each) for each in value]
    if name.endswith("_env"):
        return value
    if name in SERVER_URLS and isinstance(value, str):
        return shown_url(value)
    masked = mask_value(name, value)
    return masked if isinstance(masked, (str, int, float, bool, dict, list, type(None))) else str(masked)
