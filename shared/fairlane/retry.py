"""When a job tries again: a pure function of the attempt and a random source."""

from __future__ import annotations

import random
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Jitter = Literal["full", "added"]

ADDED_JITTER_S = 0.5


class RetryPolicy(BaseModel):
    """Exponential back-off, in seconds.

    ``max_attempts`` counts calls that failed by network, timeout, overload or an invalid response. A rate
    limit costs none of them; ``max_rate_limits`` is its own, larger budget.

    ``jitter`` says how the n-th wait is drawn. "full": anything from 0 to min(max, initial·2^(n-1)), which
    spreads callers best (Brooker, "Exponential Backoff And Jitter", AWS 2015). "added":
    min(initial·2^(n-1) + up to half a second, max), so that no wait is shorter than the one before it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    max_attempts: int = Field(default=3, ge=1, le=100)
    initial_delay: float = Field(default=1.0, ge=0, le=3600)
    max_delay: float = Field(default=60.0, ge=0, le=86_400)
    max_rate_limits: int = Field(default=1000, ge=1)
    jitter: Jitter = "full"

    @model_validator(mode="after")
    def _ordered(self) -> RetryPolicy:
        if self.max_delay < self.initial_delay:
            low, high = self.initial_delay, self.max_delay
            raise ValueError(f"max_delay ({high:g}) is below initial_delay ({low:g})")
        return self

    def delay_ms(self, attempts_spent: int, rng: random.Random) -> int:
        """Milliseconds to wait once ``attempts_spent`` calls have failed, 1 or more."""
        backoff = self.initial_delay * 2.0 ** min(attempts_spent - 1, 1000)
        if self.jitter == "full":
            delay = rng.uniform(0.0, min(self.max_delay, backoff))
        else:
            delay = min(self.max_delay, backoff + rng.uniform(0.0, ADDED_JITTER_S))
        return round(delay * 1000)
