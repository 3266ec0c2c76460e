"""How many slots a lane could fill now, for autoscaling: jobs that wait for a limit need no slot."""

import math
from collections.abc import Iterable

from fairlane.store.write.lanes.lane_view import LaneView

_MORE_SLOTS_HELP = ("", "slots")
_REQUESTS, _DAY = "requests", "day"


def slots_needed(view: LaneView, ready: int) -> int:
    """Calls in flight that hold a slot, plus those of ``ready`` jobs that could start if there were slots.

    No further call could start while the lane is shut, or if its rate, window, gap or a team's share limited
    it at the last request. Else two numbers bound them: the most calls that the lane may have in flight, and
    the calls that may start before the first of them ends. The latter are its bucket's level plus its rate ×
    its latency (Little's law); the level alone while the latency is unknown.
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
    """Calls that may start during one call; infinite without a known rate, and at least one."""
    least = math.inf
    requests, day = view.axes[_REQUESTS], view.axes[_DAY]
    if requests.allowed:
        within = requests.allowed * view.ramp * (view.latency_ms or 0.0) / 60_000
        least = max(0.0, requests.level or 0.0) + within
    if day.allowed and day.level is not None:
        least = min(least, view.in_flight + max(0.0, day.level))
    return max(1.0, math.ceil(least)) if least < math.inf else least
