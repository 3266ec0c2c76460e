"""Checks a lane's charge model against the remaining tokens that one answer's headers report."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

from fairlane.model.hints import AxisHint
from fairlane.model.lane import CacheReads, Charge, LaneLimits
from fairlane.model.tokens import Usage

LEAST_APART = 16  # tokens by which the two ways of charging must differ, so that one call distinguishes them
TOLERANCE = 0.25  # of a charge: a provider estimates a prompt before it reads it


@dataclass(frozen=True, slots=True)
class ChargeModel:
    """How a provider charges tokens against its limits; the fields are those of `LaneLimits`."""

    charge: Charge = "used"
    output_factor: float = 1.0
    cache_reads: CacheReads = "free"

    @classmethod
    def of(cls, limits: LaneLimits) -> ChargeModel:
        """The model that a lane's limits configure."""
        return cls(limits.charge, limits.output_factor, limits.cache_reads)


class ChargeCheck(NamedTuple):
    """The result of the comparison: ``"agrees"``, ``"differs"`` or ``"unknown"``, and the reason."""

    verdict: Literal["agrees", "differs", "unknown"]
    reason: str


def check_charge(
    model: ChargeModel, usage: Usage, max_tokens: int | None, tokens: AxisHint | None
) -> ChargeCheck:
    """Compare the tokens missing from a limit with the charge that ``usage`` and ``max_tokens`` predict.

    The missing tokens are those that refill within ``reset_ms``, if the answer reports it; otherwise the
    limit minus the remaining tokens. The result is valid only if the lane was full and nobody else uses it.
    """
    if tokens is None or tokens.limit is None or tokens.remaining is None:
        return ChargeCheck("unknown", "the answer does not report how many tokens are left")
    if usage.input_tokens is None or usage.output_tokens is None:
        return ChargeCheck("unknown", "the answer does not report what it used")
    gone, doubt = tokens.limit - tokens.remaining, LEAST_APART / 2
    if tokens.reset_ms is not None:  # the bucket may hold less than a minute's tokens
        a_millisecond = tokens.limit / 60_000
        gone, doubt = min(gone, round(tokens.reset_ms * a_millisecond)), doubt + a_millisecond
    used = usage.input_tokens + math.ceil(usage.output_tokens * model.output_factor)
    reserved = usage.input_tokens + math.ceil((max_tokens or 0) * model.output_factor)
    if reserved - used < LEAST_APART + TOLERANCE * reserved:
        return ChargeCheck("unknown", "what was used and what was reserved are too alike: raise --max-tokens")
    fitting = [
        name
        for name, cost in (("used", used), ("reserved", reserved))
        if abs(gone - cost) <= doubt + TOLERANCE * cost
    ]
    if len(fitting) != 1:
        return ChargeCheck(
            "unknown",
            f"{gone:,.0f} tokens are gone, {used:,} were used, {reserved:,} reserved; others may be calling",
        )
    cost = used if fitting == ["used"] else reserved
    return ChargeCheck(
        "agrees" if fitting == [model.charge] else "differs",
        f"some {gone:,.0f} tokens are gone, {cost:,} were {fitting[0]}",
    )
