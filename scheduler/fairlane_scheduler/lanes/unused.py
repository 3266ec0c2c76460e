"""Forgets lanes that nobody uses: any row may open one, and each costs every worker a queue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from fairlane.core.events import Event
from fairlane.store.write.lanes.lanes import Lanes
from fairlane.store.write.leader import NotLeader
from fairlane.telemetry.logs import get_logger
from fairlane_scheduler.lanes.registry import MOST_LANES, LaneRegistry
from fairlane_scheduler.state.backlog import Backlog
from fairlane_scheduler.state.server_time import Moment

EVERY_MS = 60_000
UNUSED_MS = 7 * 86_400_000
"""A lane of a nightly or weekly run keeps what it has learned."""

CROWDED_UNUSED_MS = 3_600_000
"""The same where the deployment, or the team that opened the lane, has over half of the lanes that it may."""

FORGOTTEN_AT_ONCE = 100

log = get_logger("lanes")


class UnusedLanes:
    """Looks once a minute. Lanes that the configuration describes, or an operator paused or limited, stay."""

    def __init__(
        self, lanes: Lanes, registry: LaneRegistry, backlog: Backlog, forgotten: Callable[[str], None]
    ) -> None:
        """``forgotten`` is called with each lane that is forgotten."""
        self._lanes, self._registry, self._backlog, self._forgotten = lanes, registry, backlog, forgotten
        self._due_ms = 0
        self._first_seen_ms: dict[str, int] = {}

    def forget_all(self) -> None:
        """Start anew: another scheduler may have led."""
        self._first_seen_ms.clear()
        self._due_ms = 0

    def tick(self, moment: Moment, *, all_loaded: bool) -> None:
        """Forget lanes that were not used for long. ``all_loaded``: the backlog has every active run.

        Raises `NotLeader`.
        """
        if moment.monotonic_ms < self._due_ms or not all_loaded:
            return
        self._due_ms = moment.monotonic_ms + EVERY_MS
        self._registry.forget_opening()
        names, used = self._registry.names(), self._used()
        candidates = [lane for lane in names if lane not in used and not self._registry.is_described(lane)]
        self._first_seen_ms = {lane: self._first_seen_ms.get(lane, moment.server_ms) for lane in candidates}
        count, crowded, openers = 0, self._crowded(len(names)), self._registry.openers
        for lane, asked_ms in self._lanes.asked_ms(candidates).items():
            unused_ms = CROWDED_UNUSED_MS if openers.get(lane) in crowded else UNUSED_MS
            if moment.server_ms - (asked_ms or self._first_seen_ms[lane]) < unused_ms:
                continue
            count += self._forget(lane, unused_ms, moment)
            if count == FORGOTTEN_AT_ONCE:
                self._due_ms = 0
                return

    def _crowded(self, lanes: int) -> set[str | None]:
        """Teams that have opened over half of what they may; all where there are many lanes."""
        opened = Counter(self._registry.openers.values())
        if lanes > MOST_LANES // 2:
            return {*opened, None}
        return {team for team, count in opened.items() if count > self._registry.most_of_team // 2}

    def _forget(self, lane: str, unused_ms: int, moment: Moment) -> bool:
        gone = self._lanes.forget(lane, moment.epoch, unused_ms, moment.argument)
        if gone is None:
            raise NotLeader
        if gone:
            self._registry.forget(lane)
            self._backlog.forget_lane(lane)
            self._forgotten(lane)
            log.info(Event.LANE_FORGOTTEN, lane=lane, unused_s=unused_ms // 1000)
        return gone

    def _used(self) -> set[str]:
        """Lanes of active runs."""
        used: set[str] = set()
        for run in self._backlog.runs():
            used.update(run.task_lanes, run.plan.eval_lanes, run.plan.session_lanes)
        return used
