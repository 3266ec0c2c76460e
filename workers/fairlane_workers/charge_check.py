"""Whether a lane's charge model agrees with what one answer's headers say is left."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

from fairlane.admission.charge import ChargeModel
from fairlane.hints import AxisHint
from fairlane.job import Usage

LEAST_APART = 16  # tokens by which the two ways of charging must differ, to be told apart
TOLERANCE = 0.25  # a provider estimates a prompt before it reads it


class ChargeCheck(NamedTuple):
    """What one call shows: ``"agrees"``, ``"differs"`` or ``"unknown"``, and why."""

    verdict: Literal["agrees", "differs", "unknown"]
    reason: str


def check_charge(
    model: ChargeModel, usage: Usage, max_tokens: int | None, tokens: AxisHint | None
) -> ChargeCheck:
    """Compare what is gone of a limit of ``tokens`` with what ``usage`` and ``max_tokens`` come to.

    What is gone is what was refilled by ``reset_ms``, where that is told, else what does not remain. It shows
    only on a lane that nobody else uses at this moment and that was full before.
    """
    if tokens is None or tokens.limit is None or tokens.remaining is None:
        return ChargeCheck("unknown", "the answer does not tell how many tokens are left")
    if usage.input_tokens is None or usage.output_tokens is None:
        return ChargeCheck("unknown", "the answer does not tell what it used")
    gone, doubt = tokens.limit - tokens.remaining, LEAST_APART / 2
    if tokens.reset_ms is not None:  # less than a minute's worth may be what there is room for
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
