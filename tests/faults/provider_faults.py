"""Faults of the provider, for all its models at once."""

from __future__ import annotations

from collections.abc import Iterator

from tests.faults.deployment import PROVIDER
from tests.faults.kinds import ANY
from tests.faults.proxy import Proxy
from tests.faults.schedule import Timed
from tests.faults.stage import Stage, fault

MIXES = {
    "provider_500": {"error_500": 0.6},
    "provider_529": {"error_529": 0.5, "error_503": 0.3},
    "provider_resets": {"reset": 0.6},
    "provider_resets_after": {"reset_after_work": 0.4},
    "provider_malformed": {"malformed": 0.4},
    "provider_cuts": {"cut_stream": 0.4},
}
"""The share of requests that meet a fault."""


@fault(*MIXES)
def break_answers(stage: Stage, timed: Timed) -> Iterator[tuple[str, ...]]:
    """Some requests meet the fault."""
    workload, provider = stage.workload, stage.deployment.provider
    for model in workload.models:
        provider.change_model(model, faults=MIXES[timed.name])
    yield (ANY,)
    for model in workload.models:
        provider.change_model(model, faults={})


@fault("provider_down")
def down(stage: Stage, _: Timed) -> Iterator[tuple[str, ...]]:
    """Every connection is reset, and none is accepted."""

    def refuse(proxy: Proxy) -> None:
        proxy.refuses = True
        proxy.reset()

    stage.deployment.proxies.each([PROVIDER], refuse)
    yield (ANY,)
    stage.deployment.proxies.each([PROVIDER], lambda proxy: proxy.mend())


@fault("provider_hangs")
def hang(stage: Stage, _: Timed) -> Iterator[tuple[str, ...]]:
    """It receives requests, and its answers come only in the end."""
    stage.deployment.proxies.each([PROVIDER], lambda proxy: proxy.cut(forth=False, back=True))
    yield (ANY,)
    stage.deployment.proxies.each([PROVIDER], lambda proxy: proxy.mend())
