"""Lanes as a client sees them: their state, rate and counters, and what limits them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, overload

from fairlane.client.views.html import Cell, table
from fairlane.core.errors import LaneNotFound
from fairlane.store.write.lanes.lane_view import LaneView
from fairlane.why.reasons import SHORT_WORDS

if TYPE_CHECKING:
    from fairlane.client.deployment import Deployment


@dataclass(frozen=True, slots=True)
class Lane:
    """A lane at one moment.

    ``state`` is active, probing, blocked, parked or paused. ``requests_per_minute`` is the rate in force, and
    ``source`` says where it comes from: ``unlimited`` where there is none. ``queued`` jobs are ready on it;
    ``granted`` calls were allowed to start, of which ``rate_limits`` met a 429 and ``failed`` another error.
    ``limited_by`` says in words what keeps jobs from starting.
    """

    lane: str
    state: str
    requests_per_minute: float | None
    source: str
    in_flight: int
    queued: int
    granted: int
    succeeded: int
    rate_limits: int
    failed: int
    last_error: str | None
    limited_by: str | None


class LaneList(Sequence[Lane]):
    """Lanes in the order of their names; a notebook shows them as a table."""

    def __init__(self, lanes: Sequence[Lane]) -> None:
        self._lanes = tuple(lanes)

    @overload
    def __getitem__(self, index: int) -> Lane: ...

    @overload
    def __getitem__(self, index: slice) -> LaneList: ...

    def __getitem__(self, index: int | slice) -> Lane | LaneList:
        if isinstance(index, slice):
            return LaneList(self._lanes[index])
        return self._lanes[index]

    def __len__(self) -> int:
        return len(self._lanes)

    def __repr__(self) -> str:
        return f"LaneList({list(self._lanes)!r})"

    def _repr_html_(self) -> str:
        return _table(self)

    def to_dicts(self) -> list[dict[str, Any]]:
        """A dict for each lane, ready for JSON or a DataFrame."""
        return [asdict(each) for each in self._lanes]


def read_lanes(deployment: Deployment, names: Sequence[str]) -> LaneList:
    """The lanes of these names, or all. Raises `LaneNotFound`."""
    known = deployment.lanes.names()
    for name in names:
        if name not in known:
            raise LaneNotFound(name)
    queued = deployment.reader.queued()
    views = deployment.lanes.views(list(names) or known)
    return LaneList([_lane(view, queued.get(view.lane, 0)) for view in views])


def _lane(view: LaneView, queued: int) -> Lane:
    axis, hold = view.axes["requests"], view.hold(queued)
    if hold is None:
        limited_by = None
    elif hold.reason == "parked":
        limited_by = f"parked: {view.parked}"
    else:
        limited_by = SHORT_WORDS.get(hold.reason, hold.reason)
    return Lane(
        lane=view.lane,
        state=view.state,
        requests_per_minute=axis.allowed,
        source=axis.source_in_words,
        in_flight=view.in_flight,
        queued=queued,
        granted=view.granted,
        succeeded=view.succeeded,
        rate_limits=view.limited,
        failed=view.failed,
        last_error=view.last_error,
        limited_by=limited_by,
    )


def _table(lanes: Sequence[Lane]) -> str:
    names = ["lane", "state", "requests/min", "source", "in flight", "queued", "granted", "429s", "errors"]
    return table("Lanes", [*names, "limited by"], map(_cells, lanes))


def _cells(lane: Lane) -> list[Cell]:
    rate = None if lane.requests_per_minute is None else f"{lane.requests_per_minute:,.0f}"
    counts = (lane.in_flight, lane.queued, lane.granted, lane.rate_limits, lane.failed)
    return [lane.lane, lane.state, rate, lane.source, *counts, lane.limited_by]
