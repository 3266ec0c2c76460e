"""The simulated Replicate: predictions outlive requests, grow piece by piece, and can be cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest

from fairlane.testing import Faults, SimulatedModel, SimulatedProvider, SimulatorConfig

MODEL = SimulatedModel(output="fixed", fixed_text="one two three four", chunks=2, latency_ms=1000)


class Gate:
    """Time that passes only when a test advances it."""

    def __init__(self) -> None:
        self.steps: asyncio.Queue[None] = asyncio.Queue()
        self.asked = asyncio.Semaphore(0)

    async def __call__(self, _: float) -> None:
        self.asked.release()
        await self.steps.get()

    async def pass_one(self) -> None:
        await self.asked.acquire()
        self.steps.put_nowait(None)


Scene = Callable[[SimulatedProvider, httpx.AsyncClient, Gate], Awaitable[None]]


def play(scene: Scene, **changes: Any) -> None:
    async def run() -> None:
        model = MODEL.model_copy(update=changes)
        config = SimulatorConfig.model_validate({"models": {"org/m": model, "v1": model}, "api_key": "key-1"})
        gate = Gate()
        provider = SimulatedProvider(config, sleep=gate)
        await provider.start()
        headers = {"authorization": "Bearer key-1"}
        async with httpx.AsyncClient(base_url=provider.base_url, headers=headers) as client:
            await scene(provider, client, gate)
        await provider.stop()

    asyncio.run(run())


async def begin(client: httpx.AsyncClient, **given: Any) -> dict[str, Any]:
    reply = await client.post("/models/org/m/predictions", json={"input": {"prompt": "hi", **given}})
    assert reply.status_code == 201
    document: dict[str, Any] = reply.json()
    return document


async def look(client: httpx.AsyncClient, document: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = (await client.get(document["urls"]["get"])).json()
    return found


async def reach(client: httpx.AsyncClient, document: dict[str, Any], status: str) -> dict[str, Any]:
    """Poll until the prediction has this status: its task needs a turn of the loop or two."""
    for _ in range(50):
        found = await look(client, document)
        if found["status"] == status:
            return found
    raise AssertionError(f"{found['status']} instead of {status}")


def test_a_prediction_runs_by_itself_and_its_output_grows() -> None:
    async def scene(provider: SimulatedProvider, client: httpx.AsyncClient, gate: Gate) -> None:
        document = await begin(client, temperature=0)
        assert (document["status"], document["output"], document["model"]) == ("starting", None, "org/m")
        assert document["input"] == {"prompt": "hi", "temperature": 0}
        await gate.pass_one()
        await gate.asked.acquire()
        half = await look(client, document)
        assert (half["status"], half["output"]) == ("processing", ["one two t"])
        gate.steps.put_nowait(None)
        done = await reach(client, document, "succeeded")
        assert "".join(done["output"]) == "one two three four"
        assert done["metrics"]["input_token_count"] > 0
        assert done["metrics"]["output_token_count"] > 0
        assert done["completed_at"]
        stats = provider.stats()
        assert (stats.predictions.begun, stats.models["org/m"].completed) == (1, 1)
        assert stats.predictions.looked >= 2

    play(scene)


def test_a_cancelled_prediction_stops_and_counts_as_abandoned() -> None:
    async def scene(provider: SimulatedProvider, client: httpx.AsyncClient, gate: Gate) -> None:
        document = await begin(client)
        await gate.asked.acquire()
        for _ in range(2):  # a second cancellation changes nothing
            reply = await client.post(document["urls"]["cancel"])
            assert (reply.status_code, reply.json()["status"]) == (200, "canceled")
        assert (await look(client, document))["status"] == "canceled"
        stats = provider.stats()
        assert stats.predictions.cancelled == 1
        assert (stats.models["org/m"].abandoned, stats.models["org/m"].in_flight) == (1, 0)

    play(scene)


def test_a_prediction_reports_its_failure() -> None:
    async def scene(_: SimulatedProvider, client: httpx.AsyncClient, gate: Gate) -> None:
        document = await begin(client)
        await gate.pass_one()
        await gate.pass_one()
        failed = await reach(client, document, "failed")
        assert "please retry" in failed["error"]

    play(scene, faults=Faults(error_in_stream=1.0))


def test_max_concurrency_limits_running_predictions() -> None:
    async def scene(provider: SimulatedProvider, client: httpx.AsyncClient, gate: Gate) -> None:
        first, second = await begin(client), await begin(client)
        assert (await reach(client, first, "processing"))["started_at"]
        assert (await look(client, second))["status"] == "starting"
        rejected = await client.post("/models/org/m/predictions", json={"input": {"prompt": "x"}})
        assert rejected.status_code == 429
        assert "throttled" in rejected.json()["detail"]
        assert int(rejected.headers["retry-after"]) >= 1

    play(scene, max_concurrency=1, queue=1, headers="retry_after")


@pytest.mark.parametrize(
    ("path", "body", "status", "words"),
    [
        ("/models/org/m/predictions", {"input": {}}, 422, "prompt is required"),
        ("/models/org/m/predictions", {}, 422, "input is required"),
        ("/models/org/m/predictions", {"input": {"prompt": 1}}, 422, "prompt"),
        ("/models/org/m/predictions", {"input": {"prompt": "x", "max_tokens": "5"}}, 422, "max_tokens"),
        ("/models/org/m/predictions", {"input": {"prompt": "x", "temperature": "0"}}, 422, "temperature"),
        (
            "/models/org/m/predictions",
            {"input": {"prompt": "x", "stop_sequences": ["a"]}},
            422,
            "stop_sequences",
        ),
        ("/models/org/other/predictions", {"input": {"prompt": "x"}}, 404, ""),
        ("/predictions", {"input": {"prompt": "x"}}, 400, "version"),
        ("/predictions", {"version": "v9", "input": {"prompt": "x"}}, 404, ""),
    ],
)
def test_an_invalid_request_is_rejected_in_replicates_form(
    path: str, body: dict[str, Any], status: int, words: str
) -> None:
    async def scene(_: SimulatedProvider, client: httpx.AsyncClient, gate: Gate) -> None:
        reply = await client.post(path, json=body)
        assert (reply.status_code, reply.json()["status"]) == (status, status)
        assert words in reply.json()["detail"]

    play(scene)


def test_a_poll_needs_the_key_and_a_known_prediction() -> None:
    async def scene(provider: SimulatedProvider, client: httpx.AsyncClient, gate: Gate) -> None:
        document = await begin(client)
        for wrong in ("get", "cancel"):
            method = "GET" if wrong == "get" else "POST"
            reply = await client.request(
                method, document["urls"][wrong], headers={"authorization": "Bearer no"}
            )
            assert (reply.status_code, reply.json()["title"]) == (401, "Unauthenticated")
        assert (await client.get("/predictions/unknown")).status_code == 404
        listed = (await client.get("/predictions")).json()["results"]
        assert [each["id"] for each in listed] == [document["id"]]
        provider.reset()
        assert (await client.get(document["urls"]["get"])).status_code == 404

    play(scene)


def test_a_request_may_wait_for_its_prediction() -> None:
    async def scene(_: SimulatedProvider, client: httpx.AsyncClient, gate: Gate) -> None:
        gate.steps.put_nowait(None)
        gate.steps.put_nowait(None)
        body = {"version": "v1", "input": {"prompt": "hi"}}
        reply = await client.post("/predictions", json=body, headers={"prefer": "wait=5"})
        assert (reply.json()["status"], reply.json()["version"]) == ("succeeded", "v1")

    play(scene)


@pytest.mark.parametrize("preference", ["wait=soon", "wait=nan", "wait=-1", "respond-async"])
def test_a_preference_that_is_none_waits_for_nothing(preference: str) -> None:
    async def scene(_: SimulatedProvider, client: httpx.AsyncClient, __: Gate) -> None:
        body = {"version": "v1", "input": {"prompt": "hi"}}
        reply = await client.post("/predictions", json=body, headers={"prefer": preference})
        assert (reply.status_code, reply.json()["status"]) == (201, "starting")

    play(scene)
