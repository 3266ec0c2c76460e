"""A worker that did not run while a call's time ended, since its machine or process stood still."""

from __future__ import annotations

import asyncio
import threading

from fairlane.model.outcome import Outcome, Success, TimedOut
from fairlane.testing import SimulatedModel, SimulatorConfig, serve_in_thread
from tests.support.provider_calls import ask, provider_of, streamed_or_not
from tests.support.wires import WIRES

TIMEOUT_S, STILL_FROM_S, STILL_S = 0.4, 0.05, 0.8


def called(latency_ms: float, *, stream: bool) -> Outcome:
    """How a call ends whose worker stands still from soon after it has sent it until its time is over."""

    async def scenario(url: str) -> Outcome:
        wire = next(wire for wire in WIRES if wire.protocol == "openai")
        async with provider_of(wire, url, base_url=f"{url}/v1") as provider:
            asyncio.get_running_loop().call_later(STILL_FROM_S, threading.Event().wait, STILL_S)
            return await provider.call(ask(stream=stream, timeout_s=TIMEOUT_S))

    config = SimulatorConfig(models={"m-1": SimulatedModel(latency_ms=latency_ms)})
    with serve_in_thread(config) as served:
        return asyncio.run(scenario(served.base_url.removesuffix("/v1")))


@streamed_or_not
def test_an_answer_that_came_meanwhile_counts(stream: bool) -> None:
    assert isinstance(called(150, stream=stream), Success)


@streamed_or_not
def test_a_call_without_an_answer_ends_at_its_timeout(stream: bool) -> None:
    assert isinstance(called(60_000, stream=stream), TimedOut)
