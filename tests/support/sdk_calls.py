"""Calls that the suites of the official SDKs make to the simulated provider, over real HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pydantic import BaseModel

from fairlane.testing import ServedProvider, SimulatorConfig, serve_in_thread

KEY = "sk-live-0123456789abcdef"
MODEL = "m-1"
QUESTION: Any = [{"role": "user", "content": "four words of text"}]
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
FUNCTION: dict[str, Any] = {"name": "forecast", "description": "Tells the weather.", "parameters": SCHEMA}
TOOLS: Any = [{"type": "function", "function": FUNCTION}]


class Forecast(BaseModel):
    """The type that `SCHEMA` describes."""

    city: str
    days: int


@contextmanager
def simulated(**model: Any) -> Iterator[ServedProvider]:
    """A provider that demands `KEY`. Its one model echoes the question unless ``model`` is given."""
    settings = {"latency_ms": 1.0, "output": "echo", **model}
    config = SimulatorConfig.model_validate({"models": {MODEL: settings}, "api_key": KEY})
    with serve_in_thread(config) as served:
        yield served
