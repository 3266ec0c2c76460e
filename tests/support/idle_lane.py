"""A lane that nothing has happened to yet: what tests of views begin with."""

from fairlane.admission.views import AXES, AxisView, LaneView, Places
from fairlane.lane import LaneLimits

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
