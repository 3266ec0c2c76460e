"""A new lane on which nothing has happened yet, from which tests of views start."""

from fairlane.model.lane import LaneLimits
from fairlane.store.write.lanes.lane_view import AXES, AxisView, LaneView, Places

IDLE = LaneView(
    lane="sim:fast",
    limits=LaneLimits(),
    axes=dict.fromkeys(AXES, AxisView()),
    places=Places(),
    in_flight=0,
    granted=0,
    succeeded=0,
    limited=0,
    failed=0,
    returned=0,
    reason="",
    shut=None,
    blocked_until_ms=None,
    asked_to_wait=False,
    circuit="closed",
    parked=None,
    paused=False,
    ramp=1.0,
    latency_ms=None,
    started_ms=None,
    now_ms=1_700_000_000_000,
)
