"""A simple generated provider, of which a test changes what it is about."""

from __future__ import annotations

from dataclasses import replace

from tests.benchmarks.zoo.world import AxisLimit, Latency, Signals, Work, World


def plain_world(**changes: object) -> World:
    """Ten calls a second in a bucket of five, answered within 50 ms."""
    plain = World(
        seed=1,
        traits=(),
        limits=(AxisLimit("requests", 600, "bucket", 0.5),),
        steps=(),
        most_at_once=None,
        at_once_status=429,
        charge="used",
        output_factor=1.0,
        counts_refused=False,
        latency=Latency("constant", 0.05, 0.0),
        signals=Signals("protocol", "none"),
        outages=(),
        fault_share=0.0,
        work=Work(100, 50.0, 0.0, 100, 400),
        one_way_ms=1.0,
        configured=None,
        horizon_s=30.0,
    )
    return replace(plain, **changes)  # type: ignore[arg-type]
