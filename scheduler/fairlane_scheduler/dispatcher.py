"""Asks each lane for permits in fair order and publishes what it grants to the lane's queue."""

from __future__ import annotations

from dataclasses import dataclass

from fairlane.admission.lanes import Grant, Lanes, Offer
from fairlane.events import Event
from fairlane.job import Attempt
from fairlane.logs import attempt_fields, get_logger
from fairlane.settings import Settings
from fairlane.store.keys import RunRef
from fairlane_scheduler.backlog import Backlog
from fairlane_scheduler.capacity import Capacity
from fairlane_scheduler.fairness import LaneShares
from fairlane_scheduler.publisher import Publisher


class NotLeader(Exception):
    """A script refused this scheduler's epoch: another one leads."""


ASK_AT_MOST = 200  # permits asked for at once
ASK_AT_LEAST = 8
BROKER_AWAY_MS = 500  # nothing is granted while it could not be handed over
AGAIN_MS = 10  # a lane that waits for its rate is asked at most this often; its bucket keeps what it gathers

log = get_logger("dispatcher")


@dataclass(slots=True)
class _LaneTurn:
    """When to ask a lane again, and how much it gave last."""

    shares: LaneShares
    ask_ms: int | None = 0  # monotonic; None: when woken
    last: int = ASK_AT_LEAST
    in_flight: int = 0


class Dispatcher:
    """Grants and hands over. Lanes are asked one by one: none waits for another."""

    def __init__(
        self, lanes: Lanes, backlog: Backlog, capacity: Capacity, publisher: Publisher, settings: Settings
    ) -> None:
        self._lanes, self._backlog, self._capacity = lanes, backlog, capacity
        self._publisher, self._settings = publisher, settings
        self._turns: dict[str, _LaneTurn] = {}

    def wake(self, lane: str) -> None:
        """Something about a lane has changed: ask it at the next tick."""
        self._turn(lane).ask_ms = 0

    def wake_all(self) -> None:
        for turn in self._turns.values():
            turn.ask_ms = 0

    def tick(self, epoch: int, monotonic_ms: int, server_now: str | int = "") -> int | None:
        """Ask the lanes that are due. Milliseconds until the next one is, ``None``: when woken.

        Raises `NotLeader` where this scheduler has been replaced.
        """
        soonest: int | None = None
        waiting = self._backlog.waiting_lanes()
        if waiting and not self._publisher.connect():
            return BROKER_AWAY_MS
        for lane in waiting:
            turn = self._turn(lane)
            if turn.ask_ms is not None and turn.ask_ms <= monotonic_ms:
                self._serve(lane, turn, epoch, monotonic_ms, server_now)
            if turn.ask_ms is not None:
                wait = max(0, turn.ask_ms - monotonic_ms)
                soonest = wait if soonest is None else min(soonest, wait)
        self._publisher.flush()
        return soonest

    def _turn(self, lane: str) -> _LaneTurn:
        if lane not in self._turns:
            self._turns[lane] = _LaneTurn(LaneShares(self._weight))
        return self._turns[lane]

    def _weight(self, team: str) -> float:
        known = self._settings.teams.get(team)
        return known.weight if known else 1.0

    def _serve(
        self, lane: str, turn: _LaneTurn, epoch: int, monotonic_ms: int, server_now: str | int
    ) -> None:
        while queued := self._backlog.queued(lane):
            room = self._room(lane)
            wanted = max(1, min(ASK_AT_MOST, room, 2 * turn.last + ASK_AT_LEAST))
            offers = turn.shares.order(queued, self._priority, wanted)
            grant = self._lanes.grant(
                lane,
                epoch,
                offers,
                room=room,
                max_in_flight=self._settings.scheduler.max_in_flight,
                lease_ms=round(self._settings.scheduler.lease_seconds * 1000),
                now_ms=server_now,
            )
            if grant is None:
                raise NotLeader
            self._hand_over(lane, turn, offers, grant)
            if grant.reason == "slots" and room == 0 and self._room(lane, fresh=True) > 0:
                continue
            if grant.reason:
                turn.ask_ms = monotonic_ms + max(AGAIN_MS, grant.wait_ms) if grant.at_ms else None
                return
        turn.ask_ms = None

    def _room(self, lane: str, *, fresh: bool = False) -> int:
        in_flight = {name: turn.in_flight for name, turn in self._turns.items()}
        room = 0 if fresh else self._capacity.room(lane, in_flight)
        if room <= 0:
            in_flight = self._lanes.in_flight(list(self._turns))
            for name, count in in_flight.items():
                self._turns[name].in_flight = count
            room = self._capacity.room(lane, in_flight)
        return room

    def _priority(self, ref: RunRef) -> int:
        run = self._backlog.get(ref)
        return run.priority if run else 0

    def _hand_over(self, lane: str, turn: _LaneTurn, offers: list[Offer], grant: Grant) -> None:
        turn.in_flight, turn.last = grant.in_flight, len(grant.permits)
        for permit in grant.permits:
            ref = offers[permit.offer].ref
            turn.shares.charge(ref)
            attempt = Attempt(run=ref.run, team=ref.team, job=permit.job, number=permit.number, lane=lane)
            self._publisher.publish(attempt)
            log.info(Event.ACQUIRED, **attempt_fields(attempt), active_slots=grant.in_flight)
        for offer, left in zip(offers, grant.left, strict=True):
            self._backlog.settle(lane, offer.ref, left)
