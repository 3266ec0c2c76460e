"""How many slots a lane could fill now: what autoscaling goes by, since waiting alone is no reason."""

import math
from collections.abc import Iterable

from fairlane.store.write.lanes.lane_view import LaneView

_MORE_SLOTS_HELP = ("", "slots")
_REQUESTS, _DAY = "requests", "day"


def slots_needed(view: LaneView, ready: int) -> int:
    """Calls in flight that hold a slot, and those of ``ready`` that would, too, if there were slots for them.

    That is 0 of them while the lane is shut, or while it held them last, by rate, window, gap or a team's
    part. Else two numbers bound it. One is the most calls that the lane may have in flight, the other those
    that may start before the first of them ends. The latter are what its bucket holds, and its rate × its
    latency (Little's law). Before the latency of any call is known, the bucket alone bounds it.
    """
    if view.shut is not None or view.reason not in _MORE_SLOTS_HELP:
        return view.in_flight - view.pending
    bounds = [float(view.in_flight + ready), _started_in_one_call(view)]
    if view.places.most is not None:
        bounds.append(view.places.most)
    return max(view.in_flight, math.floor(min(bounds))) - view.pending


def slots_needed_in_all(needed: Iterable[int], max_in_flight: int) -> int:
    """What lanes need together, of which ``max_in_flight`` may be used."""
    return min(sum(needed), max_in_flight)


def _started_in_one_call(view: LaneView) -> float:
    """Infinite where no rate is known. At least one call, which measures the latency."""
    least = math.inf
    requests, day = view.axes[_REQUESTS], view.axes[_DAY]
    if requests.allowed:
        within = requests.allowed * view.ramp * (view.latency_ms or 0.0) / 60_000
        least = max(0.0, requests.level or 0.0) + within
    if day.allowed and day.level is not None:
        least = min(least, view.in_flight + max(0.0, day.level))
    return max(1.0, math.ceil(least)) if least < math.inf else least
