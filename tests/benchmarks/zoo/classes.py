"""Classes of worlds, by what a caller can know of their limits. A world is in several."""

from __future__ import annotations

from tests.benchmarks.zoo.world import World

CONFIGURED, TRUE_HEADERS, HIDDEN = "configured", "true headers", "hidden"
CLASSES = (
    CONFIGURED,
    TRUE_HEADERS,
    HIDDEN,
    "hidden, one limit that stays",
    "hidden, Retry-After honest",
    "hidden, Retry-After wrong or absent",
    "hidden, 429s name nothing",
    "hidden, 429s name the axis",
    "hidden, 429s name the limit",
    "hidden, calls at once",
    "hidden, windows of a minute and more",
    "hidden, limits that move",
    "hidden, outages",
    "hidden, few calls",
)
MINUTE_S = 60.0
FEW_CALLS = 334
"""Of fewer calls, a single 429 is more than 0.3 %."""


def classes_of(world: World, best: int) -> tuple[str, ...]:
    """The classes of a world in which the oracle makes ``best`` calls.

    A limit is hidden unless it is configured, or each success reports it as it is.
    """
    signals = world.signals
    if world.configured is not None:
        return (CONFIGURED,)
    if signals.view == "true" and signals.on_success:
        return (TRUE_HEADERS,)
    honest = signals.wait_form != "none" and signals.wait_error == 1.0
    long = any(limit.shape != "bucket" and limit.span_s >= MINUTE_S for limit in world.limits)
    alone = len(world.limits) == 1 and world.most_at_once is None and not world.steps and not world.outages
    holds = (
        True,
        alone,
        honest,
        not honest,
        signals.names == "nothing",
        signals.names == "axis",
        signals.names == "limit",
        world.most_at_once is not None,
        long,
        bool(world.steps),
        bool(world.outages),
        best < FEW_CALLS,
    )
    return tuple(name for name, held in zip(CLASSES[2:], holds, strict=True) if held)
