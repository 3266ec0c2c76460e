"""Where the simulated provider is found by a connection of each protocol."""

from __future__ import annotations

from collections.abc import Mapping

_DEFAULT = "/v1"
_PATHS: Mapping[str, str] = {
    "azure_openai": "",
    "bedrock": "",
    "gemini": "/v1beta",
    "http": "",
    "ollama": "",
    "vertex": "/v1/projects/simulated/locations/global",
}


def address_of(base_url: str, protocol: str) -> str:
    """What a connection's ``base_url`` takes; ``base_url`` is `SimulatedProvider.base_url`."""
    return base_url.removesuffix(_DEFAULT) + _PATHS.get(protocol, _DEFAULT)
