"""Shares slots and lanes among teams: how many slots are free, and how many each team may take.

`TeamShares` uses the terms of Kubernetes' API priority and fairness. A team's *nominal* share is its weight
divided by the weights of all known and waiting teams. It lends ``lendable_percent`` of that while unused; the
rest is reserved. It borrows up to ``borrowing_limit_percent`` beyond it, and never has more than
``max_percent`` of a lane.
"""

import heapq
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, inf

from fairlane.broker.bundle import MOST, READS_BUNDLES
from fairlane.config.sections import TeamSettings
from fairlane.config.settings import Settings
from fairlane.model.lane import FUNCTIONS
from fairlane.store.write.lanes.lanes import Lanes
from fairlane.store.write.permits import ReservedShare
from fairlane.store.write.registry import TeamRecord
from fairlane.store.write.workers import Beat
from fairlane_scheduler.dispatch.timetable import Ramp
from fairlane_scheduler.state.backlog import LaneQueue

DEFAULT = TeamSettings()

# A message may carry one permit for every so many slots of a worker: that still loads workers evenly.
SLOTS_A_PERMIT = 16


@dataclass(slots=True)
class _Pool:
    """The lanes and slots of workers that are connected by shared lanes, and calls that they start a second.

    ``starts_per_s`` is infinite if a worker does not say.
    """

    lanes: set[str]
    slots: int
    starts_per_s: float


