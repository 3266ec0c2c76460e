"""Asks each lane for permits in fair order and publishes what it grants to the lane's queue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from fairlane.admission.lanes import Grant, Lanes, Offer
from fairlane.events import Event
from fairlane.job import Attempt
from fairlane.logs import attempt_fields, get_logger
from fairlane.settings import Settings
from fairlane.store.keys import RunRef
from fairlane_scheduler.backlog import Backlog
from fairlane_scheduler.capacity import Capacity
from fairlane_scheduler.fairness import LaneShares
from fairlane_scheduler.leader import NotLeader
from fairlane_scheduler.server_time import Moment

ASK_AT_MOST = 200  # permits asked for at once
ASK_AT_LEAST = 8
BROKER_AWAY_MS = 500  # nothing is granted while it could not be handed over
AHEAD_WINDOWS = 2  # windows of the evaluations that tasks may be ahead of, where a run says nothing
AGAIN_MS = 10  # a lane that waits for its rate is asked at most this often; its bucket keeps what it gathers

log = get_logger("dispatcher")


class Handover(Protocol):
    """How granted attempts get to the workers; `Publisher` is the one."""

    def connect(self) -> bool:
        """Whether what is granted now can leave at once."""
        ...

    def publish(self, attempt: Attempt) -> None:
        """Take an attempt along; `flush` sends it."""
        ...

    def flush(self) -> bool:
        """Send what was taken along; false where some of it could not be sent yet."""
        ...

    def close(self) -> None:
        """Let go of connections; `connect` opens another."""
        ...


@dataclass(slots=True)
class _LaneTurn:
    """When to ask a lane again, and how much it gave last."""

    shares: LaneShares
    ask_ms: int | None = 0  # monotonic; None: when woken
    last: int = ASK_AT_LEAST


class Dispatcher:
    """Grants and hands over. Lanes are asked one by one: none waits for another."""

    def __init__(
        self, lanes: Lanes, backlog: Backlog, capacity: Capacity, handover: Handover, settings: Settings
    ) -> None:
        self._lanes, self._backlog, self._capacity = lanes, backlog, capacity
        self._handover, self._settings = handover, settings
        self._turns: dict[str, _LaneTurn] = {}
        self.weights: Mapping[str, float] = {}  # of teams that were made while running: `service` looks
        self.spent: list[RunRef] = []  # runs whose budget is used up: `service` ends them
        self._windows: dict[str, int] = {}  # as each lane said last
        self._in_flight: dict[str, int] = {}  # what ended since is still in it, so it never says too little

    def begin_term(self, lanes: list[str]) -> None:
        """Another may have led: count what is in flight on all lanes, and ask each anew."""
        self._turns.clear()
        self._in_flight = self._lanes.in_flight(lanes)

    def wake(self, lane: str) -> None:
        """Something about a lane has changed: ask it at the next tick."""
        self._backlog.release(lane)
        self._turn(lane).ask_ms = 0

    def wake_all(self) -> None:
        self._backlog.release_all()
        for turn in self._turns.values():
            turn.ask_ms = 0

    def tick(self, moment: Moment) -> int | None:
        """Ask the lanes that are due. Milliseconds until the next one is, ``None``: when woken.

        What was granted is sent, whatever else goes wrong. Raises `NotLeader` where this scheduler has been
        replaced.
        """
        now = moment.monotonic_ms
        self._backlog.release_due(moment.server_ms)
        waiting = {lane: self._turn(lane) for lane in self._backlog.waiting_lanes()}
        due = [lane for lane, turn in waiting.items() if turn.ask_ms is not None and turn.ask_ms <= now]
        if waiting and not self._handover.connect():
            return BROKER_AWAY_MS
        try:
            # Lanes contend for the workers' slots: who uses the fewest is asked first.
            for lane in sorted(due, key=lambda lane: self._in_flight.get(lane, 0)):
                self._serve(lane, waiting[lane], moment)
        finally:
            sent = self._handover.flush()
        if not sent:
            return BROKER_AWAY_MS
        asks = [max(0, turn.ask_ms - now) for turn in waiting.values() if turn.ask_ms is not None]
        due_ms = self._backlog.release_due(moment.server_ms)
        return min([*asks, *([] if due_ms is None else [due_ms - moment.server_ms])], default=None)

    def _turn(self, lane: str) -> _LaneTurn:
        turn = self._turns.get(lane)
        if turn is None:
            turn = self._turns[lane] = _LaneTurn(LaneShares(self._weight))
        return turn

    def _weight(self, team: str) -> float:
        """As the operator made the team, else as the configuration has it."""
        known = self._settings.teams.get(team)
        return self.weights.get(team, known.weight if known else 1.0)

    def _serve(self, lane: str, turn: _LaneTurn, moment: Moment) -> None:
        bounds = self._settings.scheduler
        queue = self._backlog.lane(lane)
        while queue.waiting:
            room = self._room(lane)
            wanted = max(1, min(ASK_AT_MOST, room, 2 * turn.last + ASK_AT_LEAST))
            turn.shares.arrive(queue.arrivals())
            offers = [
                offer._replace(ahead=self._ahead(offer.ref))
                for offer in turn.shares.order(
                    queue.waiting, self._priority, wanted, moment.server_ms, queue.interactive
                )
            ]
            grant = self._lanes.grant(
                lane,
                moment.epoch,
                offers,
                room=room,
                max_in_flight=bounds.max_in_flight,
                lease_ms=round(bounds.lease_seconds * 1000),
                now_ms=moment.argument,
            )
            if grant is None:
                raise NotLeader
            self._hand_over(lane, turn, offers, grant, moment.server_ms)
            if grant.reason == "slots" and room == 0 and self._counted_room(lane) > 0:
                continue
            if grant.reason:
                again = moment.monotonic_ms + max(AGAIN_MS, grant.wait_ms)
                turn.ask_ms = again if grant.at_ms else None
                return
        turn.ask_ms = 0  # nothing holds the lane back: what is queued next is asked for at once

    def _room(self, lane: str) -> int:
        return self._capacity.room(lane, self._in_flight) or self._counted_room(lane)

    def _counted_room(self, lane: str) -> int:
        self._in_flight = self._lanes.in_flight(list({*self._in_flight, *self._turns}))
        return self._capacity.room(lane, self._in_flight)

    def _ahead(self, ref: RunRef) -> int:
        """How far a run's tasks may be ahead of their evaluations; 0: any number of items."""
        run = self._backlog.get(ref)
        if run is None or not run.plan.eval_lanes or not run.plan.spec.calls_tasks:
            return 0
        if (stated := run.plan.spec.bounds.ahead) is not None:
            return stated
        return AHEAD_WINDOWS * max(self._window(lane) for lane in set(run.plan.eval_lanes))

    def _window(self, lane: str) -> int:
        """Calls that a lane may have in flight: what it said last, else what is configured."""
        most = self._settings.scheduler.max_in_flight
        limits = self._settings.lanes.get(lane)
        stated = (limits.max_concurrency if limits else None) or most
        return max(1, min(most, self._windows.get(lane, stated)))

    def _priority(self, ref: RunRef) -> int:
        run = self._backlog.get(ref)
        return run.priority if run else 0

    def _hand_over(self, lane: str, turn: _LaneTurn, offers: list[Offer], grant: Grant, now_ms: int) -> None:
        for team, off in grant.owed.items():
            turn.shares.correct(team, off)
        self._in_flight[lane], turn.last = grant.in_flight, len(grant.permits)
        self._windows[lane] = grant.window
        for offer, left in zip(offers, grant.left, strict=True):
            self._backlog.settle(lane, offer.ref, left)
        for kept in grant.kept:
            ref = offers[kept.offer].ref
            self._backlog.keep(lane, ref, kept.until_ms or None)
            if kept.bound == "budget" and kept.in_flight == 0:
                self.spent.append(ref)
        depth = self._backlog.depth(lane)
        for permit in grant.permits:
            ref = offers[permit.offer].ref
            turn.shares.charge(ref, permit.share, now_ms)
            attempt = Attempt(run=ref.run, team=ref.team, job=permit.job, number=permit.number, lane=lane)
            self._handover.publish(attempt)
            run = self._backlog.get(ref)
            log.info(
                Event.ACQUIRED,
                **attempt_fields(attempt),
                **(run.plan.spec.labels(permit.job) if run else {}),
                active_slots=grant.in_flight,
                queue_depth=depth,
            )
