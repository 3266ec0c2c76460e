"""A ladder of rates: what a call costs and how soon it leaves at each, until a rate is not held any more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tests.benchmarks.scale.deployment import (
    Call,
    Load,
    MeasuredPlan,
    NoopPlan,
    deployment,
    evenness,
    percentile,
)

HELD = 0.95
"""A rate is held if so much of it is reached after the first second, which may spend the burst."""

FAR_BELOW = 0.5
"""A ladder ends at the rung of which it reaches no more."""

LATENCY_S, SIGMA = 0.5, 0.4
"""Median of the lognormal latency of the simulated provider, and its sigma."""


@dataclass(frozen=True, slots=True)
class Rung:
    """``per_s`` calls over all ``lanes``, for ``seconds``, and those of a burst of ``burst_s`` at once."""

    per_s: int
    lanes: int
    seconds: int
    burst_s: float = 1.0

    def model(self, lane: int | str) -> str:
        return f"r{self.per_s}x{self.lanes}b{1000 * self.burst_s:.0f}-{lane}"

    @property
    def per_minute(self) -> float:
        return self.per_s * 60 / self.lanes


HTTP = (
    Rung(10, 1, 15),
    Rung(50, 1, 15),
    Rung(100, 4, 10),
    Rung(250, 1, 8),
    Rung(500, 1, 8),
    Rung(500, 1, 8, burst_s=0.1),
    Rung(500, 64, 8),
)
HTTP_QUICK = (Rung(50, 1, 8), Rung(250, 16, 5))
NOOP = (Rung(100, 16, 6), Rung(400, 16, 6), Rung(800, 16, 6), Rung(1600, 16, 6), Rung(3200, 16, 6))
NOOP_QUICK = (Rung(400, 16, 4), Rung(1600, 16, 4))


@dataclass(frozen=True, slots=True)
class Climb:
    """One rung: ``reached`` is a share of its rate; ``wire_ms`` and ``even`` are as in `grid.Cell`.

    ``provider``: who answers; ``refused``: calls that the simulated provider answered with 429.
    """

    rung: Rung
    provider: str
    load: Load
    reached: float
    wire_ms: tuple[float, float, float]
    even: tuple[float, float]
    refused: int

    @property
    def held(self) -> bool:
        return self.reached >= HELD

    def as_json(self) -> dict[str, Any]:
        rung = {"per_s": self.rung.per_s, "lanes": self.rung.lanes, "provider": self.provider}
        measured = {"reached": self.reached, "wire_ms": self.wire_ms, "even": self.even}
        return {**rung, **measured, "refused": self.refused, "load": self.load.as_json()}


def climb(rungs: Sequence[Rung], *, http: bool, workers: int = 2) -> list[Climb]:
    """All rungs on one deployment, each on lanes of its own. Over HTTP the provider keeps the same limits."""
    stated = "".join(
        f'[lanes."sim:{rung.model(n)}"]\nrequests_per_minute = {rung.per_minute:g}\n'
        f"burst_seconds = {rung.burst_s:g}\n"
        for rung in rungs
        for n in range(rung.lanes)
    )
    config = (
        '[connections.sim]\nprotocol = "openai"\nbase_url = "http://127.0.0.1:9/v1"\n'
        f"{stated}[scheduler]\nmax_in_flight = 10000\n"
    )
    loads: list[tuple[Load, int]] = []
    simulator = "".join(map(_simulated, rungs)) if http else None
    with deployment(MeasuredPlan if http else NoopPlan, config, simulator, workers) as loaded:
        for rung in rungs:
            jobs = round(rung.per_s * (rung.seconds + rung.burst_s))
            rows = [{"n": n, "lane": n % rung.lanes} for n in range(jobs)]
            load = loaded.put(rows, f"sim:{rung.model('{{ lane }}')}")
            models = [rung.model(n) for n in range(rung.lanes)] if http else []
            loads.append((load, sum(loaded.bench.stats(model)["rejected"] for model in models)))
            if load.per_s < FAR_BELOW * rung.per_s:
                break  # the rates above cost minutes, and say the same
    return [
        _climbed(rung, "simulated" if http else "none", load, refused, loaded.calls)
        for rung, (load, refused) in zip(rungs, loads, strict=False)
    ]


def _climbed(rung: Rung, provider: str, load: Load, refused: int, calls: Sequence[Call]) -> Climb:
    own = [call for call in calls if load.began_s <= call.at_s <= load.began_s + load.wall_s]
    waits = sorted(call.wire_ms for call in own)
    later = own[round((1 + rung.burst_s) * rung.per_s) :]  # past the burst and the first second
    lasted = later[-1].at_s - later[0].at_s if len(later) > 1 else 0.0
    reached = (len(later) - 1) / lasted / rung.per_s if lasted else 0.0
    wire = (percentile(waits, 0.5), percentile(waits, 0.99), percentile(waits, 0.999))
    return Climb(rung, provider, load, reached, wire, evenness(own, rung.lanes), refused)


def _simulated(rung: Rung) -> str:
    return "".join(
        f"[models.{rung.model(n)}]\nrequests_per_minute = {rung.per_minute:g}\nburst_seconds = 1.0\n"
        f"latency_ms = {LATENCY_S * 1000:g}\nlatency_sigma = {SIGMA}\noutput_tokens = 24\n"
        for n in range(rung.lanes)
    )
