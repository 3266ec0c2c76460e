"""When a job tries again: a pure function of the attempt and a random source."""

from __future__ import annotations

import random

from pydantic import BaseModel, ConfigDict, Field, model_validator


class RetryPolicy(BaseModel):
    """Exponential back-off with full jitter (Brooker, "Exponential Backoff And Jitter", AWS 2015).

    ``max_attempts`` counts calls that failed by network, timeout, overload or an invalid response. A rate
    limit costs none of them; ``max_rate_limits`` is its own, larger budget.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_attempts: int = Field(default=3, ge=1, le=100)
    initial_delay: float = Field(default=1.0, ge=0, le=3600)
    max_delay: float = Field(default=60.0, ge=0, le=86_400)
    max_rate_limits: int = Field(default=1000, ge=1)

    @model_validator(mode="after")
    def _ordered(self) -> RetryPolicy:
        if self.max_delay < self.initial_delay:
            low, high = self.initial_delay, self.max_delay
            raise ValueError(f"max_delay ({high:g}) is below initial_delay ({low:g})")
        return self

    def delay_ms(self, attempts_spent: int, rng: random.Random) -> int:
        """Milliseconds to wait after n = ``attempts_spent``: uniform in [0, min(max, initial·2^(n-1))]."""
        ceiling = min(self.max_delay, self.initial_delay * 2.0 ** min(attempts_spent - 1, 32))
        return round(rng.uniform(0.0, ceiling) * 1000)
