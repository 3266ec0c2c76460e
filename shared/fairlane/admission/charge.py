"""What a provider charges its token limits for a call: the reference for ``lua/lib/tokens.lua``."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fairlane.job import Usage
from fairlane.lane import CacheReads, Charge, LaneLimits
from fairlane.tokens import Estimate


@dataclass(frozen=True, slots=True)
class ChargeModel:
    """How a lane's provider counts: see `LaneLimits`, which says it for a lane."""

    charge: Charge = "used"
    output_factor: float = 1.0
    cache_reads: CacheReads = "free"

    @classmethod
    def of(cls, limits: LaneLimits) -> ChargeModel:
        """What an operator says of a lane."""
        return cls(limits.charge, limits.output_factor, limits.cache_reads)


def charged(usage: Usage, reserved: Estimate, model: ChargeModel) -> Estimate:
    """What a call has cost in the end that was charged ``reserved``, output factor included, when it began.

    What ``usage`` does not tell stands as it was reserved. Output that was reserved and not used comes back,
    unless the provider charges reservations; the input is the prompt's true size in either case. Fractions of
    a token count as whole ones.
    """
    input_tokens, output_tokens = reserved
    if usage.input_tokens is not None:
        free = 0 if model.cache_reads == "counted" else usage.cached_tokens or 0
        input_tokens = max(0, usage.input_tokens - free)
    if usage.output_tokens is not None:
        burnt = math.ceil(usage.output_tokens * model.output_factor)
        output_tokens = max(burnt, output_tokens) if model.charge == "reserved" else burnt
    return Estimate(input_tokens, output_tokens)
