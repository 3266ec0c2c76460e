"""How each provider limits and tells of it, as a model of the simulated provider can be asked to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

OUTPUT_FACTOR_OF_BEDROCK = 5.0
"""What an output token of Anthropic's later models costs of a quota (Bedrock's guide, "How tokens are
counted")."""

_TOLD = {"headers": "full"}
_SILENT = {"headers": "none"}

VENDORS: Mapping[str, Mapping[str, Any]] = {
    "openai": _TOLD,
    "azure_openai": {
        **_TOLD,
        "header_style": "azure",
        "charge": "reserved",
        "shape": "window",
        "window_seconds": 10.0,
        "token_window_seconds": 60.0,
    },
    "bedrock": {**_SILENT, "charge": "reserved", "output_factor": OUTPUT_FACTOR_OF_BEDROCK},
    "gemini": {**_TOLD, "shape": "window"},
    "vertex": {**_SILENT, "shape": "window"},
    "anthropic": {**_TOLD, "acceleration": 4.0},
    "xai": {**_TOLD, "header_style": "xai", "shape": "second", "token_shape": "window"},
    "groq": {**_TOLD, "header_style": "groq"},
    "deepseek": {**_SILENT, "keep_alive": True},
    "qwen": _SILENT,
    "ollama": {**_SILENT, "concurrency_status": 503},
    "fireworks": {**_TOLD, "header_style": "fireworks", "shrink_on_overrun": 0.5},
    "mistral": {**_TOLD, "header_style": "mistral", "shape": "window"},
    "together": {**_TOLD, "header_style": "together", "initial_share": 0.25, "concurrency_status": 503},
    "lepton": _SILENT,
    "cerebras": {**_TOLD, "header_style": "cerebras", "charge": "reserved"},
    "replicate": {"headers": "retry_after"},
    "baseten": _SILENT,
    "openrouter": {"headers": "retry_after", "keep_alive": True},
    "vllm": {**_SILENT, "concurrency_status": 503},
}
"""Fields of `SimulatedModel`, by provider; the limits themselves are the model's own."""
