"""Asks each lane for permits in fair order and publishes what it grants to the lane's queue."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from fairlane.admission.lanes import Allotment, Grant, Lanes, Offer
from fairlane.events import Event
from fairlane.job import Attempt
from fairlane.logs import attempt_fields, get_logger
from fairlane.settings import Settings
from fairlane.store.keys import RunRef
from fairlane_scheduler.backlog import Backlog
from fairlane_scheduler.capacity import Capacity
from fairlane_scheduler.claims import Claims
from fairlane_scheduler.fairness import LaneShares
from fairlane_scheduler.leader import NotLeader
from fairlane_scheduler.server_time import Moment
from fairlane_scheduler.slot_shares import Quotas
from fairlane_scheduler.slots import Slots

ASK_AT_MOST = 200  # permits asked for at once
ASK_AT_LEAST = 8
BROKER_AWAY_MS = 500  # nothing is granted while it could not be handed over
AHEAD_WINDOWS = 2  # windows of the evaluations that tasks may be ahead of, where a run says nothing
TEAM_WIDE = frozenset(("team_share", "team_budget"))  # what holds a run back holds its team's others, too
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
    window: int = 0  # calls that it may have in flight, where that is what held its jobs back; else 0

    @property
    def wants(self) -> int:
        """How many permits are worth asking for."""
        return min(ASK_AT_MOST, 2 * self.last + ASK_AT_LEAST)


class Dispatcher:
    """Grants and hands over. Lanes are asked one by one: none waits for another."""

    def __init__(
        self, lanes: Lanes, backlog: Backlog, capacity: Capacity, handover: Handover, settings: Settings
    ) -> None:
        self._lanes, self._backlog = lanes, backlog
        self._handover, self._settings = handover, settings
        self._turns: dict[str, _LaneTurn] = {}
        self.claims = Claims(settings.teams)  # `service` tells it of teams that were made while running
        self.spent: list[RunRef] = []  # runs whose budget is used up: `service` ends them
        self._windows: dict[str, int] = {}  # as each lane said last
        self._slots = Slots(lanes, capacity, self.claims.weight)

    def begin_term(self, lanes: list[str]) -> None:
        """Another may have led: count what is in flight on all lanes, and ask each anew."""
        self._turns.clear()
        self._slots.begin_term(lanes)

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
            self._serve_all({lane: waiting[lane] for lane in sorted(due, key=self._slots.used)}, moment)
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
            turn = self._turns[lane] = _LaneTurn(LaneShares(self.claims.weight))
        return turn

    def _serve_all(self, due: Mapping[str, _LaneTurn], moment: Moment) -> None:
        """Ask lanes, the one that uses the fewest slots first: they contend for these.

        Where there are not enough, each team first has its share of them, over all lanes, and what is left
        goes to whoever can use it. So it is with the places of a lane's window.
        """
        queues = {lane: self._backlog.lane(lane) for lane in due}
        wants = {lane: min(turn.wants, queues[lane].depth) for lane, turn in due.items()}
        quotas = self._slots.quotas(wants, queues)
        left: list[str] = []
        for lane, turn in due.items():
            turn.ask_ms = 0
            binding = [quotas[lane]] if lane in quotas else []
            if turn.window:
                binding.append(self._slots.places(lane, turn.window, queues[lane]))
            self._serve(lane, turn, moment, binding)
            if binding and turn.ask_ms == 0:
                left.append(lane)
        for lane in left:
            self._serve(lane, due[lane], moment)

    def _serve(self, lane: str, turn: _LaneTurn, moment: Moment, quotas: Sequence[Quotas] = ()) -> None:
        bounds = self._settings.scheduler
        queue = self._backlog.lane(lane)
        apart = False  # the rest of the lane is reserved: ask for those alone for whom something is
        while queue.waiting:
            room = self._slots.room(lane)
            allotments = self.claims.allotments(queue.waiting)
            most_of = _most_of(allotments if apart else None, quotas)
            turn.shares.arrive(queue.arrivals())
            offers = [
                offer._replace(ahead=self._ahead(offer.ref))
                for offer in turn.shares.order(
                    queue.waiting,
                    self._priority,
                    max(1, min(room, turn.wants)),
                    moment.server_ms,
                    queue.interactive,
                    most_of,
                )
            ]
            if not offers:
                break
            grant = self._lanes.grant(
                lane,
                moment.epoch,
                offers,
                room=room,
                max_in_flight=bounds.max_in_flight,
                lease_ms=round(bounds.lease_seconds * 1000),
                now_ms=moment.argument,
                allotments=allotments,
            )
            if grant is None:
                raise NotLeader
            self._hand_over(lane, turn, offers, grant, moment.server_ms)
            for permit in grant.permits:
                for quota in quotas:
                    quota[offers[permit.offer].ref.team] -= 1
            if grant.reason == "slots" and room == 0 and self._slots.counted_room(lane) > 0:
                continue
            again = moment.monotonic_ms + max(AGAIN_MS, grant.wait_ms) if grant.at_ms else None
            if grant.reason:
                turn.ask_ms = again
                if apart or grant.reason != "reserved":
                    return
                apart = True
        if not apart:
            turn.ask_ms = 0  # nothing holds the lane back: what is queued next is asked for at once

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
        self._slots.note(lane, grant.in_flight - grant.pending)
        turn.last, turn.window = len(grant.permits), grant.window if grant.reason == "window" else 0
        self._windows[lane] = grant.window
        for offer, left in zip(offers, grant.left, strict=True):
            self._backlog.settle(lane, offer.ref, left)
        for kept in grant.kept:
            ref = offers[kept.offer].ref
            self._backlog.keep(lane, ref, kept.until_ms or None)
            if kept.bound in TEAM_WIDE:
                self._backlog.lane(lane).keep_team(ref.team, kept.until_ms or None)
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


def _most_of(
    allotments: Mapping[str, Allotment] | None, quotas: Sequence[Quotas]
) -> Callable[[str], int] | None:
    """The most that a team is offered: the least of its quotas. With ``allotments`` nothing for those for
    whom nothing is kept. ``None``: any number, for all.
    """
    if allotments is None and len(quotas) < 2:
        return quotas[0].__getitem__ if quotas else None

    kept = None if allotments is None else {team for team, each in allotments.items() if each.own > 0}

    def most_of(team: str) -> int:
        if kept is not None and team not in kept:
            return 0
        return min((quota[team] for quota in quotas), default=ASK_AT_MOST)

    return most_of
