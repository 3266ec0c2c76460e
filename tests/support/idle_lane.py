"""A lane that nothing has happened to yet: what tests of views begin with."""

from fairlane.admission.views import AXES, AxisView, LaneView
from fairlane.lane import LaneLimits

IDLE = LaneView(
    lane="sim:fast",
    limits=LaneLimits(),
    axes=dict.fromkeys(AXES, AxisView()),
    in_flight=0,
    granted=0,
    succeeded=0,
    limited=0,
    failed=0,
    reason="",
    blocked_until_ms=None,
    day_until_ms=None,
    circuit="closed",
    open_until_ms=None,
    parked=None,
    paused=False,
)
