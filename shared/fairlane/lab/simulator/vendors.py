"""Settings that make a simulated model limit, charge and report as a known provider does."""

from collections.abc import Mapping
from typing import Any

OUTPUT_FACTOR_OF_BEDROCK = 5.0
"""Tokens of the quota that an output token of Anthropic's later models costs (Bedrock's guide, "How tokens
are counted")."""

_REPORTED = {"headers": "full"}
_SILENT = {"headers": "none"}

VENDORS: Mapping[str, Mapping[str, Any]] = {
    "openai": _REPORTED,
    "azure_openai": {
        **_REPORTED,
        "header_style": "azure",
        "charge": "reserved",
        "shape": "window",
        "window_seconds": 10.0,
        "token_window_seconds": 60.0,
    },
    "bedrock": {**_SILENT, "charge": "reserved", "output_factor": OUTPUT_FACTOR_OF_BEDROCK},
    "gemini": {**_REPORTED, "shape": "window"},
    "vertex": {**_SILENT, "shape": "window"},
    "anthropic": {**_REPORTED, "acceleration": 4.0},
    "xai": {**_REPORTED, "header_style": "xai", "shape": "second", "token_shape": "window"},
    "groq": {**_REPORTED, "header_style": "groq"},
    "deepseek": {**_SILENT, "keep_alive": True},
    "qwen": _SILENT,
    "ollama": {**_SILENT, "concurrency_status": 503},
    "fireworks": {**_REPORTED, "header_style": "fireworks", "shrink_on_overrun": 0.5},
    "mistral": {**_REPORTED, "header_style": "mistral", "shape": "window"},
    "together": {**_REPORTED, "header_style": "together", "initial_share": 0.25, "concurrency_status": 503},
    "lepton": _SILENT,
    "cerebras": {**_REPORTED, "header_style": "cerebras", "charge": "reserved"},
    "replicate": {"headers": "retry_after"},
    "baseten": _SILENT,
    "openrouter": {"headers": "retry_after", "keep_alive": True},
    "vllm": {**_SILENT, "concurrency_status": 503},
}
"""Fields of `SimulatedModel`, by provider; the configuration sets the limits themselves."""
