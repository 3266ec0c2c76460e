"""The workers' slots that lanes and teams contend for: how many are free, and who may take them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from fairlane.admission.lanes import Lanes
from fairlane_scheduler.capacity import Capacity
from fairlane_scheduler.lane_queue import LaneQueue
from fairlane_scheduler.slot_shares import Quotas


class Slots:
    """Free slots, by what each lane said last. What ended since still counts, so it never says too many.

    Calls that their providers go on with by themselves hold no slot, and count as slots more where teams
    contend: what a team has in flight is what it holds.
    """

    def __init__(self, lanes: Lanes, capacity: Capacity, weight_of: Callable[[str], float]) -> None:
        self._lanes, self._capacity, self._weight_of = lanes, capacity, weight_of
        self._on_slots: dict[str, int] = {}

    def begin_term(self, lanes: list[str]) -> None:
        """Another may have led: count what holds a slot on all lanes."""
        self._on_slots = self._lanes.on_slots(lanes)

    def note(self, lane: str, on_slots: int) -> None:
        """A lane has told how many of its calls hold a slot."""
        self._on_slots[lane] = on_slots

    def used(self, lane: str) -> int:
        """Slots that its calls hold, as the lane said last."""
        return self._on_slots.get(lane, 0)

    def room(self, lane: str) -> int:
        """Free slots for a lane; counted where there seem to be none."""
        return self._capacity.room(lane, self._on_slots) or self.counted_room(lane)

    def counted_room(self, lane: str) -> int:
        """Free slots for a lane, exactly."""
        self._on_slots = self._lanes.on_slots(list({*self._on_slots, lane}))
        return self._capacity.room(lane, self._on_slots)

    def quotas(self, wants: Mapping[str, int], queues: Mapping[str, LaneQueue]) -> dict[str, Quotas]:
        """What each team may take on the lanes whose pool of workers has not enough for what they want now.

        Lanes of one pool share one object; lanes with enough are left out.
        """
        found: dict[str, Quotas] = {}
        for slots, lanes in self._capacity.pools(wants):
            asking = [lane for lane in lanes if lane in wants]
            free = slots - sum(self._on_slots.get(lane, 0) for lane in lanes)
            if sum(wants[lane] for lane in asking) > free:
                found.update(
                    dict.fromkeys(asking, self._shared(slots, lanes, [queues[one] for one in asking]))
                )
        return found

    def places(self, lane: str, window: int, queue: LaneQueue) -> Quotas:
        """What each team may take of the places of a lane's window."""
        (flying,) = self._lanes.flying([lane])
        return Quotas(window, flying, dict(queue.by_team), self._weight_of)

    def _shared(self, slots: int, lanes: Sequence[str], queues: Sequence[LaneQueue]) -> Quotas:
        flying, on_slots = _total(self._lanes.flying(lanes)), self._lanes.on_slots(lanes)
        self._on_slots.update(on_slots)
        pending = max(0, sum(flying.values()) - sum(on_slots.values()))
        wanted = _total([queue.by_team for queue in queues])
        return Quotas(slots + pending, flying, wanted, self._weight_of)


def _total(counts: Sequence[Mapping[str, int]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for each in counts:
        for team, count in each.items():
            found[team] = found.get(team, 0) + count
    return found
