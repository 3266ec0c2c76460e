"""LiteLLM loads hundreds of modules with its first call; a worker does that before it calls a provider."""

from __future__ import annotations

import subprocess
import sys

import pytest

FIRST_CALL = """
import asyncio, sys
from pydantic import SecretStr
from fairlane.core.clock import SystemClock
from fairlane.model.outcome import Success
from fairlane.testing import SimulatorConfig, serve_in_thread
from fairlane_workers.providers.registry import build_provider
from tests.contract.test_provider_litellm import KEY, ask, connection

async def first_call(url):
    provider = build_provider("c", connection(url), SecretStr(KEY), clock=SystemClock())
    await provider.prepare()
    before = set(sys.modules)
    outcome = await provider.call(ask())
    assert isinstance(outcome, Success), outcome
    await provider.aclose()
    return {name.partition(".")[0] for name in set(sys.modules) - before}

config = SimulatorConfig.model_validate({"models": {"m-1": {"latency_ms": 1.0}}, "api_key": KEY})
with serve_in_thread(config) as served:
    print("loaded:", sorted(asyncio.run(first_call(served.url)) & {"litellm", "openai"}))
"""


@pytest.mark.slow(seconds=20)
def test_the_first_call_loads_nothing_of_it_on_the_event_loop() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", FIRST_CALL], capture_output=True, text=True, timeout=120, check=False
    )
    assert ended.stdout.splitlines()[-1:] == ["loaded: []"], ended.stderr
