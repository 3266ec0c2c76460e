"""What a call is charged in the end: the reference for ``lua/lib/tokens/charges.lua``."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fairlane.model.lane import CacheReads, Charge
from fairlane.model.tokens import Estimate, Usage


@dataclass(frozen=True, slots=True)
class ChargeModel:
    """How a provider charges tokens against its limits; the fields are those of `LaneLimits`."""

    charge: Charge = "used"
    output_factor: float = 1.0
    cache_reads: CacheReads = "free"


def charged(usage: Usage, reserved: Estimate, model: ChargeModel) -> Estimate:
    """The final charge of a call that reserved ``reserved`` tokens at its start, output factor included.

    If ``usage`` lacks a count, its reservation is charged. Unused output is refunded, unless the provider
    charges reservations. Input is always charged by its true size. Fractions of a token round up.
    """
    input_tokens, output_tokens = reserved.input, reserved.output
    if usage.input_tokens is not None:
        free = 0 if model.cache_reads == "counted" else usage.cached_tokens or 0
        input_tokens = max(0, usage.input_tokens - free)
    if usage.output_tokens is not None:
        burnt = math.ceil(usage.output_tokens * model.output_factor)
        output_tokens = max(burnt, output_tokens) if model.charge == "reserved" else burnt
    return reserved._replace(input=input_tokens, output=output_tokens)
