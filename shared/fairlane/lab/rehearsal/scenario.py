"""A rehearsal as data: the provider's hidden limits, the work, and the workers."""

from __future__ import annotations

import math
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, model_validator

from fairlane.config.sections import MOST_SLOTS
from fairlane.lab.simulator.config import MOST_COUNT, MOST_MS, MOST_SEED, MOST_TOKENS, At, SimulatedModel
from fairlane.model.lane import LaneLimits, lane_key

CONNECTION = "sim"
AMPLE = 1.1  # jobs of an endless load, as a multiple of what the limits admit
AMPLE_MORE = 2000
MOST_MINUTES = 60 * 24 * 366


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class Network(_Table):
    """Delays between a grant and the provider's verdict. Times are lognormal around their median."""

    median_ms: float = Field(default=20.0, ge=0, le=MOST_MS)
    """Each way between worker and provider."""

    sigma: float = Field(default=0.3, ge=0, le=3)
    """Spread; 0 is constant."""

    pickup_ms: float = Field(default=3.0, ge=0, le=MOST_MS)
    """From the grant until a worker sends."""


class Load(_Table):
    """One run of one team."""

    team: str = Field(default="rehearsal", pattern=r"^[A-Za-z0-9_-]{1,64}$")
    model: str = "model"
    """One of the scenario's models."""

    jobs: int | None = Field(default=None, ge=1, le=MOST_COUNT)
    """Default: more than the limits admit."""

    input_tokens: int = Field(default=200, ge=1, le=MOST_TOKENS)
    """Of each prompt."""

    max_tokens: int | None = Field(default=256, ge=1, le=MOST_TOKENS)
    """The longest answer that calls ask for; none: they set no limit."""


class Scenario(_Table):
    """Everything that a rehearsal depends on: the same scenario always gives the same events."""

    name: str
    models: dict[str, SimulatedModel] = Field(min_length=1)
    loads: tuple[Load, ...] = Field(default=(Load(),), min_length=1)
    lanes: dict[str, LaneLimits] = Field(default_factory=dict)
    """Limits that the operator has configured, by model. Empty: none."""

    teams: dict[str, Annotated[float, Field(gt=0, le=MOST_COUNT)]] = Field(default_factory=dict)
    """Weights; 1 where left out."""

    workers: int = Field(default=4, ge=1, le=256)
    slots: int = Field(default=100, ge=1, le=MOST_SLOTS)
    """Of each worker."""

    network: Network = Network()
    sheds: tuple[tuple[At, Annotated[int, Field(ge=1, le=MOST_COUNT)]], ...] = ()
    """[at, count]: so many calls in flight are ended by a 429 at once."""

    minutes: float | None = Field(default=60.0, gt=0, le=MOST_MINUTES)
    """Default: until every job is done."""

    longest_hours: float = Field(default=72.0, gt=0, le=MOST_MINUTES / 60)
    """Longest duration of a rehearsal without `minutes`."""

    warm_up_minutes: float = Field(default=5.0, ge=0, le=MOST_MINUTES)
    """Not measured."""

    seed: int = Field(default=0, ge=-MOST_SEED, le=MOST_SEED)

    @model_validator(mode="after")
    def _check_models_exist(self) -> Scenario:
        for name in [*(load.model for load in self.loads), *self.lanes]:
            if name not in self.models:
                raise ValueError(f"there is no model {name!r}; known: {', '.join(self.models)}")
        if self.minutes is None and any(load.jobs is None for load in self.loads):
            raise ValueError("a load without end needs minutes")
        return self

    def jobs_of(self, load: Load) -> int:
        """Jobs of a load; one without a number gets more than the limits admit."""
        if load.jobs is not None:
            return load.jobs
        model = self.models[load.model]
        rates = [
            most for most in (model.requests_per_minute, *(rate for _, rate in model.limit_changes)) if most
        ]
        tokens = load.input_tokens + min(model.output_tokens, load.max_tokens or math.inf)
        if model.tokens_per_minute:
            rates.append(model.tokens_per_minute / tokens)
        busy = 60_000 / max(1.0, mean_latency_ms(model))
        places = min(self.workers * self.slots, model.max_concurrency or math.inf)
        most = min(max(rates, default=math.inf), places * busy)
        return math.ceil(most * (self.minutes or 0) * AMPLE) + AMPLE_MORE


def lane_of(model: str) -> str:
    """The lane of a scenario's model."""
    return lane_key(CONNECTION, model, "model")


def mean_latency_ms(model: SimulatedModel) -> float:
    """The mean of the lognormal that has the model's median and spread."""
    return model.latency_ms * math.exp(model.latency_sigma**2 / 2)
