"""Asks each lane for permits in fair order, and publishes what it grants to the lane's queue."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from fairlane.config.settings import Settings
from fairlane.core.events import Event
from fairlane.model.ending import Ending, out_of_budget
from fairlane.model.job import Attempt
from fairlane.model.run import RunRef
from fairlane.store.write.lanes.lanes import Lanes
from fairlane.store.write.leader import NotLeader
from fairlane.store.write.permits import Grant, Offer, ReservedShare
from fairlane.telemetry.logs import get_logger, logs_calls
from fairlane_scheduler.dispatch.fairness import LaneShares
from fairlane_scheduler.dispatch.publisher import Handover
from fairlane_scheduler.dispatch.slots import Capacity, Quotas, Slots, TeamShares
from fairlane_scheduler.dispatch.timetable import STEP_MS, Timetable
from fairlane_scheduler.state.backlog import Backlog, LaneQueue
from fairlane_scheduler.state.server_time import Moment

# How many permits one request asks for.
ASK_AT_MOST = 200
ASK_AT_LEAST = 8

BROKER_AWAY_MS = 500  # until an unreachable broker is tried again; no lane is asked for permits meanwhile
AHEAD_FACTOR = 2  # tasks may be ahead by this many times the evaluations that fit in flight
TEAM_WIDE = frozenset(("team_share", "team_budget", "circuit"))  # bounds that throttle all runs of a team

# Reasons of a lane whose calls fail. Calls of one team alone may be the cause.
FAILING = frozenset(("circuit", "probing", "doubt", "blocked"))

# Reasons of a lane that may still have capacity, reserved for certain teams.
RESERVED, SLOTS = "reserved", "slots"

# A lane that waits for its rate is asked at most this often. Its bucket fills meanwhile.
AGAIN_MS = 10

# If several runs wait, permits gather for at most this long. A lone run may wait longer: it delays nobody.
SHARED_GATHER_MS = 50

log = get_logger("dispatcher")


@dataclass(slots=True)
class _LaneTurn:
    """When a lane is asked next, when it last granted permits, and how many."""

    shares: LaneShares
    ask_ms: int | None = 0  # monotonic; None: when woken
    lone_run: RunRef | None = None  # the only waiting run, for which permits gather until `ask_ms`
    shared_ms: int = 0  # monotonic; when the lane is asked if another run arrives
    granted_ms: int = -1  # monotonic; -1: before its first permit
    last_granted: int = ASK_AT_LEAST
    reason: str = ""  # why the lane granted no more at the last request
    suspected: bool = False  # whether 429s of one team's calls alone may be that reason
    lacked_slots: bool = False  # whether no slot was free when the lane was served last
    window: int = 0  # most concurrent calls, if that throttled its jobs at the last request; else 0

    @property
    def request_size(self) -> int:
        """How many permits are worth asking for."""
        return min(ASK_AT_MOST, 2 * self.last_granted + ASK_AT_LEAST)

    @property
    def failing(self) -> bool:
        """Whether calls of one team alone may be why the lane grants no more."""
        return self.suspected or self.reason in FAILING

    @property
    def serves_arrivals(self) -> bool:
        """Whether a newly arrived team may start calls while other teams wait."""
        return self.failing or self.reason == SLOTS

    def wait(
        self, lane: str, grant: Grant, lone_run: RunRef | None, now_ms: int, timetable: Timetable
    ) -> None:
        """Set when to ask again: once permits have gathered. ``lone_run``: the only waiting run."""
        wait_ms = max(AGAIN_MS, grant.wait_ms)
        shared_ms = min(grant.gather_ms, SHARED_GATHER_MS)
        self.shared_ms, self.lone_run = now_ms + max(wait_ms, shared_ms), lone_run
        gather_ms = grant.gather_ms if lone_run else shared_ms
        self.ask_ms = timetable.book(lane, now_ms, wait_ms, gather_ms, max(1, self.last_granted))

    def end_lone_wait(self, lone_run: RunRef | None) -> None:
        """Once another run waits, ask as early as for several runs."""
        if self.lone_run and self.lone_run != lone_run and self.ask_ms is not None:
            self.ask_ms, self.lone_run = min(self.ask_ms, self.shared_ms), None


class Dispatcher:
    """Asks lanes one by one, so that no lane waits for another."""

    def __init__(
        self,
        lanes: Lanes,
        backlog: Backlog,
        capacity: Capacity,
        team_shares: TeamShares,
        handover: Handover,
        settings: Settings,
        on_asked: Callable[[str, Sequence[Offer], Grant, float], None] | None = None,
    ) -> None:
        """``on_asked`` is called after each request with lane, offers, grant, and seconds that it took."""
        self._lanes = lanes
        self._backlog = backlog
        self._capacity = capacity
        self._team_shares = team_shares
        self._handover = handover
        self._settings = settings.scheduler
        self._on_asked = on_asked
        self._slots = Slots(lanes, capacity, team_shares.weight, settings)
        self._turns: dict[str, _LaneTurn] = {}
        self._timetable = Timetable()
        self._few_models: set[str] = set()  # lanes whose calls wait for their models in turn
        self._out_of_budget: dict[RunRef, Ending] = {}
        self._logs_permits = logs_calls(Event.ACQUIRED)

    def begin_term(self, lanes: list[str]) -> None:
        """Count the calls in flight on all lanes, and ask each anew: another scheduler may have led."""
        self._turns.clear()
        self._timetable = Timetable()
        self._slots.begin_term(lanes)

    def forget(self, lane: str) -> None:
        """Drop the state of a lane that was forgotten."""
        self._turns.pop(lane, None)
        self._slots.forget(lane)
        self._few_models.discard(lane)
        self._timetable.forget(lane)

    def wake(self, lane: str) -> None:
        """Ask a lane at the next tick, because something about it has changed."""
        self._backlog.unthrottle(lane)
        self._turn(lane).ask_ms = 0

    def wake_all(self) -> None:
        """Ask every lane at the next tick."""
        self._backlog.unthrottle_all()
        for turn in self._turns.values():
            turn.ask_ms = 0

    def reason_of(self, lane: str) -> str:
        """Why a lane granted no more when it was asked last; empty if nothing blocked it."""
        return self._turns[lane].reason if lane in self._turns else ""

    def take_out_of_budget(self) -> dict[RunRef, Ending]:
        """The endings of runs whose next call exceeds their own budget, and that have nothing in flight."""
        taken, self._out_of_budget = self._out_of_budget, {}
        return taken

    def tick(self, moment: Moment) -> int | None:
        """Ask the lanes that are due. Returns milliseconds until the next one is; ``None``: when woken.

        Sends what was granted even if a later lane fails. Raises `NotLeader` if another scheduler leads.
        """
        now = moment.monotonic_ms
        self._backlog.unthrottle_due(moment.server_ms)
        waiting = {lane: self._turn(lane) for lane in self._backlog.waiting_lanes()}
        for lane, turn in waiting.items():
            turn.end_lone_wait(self._backlog.lane(lane).lone_run)
        due = [lane for lane, turn in waiting.items() if self._is_due(lane, turn, now)]
        if waiting and not self._handover.connect():
            return BROKER_AWAY_MS
        try:
            self._serve_all({lane: waiting[lane] for lane in sorted(due, key=self._precedence)}, moment)
        finally:
            sent = self._handover.flush()
        if not sent:
            return BROKER_AWAY_MS
        waits = [max(0, turn.ask_ms - now) for turn in waiting.values() if turn.ask_ms is not None]
        due_ms = self._backlog.unthrottle_due(moment.server_ms)
        if due_ms is not None:
            waits.append(due_ms - moment.server_ms)
        return min(waits, default=None)

    def _is_due(self, lane: str, turn: _LaneTurn, now: int) -> bool:
        """Whether to ask a lane: it is time, or a newly arrived team may start calls."""
        timely = turn.ask_ms is not None and turn.ask_ms <= now
        return timely or (turn.serves_arrivals and self._backlog.lane(lane).has_arrivals)

    def _precedence(self, lane: str) -> tuple[int, int]:
        """Lanes that use few slots go first; of equals, the one that has waited longest for a permit.

        Calls that end together may free slots for one lane only. Without turns, one lane would get them all.
        """
        return self._slots.used(lane), self._turns[lane].granted_ms

    def _turn(self, lane: str) -> _LaneTurn:
        turn = self._turns.get(lane)
        if turn is None:
            turn = self._turns[lane] = _LaneTurn(LaneShares(self._team_shares.weight))
        return turn

    def _serve_all(self, due: Mapping[str, _LaneTurn], moment: Moment) -> None:
        """Ask lanes that compete for slots, the one that uses the fewest first.

        If slots are short, each team first gets its share of them over all lanes. A second pass offers the
        rest to every team that can use it. A lane's window is shared in the same way.
        """
        self._slots.begin_tick()
        queues = {lane: self._backlog.lane(lane) for lane in due}
        wants = {lane: min(turn.request_size, queues[lane].depth) for lane, turn in due.items()}
        quotas = self._slots.quotas(wants, queues)
        again: list[str] = []
        for lane, turn in due.items():
            turn.ask_ms = 0
            binding = [quotas[lane]] if lane in quotas else []
            if turn.window:
                binding.append(self._slots.window_quotas(lane, turn.window, queues[lane]))
            self._serve(lane, turn, moment, binding)
            if binding and turn.ask_ms == 0:
                again.append(lane)
        for lane in again:
            self._serve(lane, due[lane], moment)
        waiting = {lane: queues[lane] for lane, turn in due.items() if turn.lacked_slots}
        for lane in self._slots.await_free(waiting) if waiting else ():
            due[lane].ask_ms = 0

    def _serve(self, lane: str, turn: _LaneTurn, moment: Moment, quotas: Sequence[Quotas] = ()) -> None:
        """Ask a lane until nothing is queued, or until it says when to ask again.

        Some of the remaining capacity may be reserved: only teams that may take that are then offered it.
        """
        queue = self._backlog.lane(lane)
        turn.lacked_slots = False
        turn.shares.arrive(queue.arrivals())
        exhausted = ""  # what the lane has no more of for all teams; its reserved part is offered next
        while queue.waiting:
            unreserved = 0 if exhausted == SLOTS else self._slots.unreserved(lane)
            small = {} if unreserved else self._slots.reserved(lane, queue.waiting)
            room = self._slots.room(lane) if small else unreserved
            if room == 0 and turn.reason == SLOTS:  # the lane knows that slots are what it lacks
                turn.lacked_slots, turn.ask_ms = exhausted != SLOTS, None
                return
            starts = self._slots.starts(lane, moment.monotonic_ms)
            if room and not starts:
                turn.ask_ms = moment.monotonic_ms + STEP_MS
                return
            # Maybe only one team's calls fail, so each team is offered one permit.
            each_team = turn.failing and len(queue.waiting) > 1
            most: list[Mapping[str, int]] = [dict.fromkeys(queue.waiting, 1)] if each_team else []
            most += [small] if small else []
            reserved = self._team_shares.reserved(queue.waiting)
            size = min(room, starts, turn.request_size)
            offers = self._offers(queue, turn, moment, size, [*most, *quotas], exhausted, reserved)
            if not offers:
                break
            turn.lacked_slots = room == 0
            in_flight = self._settings.max_in_flight if small else self._slots.most_unreserved
            grant = self._ask(lane, offers, room, in_flight, reserved, moment)
            self._apply(lane, turn, offers, grant, quotas, moment)
            offered = {offer.ref.team for offer in offers}
            if turn.failing and not each_team and len(queue.waiting) > len(offered):
                continue
            if grant.reason:
                turn.ask_ms = None
                if grant.at_ms:
                    turn.wait(lane, grant, queue.lone_run, moment.monotonic_ms, self._timetable)
                if room == 0 or exhausted in (SLOTS, grant.reason) or grant.reason not in (RESERVED, SLOTS):
                    return
                exhausted = grant.reason
        if not exhausted or not queue.waiting:
            turn.ask_ms = 0  # the lane has capacity left: ask again as soon as a job is queued

    def _offers(
        self,
        queue: LaneQueue,
        turn: _LaneTurn,
        moment: Moment,
        size: int,
        quotas: Sequence[Mapping[str, int]],
        exhausted: str,
        reserved: Mapping[str, ReservedShare],
    ) -> list[Offer]:
        """Which runs are offered permits now, in fair order: ``size``, or one for each team if calls fail."""

        def most_of(team: str) -> int:
            """The most permits that a team is offered: the least of its quotas."""
            if exhausted == RESERVED and (team not in reserved or reserved[team].own <= 0):
                return 0
            return min((quota[team] for quota in quotas), default=ASK_AT_MOST)

        ordered = turn.shares.order(
            queue.waiting,
            self._priority,
            max(1, size, len(queue.waiting) if turn.failing else 0),
            moment.server_ms,
            queue.interactive,
            most_of if exhausted == RESERVED or quotas else None,
        )
        first = self._settings.first_calls
        return [offer._replace(ahead=self._ahead(offer.ref), first=first) for offer in ordered]

    def _ask(
        self,
        lane: str,
        offers: list[Offer],
        room: int,
        in_flight: int,
        reserved: Mapping[str, ReservedShare],
        moment: Moment,
    ) -> Grant:
        """Request permits of a lane that has ``room`` free slots. Raises `NotLeader`.

        ``in_flight``: most calls in flight over all lanes; ``reserved``: shares of the lane, by team.
        """
        started = time.perf_counter()
        grant = self._lanes.grant(
            lane,
            moment.epoch,
            offers,
            room=room,
            max_in_flight=in_flight,
            lease_ms=round(self._settings.lease_seconds * 1000),
            now_ms=moment.argument,
            shares=reserved,
        )
        if grant is None:
            raise NotLeader
        if self._on_asked is not None:
            self._on_asked(lane, offers, grant, time.perf_counter() - started)
        return grant

    def _apply(
        self,
        lane: str,
        turn: _LaneTurn,
        offers: list[Offer],
        grant: Grant,
        quotas: Sequence[Quotas],
        moment: Moment,
    ) -> None:
        """Note what a grant reports, throttle runs at their bounds, charge teams and publish attempts."""
        for team, off in grant.owed.items():
            turn.shares.correct(team, off)
        self._slots.note(lane, grant.in_flight - grant.pending, grant.window)
        turn.last_granted, turn.reason, turn.suspected = len(grant.permits), grant.reason, grant.suspected
        if grant.permits:
            turn.granted_ms = moment.monotonic_ms
        turn.window = grant.window if grant.reason == "window" else 0
        if grant.few_models:
            self._few_models.add(lane)
        for offer, left in zip(offers, grant.queued, strict=True):
            self._backlog.set_queued(lane, offer.ref, left)
        self._throttle(lane, offers, grant)
        for permit in grant.permits:
            ref = offers[permit.offer].ref
            turn.shares.charge(ref, permit.share, moment.server_ms)
            self._slots.take(lane, ref.team)
            for quota in quotas:
                quota[ref.team] -= 1
        self._publish(lane, offers, grant)

    def _throttle(self, lane: str, offers: list[Offer], grant: Grant) -> None:
        for delay in grant.delayed:
            ref = offers[delay.offer].ref
            until_ms = delay.until_ms or None
            self._backlog.throttle(lane, ref, until_ms, delay.bound)
            if delay.bound in TEAM_WIDE:
                self._backlog.lane(lane).throttle_team(ref.team, until_ms, delay.bound)
            if delay.bound == "budget" and delay.in_flight == 0:
                self._out_of_budget[ref] = out_of_budget(*delay.over)

    def _publish(self, lane: str, offers: list[Offer], grant: Grant) -> None:
        depth = self._backlog.depth(lane)
        together = self._capacity.bundle(lane, len(grant.permits))
        for permit in grant.permits:
            ref = offers[permit.offer].ref
            attempt = Attempt(run=ref.run, team=ref.team, job=permit.job, number=permit.number, lane=lane)
            self._handover.publish(attempt, together)
            if not self._logs_permits:
                continue
            run = self._backlog.get(ref)
            log.info(
                Event.ACQUIRED,
                **attempt.labels,
                **(run.plan.spec.labels(permit.job) if run else {}),
                active_slots=grant.in_flight,
                queue_depth=depth,
            )

    def _ahead(self, ref: RunRef) -> int:
        """How many items a run's tasks may be ahead of their evaluations; 0: any number.

        Models that take turns on one server have no bound: a time limit ends each turn.
        """
        run = self._backlog.get(ref)
        if run is None or not run.plan.eval_lanes or not run.plan.spec.calls_tasks:
            return 0
        if (configured := run.plan.spec.bounds.ahead) is not None:
            return configured
        if not self._few_models.isdisjoint(run.plan.eval_lanes):
            return 0
        return AHEAD_FACTOR * max(map(self._slots.most_in_flight, set(run.plan.eval_lanes)))

    def _priority(self, ref: RunRef) -> int:
        run = self._backlog.get(ref)
        return run.priority if run else 0
