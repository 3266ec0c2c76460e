"""Minimal connections to all providers that have a preset."""

from __future__ import annotations

from typing import Any

from fairlane.config.connections.connection import Connection
from fairlane.config.connections.presets import preset_of

PLACES = {"region": "us-east-1", "project": "my-project"}


def connection(name: str, **given: Any) -> Connection:
    """A minimal connection to a provider; ``given`` overrides its settings."""
    preset = preset_of(name)
    assert preset is not None, name
    needed: dict[str, Any] = {place: PLACES[place] for place in preset.address_fields}
    if preset.base_url is None:
        needed["base_url"] = preset.example
    return Connection.model_validate({"provider": name, **needed, **given})
