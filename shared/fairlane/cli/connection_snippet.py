"""The lines of ``fairlane.toml`` that make a connection to a known provider."""

from __future__ import annotations

import json
from collections.abc import Iterator

from fairlane.configuration.problems import dotted
from fairlane.connection_checks import example_of
from fairlane.presets import Preset


def snippet(provider: str, preset: Preset, name: str) -> str:
    """Valid TOML; what the provider's preset says already stands in comments."""
    return "\n".join(_lines(provider, preset, name))


def _lines(provider: str, preset: Preset, name: str) -> Iterator[str]:
    yield f"[{dotted(['connections', name])}]"
    yield f"provider = {json.dumps(provider)}"
    if preset.base_url is None:
        yield f"base_url = {json.dumps(preset.example)}    # yours"
    for place in preset.places:
        yield f"{place} = {json.dumps(example_of(provider, place))}    # yours"
    known = {"base_url": preset.base_url, "api_key_env": preset.api_key_env}
    for field, value in known.items():
        if value is not None:
            yield f"# {field} = {json.dumps(value)}"
