"""Replicate's own client against the simulated provider: it reads there what it reads at Replicate."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx
import pytest

from fairlane.testing import Faults, ServedProvider, SimulatedModel, SimulatorConfig, serve_in_thread

replicate = pytest.importorskip("replicate")
exceptions = pytest.importorskip("replicate.exceptions")

KEY = "r8_0123456789"
MODEL = SimulatedModel(output="echo", latency_ms=30, chunks=3)


@contextmanager
def client_of(provider: ServedProvider, key: str) -> Iterator[Any]:
    """A client whose own retries are off; it looks a hundred times a second."""
    transport = httpx.HTTPTransport()
    client = replicate.Client(api_token=key, base_url=provider.url, transport=transport, timeout=5.0)
    client.poll_interval = 0.01
    try:
        yield client
    finally:
        transport.close()


@contextmanager
def served(**changes: Any) -> Iterator[tuple[Any, ServedProvider]]:
    """A client and its provider."""
    model = MODEL.model_copy(update=changes)
    config = SimulatorConfig.model_validate({"models": {"org/m": model, "v1": model}, "api_key": KEY})
    with serve_in_thread(config) as provider, client_of(provider, KEY) as client:
        yield client, provider


def test_a_prediction_is_created_looked_at_and_read() -> None:
    with served() as (client, provider):
        prediction = client.models.predictions.create("org/m", input={"prompt": "hello there"})
        assert prediction.status == "starting"
        prediction.wait()
        assert (prediction.status, "".join(prediction.output)) == ("succeeded", "hello there")
        assert prediction.metrics["output_token_count"] >= 1
        assert prediction.input == {"prompt": "hello there"}
        again = client.predictions.get(prediction.id)
        assert (again.id, again.output, again.model) == (prediction.id, prediction.output, "org/m")
        assert [each.id for each in client.predictions.list().results] == [prediction.id]
        assert provider.stats().predictions.begun == 1


def test_run_waits_for_the_answer_in_one_request() -> None:
    with served() as (client, provider):
        output = client.run("org/m", input={"prompt": "hello there", "max_tokens": 50})
        assert "".join(output) == "hello there"
        assert provider.stats().predictions.looked == 0


def test_run_without_waiting_asks_until_it_is_done() -> None:
    with served() as (client, provider):
        output = client.run("org/m", input={"prompt": "hello there"}, wait=False)
        assert "".join(output) == "hello there"
        assert provider.stats().predictions.looked > 0


def test_a_version_is_run_by_its_id() -> None:
    with served() as (client, _):
        prediction = client.predictions.create(version="v1", input={"prompt": "hi"}, wait=True)
        assert (prediction.status, prediction.version) == ("succeeded", "v1")


def test_output_is_read_while_it_is_made() -> None:
    with served(latency_ms=200) as (client, _):
        prediction = client.models.predictions.create("org/m", input={"prompt": "hello there"})
        assert "".join(prediction.output_iterator()) == "hello there"


def test_a_prediction_is_cancelled() -> None:
    with served(latency_ms=20_000) as (client, provider):
        prediction = client.models.predictions.create("org/m", input={"prompt": "hi"})
        prediction.cancel()
        assert prediction.status == "canceled"
        assert client.predictions.get(prediction.id).status == "canceled"
        assert provider.stats().predictions.cancelled == 1


def test_a_prediction_that_fails_raises_its_error() -> None:
    with served(faults=Faults(error_in_stream=1.0)) as (client, _):
        with pytest.raises(exceptions.ModelError, match="please retry") as caught:
            client.run("org/m", input={"prompt": "hi"})
        assert caught.value.prediction.status == "failed"


@pytest.mark.parametrize(
    ("changes", "given", "status", "detail"),
    [
        ({}, {}, 422, "prompt is required"),
        ({"status_always": 503}, {"prompt": "hi"}, 503, "503"),
        ({"status_always": "insufficient_quota"}, {"prompt": "hi"}, 402, "quota"),
        ({"requests_per_minute": 0.1, "headers": "retry_after"}, {"prompt": "hi"}, 429, "throttled"),
    ],
)
def test_a_refusal_is_an_error_with_status_and_words(
    changes: dict[str, Any], given: dict[str, Any], status: int, detail: str
) -> None:
    with served(**changes) as (client, _):
        if status == 429:
            client.models.predictions.create("org/m", input=given)
        with pytest.raises(exceptions.ReplicateError) as caught:
            client.models.predictions.create("org/m", input=given)
        assert caught.value.status == status
        assert detail in caught.value.detail


def test_a_wrong_key_and_an_unknown_model_are_distinguished() -> None:
    with served() as (client, provider):
        with pytest.raises(exceptions.ReplicateError) as caught:
            client.models.predictions.create("org/none", input={"prompt": "hi"})
        assert caught.value.status == 404
        with client_of(provider, "r8_wrong") as stranger, pytest.raises(exceptions.ReplicateError) as caught:
            stranger.predictions.list()
        assert (caught.value.status, caught.value.title) == (401, "Unauthenticated")