class Capacity:
    """Slots of live workers, less the calls in flight that hold one.

    Workers that share a lane form one pool. A lane may fill its pool's free slots, but no more than the slots
    of the workers that serve it. If every worker serves every lane, there is one pool and this is exact. A
    worker that stops counts with the slots that it still uses, because its calls are in flight.
    """

    def __init__(self) -> None:
        self._own: dict[str, int] = {}
        self._pools: dict[str, _Pool] = {}
        self._message_versions: dict[str, list[int]] = {}  # by lane: of each worker
        self._all = 0

    def update(self, workers: Sequence[Beat]) -> None:
        """Replace all workers by those that are alive now."""
        self._own, self._all, self._message_versions, pools = {}, 0, {}, list[_Pool]()
        for beat in workers:
            info = beat.info
            slots = min(info.busy, info.slots) if info.stopping else info.slots
            starts_per_s = 0 if info.stopping else info.starts_per_s or inf
            self._all += slots
            for lane in info.lanes:
                self._own[lane] = self._own.get(lane, 0) + slots
                self._message_versions.setdefault(lane, []).append(info.messages)
            joined = [pool for pool in pools if not pool.lanes.isdisjoint(info.lanes)]
            merged = _Pool(
                set(info.lanes).union(*(pool.lanes for pool in joined)),
                slots + sum(pool.slots for pool in joined),
                starts_per_s + sum(pool.starts_per_s for pool in joined),
            )
            pools = [pool for pool in pools if pool.lanes.isdisjoint(info.lanes)] + [merged]
        self._pools = {lane: pool for pool in pools for lane in pool.lanes}

    def pools(self, lanes: Iterable[str]) -> list[tuple[int, list[str]]]:
        """The pools that serve these lanes: the slots and all lanes of each."""
        found = {id(pool): pool for lane in lanes if (pool := self._pools.get(lane)) is not None}
        return [(pool.slots, sorted(pool.lanes)) for pool in found.values()]

    def serving(self, lane: str) -> int:
        """Slots of the workers that serve ``lane``; of all workers while none serves it yet."""
        return self._own.get(lane, self._all)

    def bundle(self, lane: str, permits: int) -> int:
        """How many of a lane's permits one message may carry.

        It aims at two messages for each worker. A message that fills a small part of a worker's slots may
        carry more, since it matters little which worker takes it. Functions run on a fixed number of threads:
        each has a message of its own, so that no worker takes more than it has slots.
        """
        takers = self._message_versions.get(lane)
        if not takers or min(takers) < READS_BUNDLES or lane.startswith(f"{FUNCTIONS}:"):
            return 1
        few = self._own[lane] // (len(takers) * SLOTS_A_PERMIT)
        return max(1, min(MOST, max(few, permits // (2 * len(takers)))))

    def room(self, lane: str, on_slots: Mapping[str, int], reserved_percent: int = 0) -> int:
        """How many more calls may start on ``lane``; ``on_slots``: slots in use, by lane.

        ``reserved_percent`` of the slots are left free.
        """
        pool = self._pools.get(lane)
        if pool is None:
            return 0
        own = _less(self._own[lane], reserved_percent) - on_slots.get(lane, 0)
        shared = _less(pool.slots, reserved_percent) - sum(on_slots.get(name, 0) for name in pool.lanes)
        return max(0, min(own, shared))

    def starts_per_s(self, lane: str) -> float:
        """Calls that the workers of the lane's pool start a second; infinite if one does not say."""
        pool = self._pools.get(lane)
        return pool.starts_per_s if pool else inf

    def pool_of(self, lane: str) -> list[str]:
        """All lanes of the workers that serve ``lane``, directly or through lanes that they share."""
        pool = self._pools.get(lane)
        return sorted(pool.lanes) if pool else [lane]


def _less(slots: int, percent: int) -> int:
    """Slots without the reserved ``percent``, which is rounded down to whole slots."""
    return slots - slots * percent // 100


class Quotas(dict[str, int]):
    """How many more slots each team may take; computed when a team is first looked up.

    ``slots``: all slots; ``held`` and ``wanted``: slots that teams hold and could use. Shares are max-min
    fair by weight (water-filling; Bertsekas, Gallager, "Data Networks", 6.5.2): no team gets more than it can
    use, and teams that could use more have equal slots per weight. A team above its share may take none.
    """

    def __init__(
        self,
        slots: int,
        held: Mapping[str, int],
        wanted: Mapping[str, int],
        weight_of: Callable[[str], float],
    ) -> None:
        super().__init__()
        self._held = held
        self._wanted = wanted
        self._weight_of = weight_of
        self._level = self._water_level(slots)

    def __missing__(self, team: str) -> int:
        held, most = self._held.get(team, 0), self._wanted.get(team, 0)
        share = self._level * self._weight_of(team)
        self[team] = quota = most if held + most <= share else max(0, min(most, ceil(share - held)))
        return quota

    def _water_level(self, slots: int) -> float:
        """Slots per weight of teams that could use more; infinite if there are enough slots for all."""
        demand = dict(self._wanted)
        for team, count in self._held.items():
            demand[team] = demand.get(team, 0) + count
        weights = list(map(self._weight_of, demand))
        lowest = [
            (count / weight, count, weight) for count, weight in zip(demand.values(), weights, strict=True)
        ]
        heapq.heapify(lowest)
        left, total = float(slots), sum(weights)
        while lowest:
            level = left / total
            _, count, weight = heapq.heappop(lowest)
            if count > level * weight:
                return level
            left, total = left - count, total - weight
        return inf


class Slots:
    """Computes free slots from each lane's last report. Calls that ended since still count: never too many.

    Some slots are reserved for *small* teams: those that hold fewer slots than are reserved. So a team whose
    hanging calls hold all other slots stops no other team.

    A call that runs asynchronously at its provider holds no slot. Between teams it counts like one, because a
    team holds what it has in flight.
    """

    def __init__(
        self,
        lanes: Lanes,
        capacity: Capacity,
        weight_of: Callable[[str], float],
        settings: Settings,
    ) -> None:
        self._lanes = lanes
        self._limits = settings.lanes
        self._windows: dict[str, int] = {}  # as each lane reported last
        self._capacity = capacity
        self._weight_of = weight_of
        self._max_in_flight = settings.scheduler.max_in_flight
        self._reserved_percent = settings.scheduler.reserved_slots_percent
        self._ramps: dict[str, Ramp] = defaultdict(Ramp)  # by the first lane of a pool
        self._on_slots: dict[str, int] = {}
        self._held: dict[
            str, dict[str, int]
        ] = {}  # by the first lane of a pool: what each team has in flight

    def begin_term(self, lanes: list[str]) -> None:
        """Count the slots in use on all lanes: another scheduler may have led."""
        self._on_slots = self._lanes.on_slots(lanes)

    def begin_tick(self) -> None:
        """Drop the counts of teams' calls; this tick counts them again if it needs them."""
        self._held.clear()

    def note(self, lane: str, on_slots: int, window: int) -> None:
        """Record a lane's report: how many of its calls hold a slot, and its window."""
        self._on_slots[lane], self._windows[lane] = on_slots, window

    def forget(self, lane: str) -> None:
        """Drop the state of a lane that was forgotten."""
        self._windows.pop(lane, None)
        self._ramps.pop(lane, None)

    def take(self, lane: str, team: str) -> None:
        """Count a permit of a lane that a team was granted."""
        held = self._held.get(self._capacity.pool_of(lane)[0])
        if held is not None:
            held[team] = held.get(team, 0) + 1

    def used(self, lane: str) -> int:
        """Slots that the lane's calls hold, as it reported last."""
        return self._on_slots.get(lane, 0)

    def room(self, lane: str) -> int:
        """Lower bound of a lane's free slots, including reserved ones."""
        return self._capacity.room(lane, self._on_slots)

    def starts(self, lane: str, now_ms: int) -> int:
        """How many calls the lane's workers can start now (monotonic) beside those in flight."""
        per_s = self._capacity.starts_per_s(lane)
        if per_s == inf:
            return self._max_in_flight
        pool = self._capacity.pool_of(lane)
        return self._ramps[pool[0]].room(sum(map(self.used, pool)), per_s, now_ms)

    def unreserved(self, lane: str) -> int:
        """Free slots for a lane that any team may take."""
        return self._capacity.room(lane, self._on_slots, self._reserved_percent)

    @property
    def most_unreserved(self) -> int:
        """Most calls in flight over all lanes, without the reserve for small teams."""
        return _less(self._max_in_flight, self._reserved_percent)

    def most_in_flight(self, lane: str) -> int:
        """Most calls that a lane can have in flight: its window, reported or configured; at least 1."""
        limits = self._limits.get(lane)
        window = self._windows.get(lane, limits.max_concurrency if limits else None)
        most = min(self._max_in_flight, self._capacity.serving(lane))
        return max(1, most if window is None else min(most, window))

    def reserved(self, lane: str, teams: Iterable[str]) -> dict[str, int]:
        """How many reserved slots of a lane each of ``teams`` may take; empty if none may take any."""
        slots = min(self._capacity.serving(lane), self._max_in_flight)
        most = slots - _less(slots, self._reserved_percent)
        if not most or not self.room(lane):
            return {}
        held = self._held_in_pool(lane)
        found = {team: max(0, most - held.get(team, 0)) for team in teams}
        return found if any(found.values()) else {}

    def await_free(self, queues: Mapping[str, LaneQueue]) -> list[str]:
        """Have lanes woken when a slot becomes free. Returns those on which a job may start already."""
        before = self._on_slots
        self._on_slots = self._lanes.await_slots(list(queues), list({*before, *queues}))
        return [lane for lane, queue in queues.items() if self._may_start(lane, queue, before)]

    def _may_start(self, lane: str, queue: LaneQueue, before: Mapping[str, int]) -> bool:
        """Whether a waiting team may take a free slot; ended calls may have made a team small."""
        if not self.room(lane) or self.unreserved(lane):
            return bool(self.room(lane))
        ended = any(self._on_slots.get(one, 0) < before.get(one, 0) for one in self._capacity.pool_of(lane))
        return ended or bool(self.reserved(lane, queue.waiting))

    def quotas(self, wants: Mapping[str, int], queues: Mapping[str, LaneQueue]) -> dict[str, Quotas]:
        """Quotas of lanes whose pool of workers has fewer slots than they want now.

        Lanes of one pool share one object; lanes with enough slots are left out.
        """
        found: dict[str, Quotas] = {}
        for slots, lanes in self._capacity.pools(wants):
            asking = [lane for lane in lanes if lane in wants]
            unreserved = _less(slots, self._reserved_percent)
            if sum(wants[lane] for lane in asking) > unreserved - sum(map(self.used, lanes)):
                quotas = self._shared(slots, lanes, [queues[one] for one in asking])
                found.update(dict.fromkeys(asking, quotas))
        return found

    def window_quotas(self, lane: str, window: int, queue: LaneQueue) -> Quotas:
        """Quotas of a lane that its window (concurrent calls) limits."""
        (in_flight,) = self._lanes.in_flight([lane])
        return Quotas(window, in_flight, dict(queue.by_team), self._weight_of)

    def _shared(self, slots: int, lanes: Sequence[str], queues: Sequence[LaneQueue]) -> Quotas:
        on_slots, held = self._count(lanes)
        pending = max(0, sum(held.values()) - sum(on_slots.values()))
        wanted = _total([queue.by_team for queue in queues])
        return Quotas(slots + pending, dict(held), wanted, self._weight_of)

    def _held_in_pool(self, lane: str) -> dict[str, int]:
        """What each team has in flight on the lanes that share slots with this one."""
        lanes = self._capacity.pool_of(lane)
        return self._held[lanes[0]] if lanes[0] in self._held else self._count(lanes)[1]

    def _count(self, lanes: Sequence[str]) -> tuple[dict[str, int], dict[str, int]]:
        """Count slots in use by lane, and then calls by team, of a pool's lanes.

        The order matters: a call that ends in between still counts as a slot in use, never as a free one.
        """
        on_slots = self._lanes.on_slots(list(lanes))
        held = self._held[lanes[0]] = _total(self._lanes.in_flight(list(lanes)))
        self._on_slots.update(on_slots)
        return on_slots, held


def _total(counts: Sequence[Mapping[str, int]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for each in counts:
        for team, count in each.items():
            found[team] = found.get(team, 0) + count
    return found


class TeamShares:
    """Weights and shares of teams, from those created at run time, else from the configuration."""

    def __init__(self, configured: Mapping[str, TeamSettings]) -> None:
        self._configured = configured
        self.update({})

    def update(self, created: Mapping[str, TeamRecord]) -> None:
        """Replace the teams that were created at run time."""
        self._teams = dict(self._configured) | {
            team: record.over(self._configured.get(team, DEFAULT)) for team, record in created.items()
        }
        self._total = sum(each.weight for each in self._teams.values())
        self._restricted = any(each.restricted for each in self._teams.values())

    def weight(self, team: str) -> float:
        """A team's weight; 1 if nothing is configured."""
        return self._teams.get(team, DEFAULT).weight

    def reserved(self, waiting: Iterable[str]) -> dict[str, ReservedShare]:
        """Reserved and maximum shares of a lane that ``waiting`` teams want, for teams that have any."""
        if not self._restricted:
            return {}
        total = self._total + DEFAULT.weight * len(set(waiting).difference(self._teams))
        return {
            team: _reserved(each, each.weight / total)
            for team, each in self._teams.items()
            if each.restricted
        }


def _reserved(each: TeamSettings, nominal: float) -> ReservedShare:
    most = 1.0 if each.max_percent is None else each.max_percent / 100
    if each.borrowing_limit_percent is not None:
        most = min(most, nominal * (1 + each.borrowing_limit_percent / 100))
    return ReservedShare(min(most, nominal * (1 - each.lendable_percent / 100)), most)
