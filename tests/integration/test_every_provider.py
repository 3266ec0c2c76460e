"""One run over every provider that is known by name: each is asked over its own protocol, at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from fairlane.config.connections.presets import PRESETS, PROVIDERS
from fairlane.local.plan import address_of
from fairlane.testing import ServedProvider, SimulatedModel, SimulatorConfig, serve_in_thread
from tests.support.cluster import Cluster, all_succeeded, cluster, numbered, whole

KEY = "key-0123456789abcdef"
ROWS = 4
MODEL = "acme/m"
"""As Replicate names models; whoever has the name in a URL escapes its stroke."""


@dataclass(frozen=True)
class Everybody:
    deployment: Cluster
    served: ServedProvider

    def models(self) -> list[str]:
        return [f"{name}:{MODEL}" for name in PROVIDERS]


def connection_to(provider: str, base_url: str) -> str:
    """A connection named after its provider; those that sign show the key instead."""
    preset = PRESETS[provider]  # type: ignore[index]
    address = address_of(base_url, preset.protocol)
    if provider == "mistral":  # whose streams end with usage unasked
        address = address.replace("/v1", "/mistral/v1")
    lines = [
        f"[connections.{provider}]",
        f'provider = "{provider}"',
        f'base_url = "{address}"',
        'api_key_env = "EVERYBODYS_KEY"',
    ]
    return "\n".join([*lines, 'auth = "bearer"'] if provider in ("bedrock", "vertex") else lines)


@pytest.fixture(scope="module")
def everybody(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Everybody]:
    model = SimulatedModel(output="echo", latency_ms=20.0)
    with serve_in_thread(
        SimulatorConfig.model_validate({"models": {MODEL: model}, "api_key": KEY})
    ) as served:
        config = "\n".join(connection_to(name, served.base_url) for name in PROVIDERS)
        directory = tmp_path_factory.mktemp("everybody")
        with cluster(directory, config=config, env={"EVERYBODYS_KEY": KEY}, workers=1) as deployment:
            yield Everybody(deployment, served)


def test_every_provider_answers_over_its_own_protocol(everybody: Everybody) -> None:
    run = everybody.deployment.client.submit(
        numbered(ROWS), "question {{ n }}", models=everybody.models(), params={"max_tokens": 20}
    )
    records = all_succeeded(run, timeout=90)
    answers = {(record.model, record.output) for record in records}
    assert answers == {(model, f"question {n}") for model in everybody.models() for n in range(ROWS)}
    uncounted = {
        record.model for record in records if not (record.usage.input_tokens and record.usage.output_tokens)
    }
    assert not uncounted
    assert everybody.served.stats().models[MODEL].completed == len(records) == ROWS * len(PROVIDERS)


def test_a_refusal_is_the_items_own_whoever_makes_it(everybody: Everybody) -> None:
    models = [f"{name}:acme/nobody" for name in PROVIDERS]
    records = whole(everybody.deployment.client.submit(numbered(1), "hi", models=models), timeout=90)
    assert Counter(record.state for record in records) == {"failed": len(PROVIDERS)}
    shown = [record.error or "" for record in records]
    assert [each for each in shown if "nobody" not in each and "does not exist" not in each] == []
    assert not any(KEY in (record.error or "") for record in records)
