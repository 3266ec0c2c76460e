"""Rejects parameters as models do that do not support them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fairlane.lab.simulator.config import SimulatedModel
from fairlane.lab.simulator.wire.dialect import Dialect, Problem

REASONING: Mapping[str, Any] = {
    "temperature": 1,
    "top_p": 1,
    "presence_penalty": 0,
    "frequency_penalty": 0,
    "logprobs": False,
    "top_logprobs": 0,
    "logit_bias": {},
    "max_tokens": None,
}
"""Parameters that reasoning models reject, and the one value of each that they accept (OpenAI's guide to
reasoning models, "Parameter compatibility"; Anthropic's migration guide for Claude Opus 4.7)."""


def rejected_parameter(model: SimulatedModel, dialect: Dialect, payload: Mapping[str, Any]) -> Problem | None:
    """The rejection of a request's first parameter that ``model`` does not support, or ``None``."""
    for name, value in dialect.parameters(payload).items():
        if value is None:
            continue
        if name in model.rejects or (model.reasoning and name in REASONING and value != REASONING[name]):
            return dialect.unsupported(name, value)
    return None
