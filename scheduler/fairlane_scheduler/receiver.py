"""Reads the teams' inboxes: admits, refuses, holds, cancels runs. All there is hostile until validated."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from itertools import islice

from pydantic import BaseModel, ConfigDict, ValidationError
from redis.exceptions import RedisError

from fairlane.clock import Clock
from fairlane.errors import FairlaneError
from fairlane.evaluators import check_names
from fairlane.events import Event
from fairlane.job import JobState
from fairlane.logs import get_logger
from fairlane.prompts import Template
from fairlane.rendering import Rendering
from fairlane.run import SPEC_VERSION, Plan, RunSpec, RunState
from fairlane.settings import Settings
from fairlane.store.inbox import Inbox, Request
from fairlane.store.keys import RunRef
from fairlane.store.runs import CANCELLED, Ending, Runs
from fairlane_scheduler.backlog import ActiveRun, Backlog
from fairlane_scheduler.bounds import bounds_of
from fairlane_scheduler.extension import check_rows, extend
from fairlane_scheduler.feeder import Feeder
from fairlane_scheduler.lane_registry import LaneRegistry
from fairlane_scheduler.leader import Leader
from fairlane_scheduler.limits import Limits
from fairlane_scheduler.rests import Rests
from fairlane_scheduler.server_time import Moment
from fairlane_scheduler.sources import check_source

TICK_MS = 100  # then the requests that are left wait for the next tick
TURN_MS = 25  # then it is another team's turn
COSTLY_MS = 50  # a request that takes longer to read lets its team rest
SEARCH_MS = 500  # how long a new leader searches for inboxes at a time
MOST_ANNOUNCED = 10_000
REASON_CHARS = 500

_TEAM = re.compile(r"[A-Za-z0-9_-]{1,64}")

log = get_logger("receiver")


class Receiver:
    """One request at a time, in order, team by team; a request is forgotten once it has taken effect."""

    def __init__(
        self,
        inbox: Inbox,
        runs: Runs,
        backlog: Backlog,
        feeder: Feeder,
        lanes: LaneRegistry,
        leader: Leader,
        clock: Clock,
        settings: Settings,
    ) -> None:
        self._settings = settings
        self._inbox, self._runs, self._backlog = inbox, runs, backlog
        self._feeder, self._lanes, self._leader, self._clock = feeder, lanes, leader, clock
        self._limits = Limits(runs, backlog, settings.scheduler.limits)
        self._rests = Rests(COSTLY_MS, clock.worked_ms)
        self._waiting: dict[str, None] = {}
        self._known: set[str] = set()
        self._cursor: int | None = None

    def forget_all(self) -> None:
        """A term begins: look for inboxes that were announced to another."""
        self._waiting.clear()
        self._known.clear()
        self._cursor = None

    def tick(self, teams: Iterable[str] | None, moment: Moment) -> int | None:
        """Act on what lies in the inboxes of ``teams``, or of all. 0 where some is left, milliseconds where
        that of teams which rest is, else ``None``.

        Raises `NotLeader` where this scheduler has been replaced; then nothing is forgotten.
        """
        started_ms = self._clock.monotonic_ms()
        self._limits.begin()
        if teams is None:
            known = dict.fromkeys([*self._inbox.teams(), *self._settings.teams, *self._found()])
            self._waiting |= dict.fromkeys(
                self._inbox.filled([name for name in known if _TEAM.fullmatch(name)])
            )
        else:
            # Those that were announced go first, of a bounded number.
            self._waiting = dict.fromkeys([*islice(teams, MOST_ANNOUNCED), *self._waiting])
        resting: dict[str, None] = {}
        while self._waiting:
            now_ms = self._clock.monotonic_ms()
            if now_ms - started_ms >= TICK_MS:
                self._waiting |= resting
                return 0
            team = next(iter(self._waiting))
            del self._waiting[team]
            if self._rests.left_ms(team, now_ms):
                resting[team] = None
            elif _TEAM.fullmatch(team) and self._serve(team, moment):
                self._waiting[team] = None  # the others first
        self._waiting = resting
        return self._rests.first_ms(resting, self._clock.monotonic_ms())

    def _found(self) -> list[str]:
        """Whose inboxes a search of all keys finds, a part of them at a time; the first one goes to the
        end.
        """
        started_ms, first, found = self._clock.monotonic_ms(), self._cursor is None, list[str]()
        while True:
            self._cursor, some = self._inbox.search(self._cursor or 0)
            found += some
            if not (first and self._cursor) or self._clock.monotonic_ms() - started_ms >= SEARCH_MS:
                return found

    def _serve(self, team: str, moment: Moment) -> bool:
        """Act on a team's requests for a while; false where none were there."""
        handled, started_ms = 0, self._clock.monotonic_ms()
        self._shorten(team, moment)
        for request in self._inbox.peek(team):
            handled += 1
            if request is not None:
                self._rests.begin()
                self._act(RunRef(team, request.run), request, moment)
                if rest_ms := self._rests.end(team, self._clock.monotonic_ms()):
                    log.warning(Event.TEAM_RESTS, team=team, rest_ms=rest_ms)
                    break
            if self._clock.monotonic_ms() - started_ms >= TURN_MS:
                break
        if handled:
            self._leader.confirm(moment.argument)
            self._inbox.drop(team, handled)
            if team not in self._known:
                self._inbox.remember(team)
                self._known.add(team)
        return handled > 0

    def _shorten(self, team: str, moment: Moment) -> None:
        """Refuse what lies in an inbox beyond its limit: the first of these, for a turn, with a message."""
        most, waiting = self._limits.waiting_requests, self._inbox.waiting(team)
        started_ms = self._clock.monotonic_ms()
        if waiting <= most:
            return
        for request in self._inbox.peek(team, most):
            if request is not None and request.op == "submit":
                self._refuse(RunRef(team, request.run), self._limits.too_many_waiting(waiting), moment)
            if self._clock.monotonic_ms() - started_ms >= TURN_MS:
                break
        self._leader.confirm(moment.argument)
        self._inbox.cut(team, most)
        log.warning(Event.INBOX_CUT, team=team, waiting=waiting, kept=most)

    def _act(self, ref: RunRef, request: Request, moment: Moment) -> None:
        if request.op == "submit":
            self._submit(ref, moment)
        elif request.op == "extend":
            self._extend(ref, request, moment)
        elif request.op == "cancel":
            cancelled = self._runs.end(ref, self._lanes.names(), CANCELLED, moment.epoch, moment.argument)
            if cancelled >= 0:
                self._forget(ref)
                log.info(Event.RUN_CANCELLED, run=ref.run, team=ref.team, jobs=cancelled)
        else:
            self._hold(ref, request, moment)

    def _hold(self, ref: RunRef, request: Request, moment: Moment) -> None:
        """Pause a run, or let it go on."""
        pauses = request.op == "pause"
        verb = self._runs.pause if pauses else self._runs.unpause
        if not verb(ref, request.by, moment.epoch, moment.argument):
            return
        if (run := self._backlog.get(ref)) is not None:
            run.paused = pauses
        told = Event.RUN_PAUSED if pauses else Event.RUN_UNPAUSED
        log.info(told, run=ref.run, team=ref.team, by=request.by)

    def _submit(self, ref: RunRef, moment: Moment) -> None:
        text = self._runs.spec_text(ref, self._limits.spec_bytes)
        if text is None:
            return
        try:
            self._limits.check_spec(ref, text)
            plan = self._plan(ref, text)
        except (RedisError, OSError):
            raise
        except Exception as error:
            if not isinstance(error, (FairlaneError, ValueError)):
                log.exception("spec_unreadable", run=ref.run, team=ref.team)
            self._refuse(ref, _readable(error), moment)
            return
        for lane in (*plan.eval_lanes, *plan.session_lanes):
            self._lanes.ensure(lane)
        bounds = bounds_of(plan, self._settings)
        admitted = self._runs.admit(plan, moment.epoch, moment.argument, bounds=bounds)
        if admitted:
            self._tell(plan, bounds)
        if admitted == 1:
            self._limits.count(ref)
            self._backlog.add_run(ActiveRun(ref, plan, started_ms=moment.server_ms))

    def _extend(self, ref: RunRef, request: Request, moment: Moment) -> None:
        """More rows of an open run; one that grows too large is stopped."""
        run = self._backlog.get(ref)
        if run is None or run.plan.spec.source is not None:
            return
        try:
            check_rows(run.plan.spec, request.rows)
            self._limits.check_rows(run.plan.spec, request.rows)
        except ValueError as error:
            ending = Ending(RunState.STOPPED, JobState.SKIPPED, str(error))
            self._runs.end(ref, self._lanes.names(), ending, moment.epoch, moment.argument)
            run.over = True
        else:
            extend(self._runs, run, request.rows, moment, last=request.last)
        if run.over:
            self._forget(ref)

    def _forget(self, ref: RunRef) -> None:
        self._limits.forget(ref)
        self._backlog.drop_run(ref)
        self._feeder.forget(ref)

    @staticmethod
    def _tell(plan: Plan, bounds: Mapping[str, int | float | str]) -> None:
        spec, told = plan.spec, {"run": plan.spec.run, "team": plan.spec.team}
        most = {"max_concurrent": bounds.get("max_concurrent"), "cap": bounds.get("cap")}
        log.info(
            Event.RUN_ADMITTED, **told, items=spec.items, jobs=spec.jobs, serial=spec.order.serial, **most
        )

    def _refuse(self, ref: RunRef, reason: str, moment: Moment) -> None:
        if self._runs.refuse(ref, reason, moment.server_ms, moment.epoch, moment.argument):
            log.warning(Event.RUN_REFUSED, run=ref.run, team=ref.team, reason=reason)
            if oldest := self._limits.note_refused(ref):
                self._runs.forget_refused(oldest, moment.epoch, moment.argument)

    def _plan(self, ref: RunRef, text: bytes) -> Plan:
        version = _Versioned.model_validate_json(text).version
        if version > SPEC_VERSION:
            raise ValueError(
                f"version: the spec has {version}, this scheduler reads {SPEC_VERSION}: update the schedulers"
            )
        spec = RunSpec.read(text)
        if (spec.team, spec.run) != (ref.team, ref.run):
            raise ValueError(f"the spec names run {spec.team}/{spec.run}, it was submitted as {ref}")
        check_rows(spec, spec.rows)
        self._limits.check_rows(spec, spec.rows)
        check_source(spec, self._settings.scheduler.datasets)
        if spec.open and spec.order.serial_field is not None:
            raise ValueError("open: items that go first need all rows at the start")
        self._limits.check_templates(spec)
        check_names(spec.evaluators)
        if spec.session_evals and (spec.session_field is None or spec.open):
            raise ValueError("evaluators: sessions are told apart while a client uploads whole rows")
        for number, model in enumerate(spec.models):
            template = Template(f"models[{number}]", model)
            if template.constant:
                self._lanes.lane_of(template.render({}).strip(), spec.lane)
        plan = Plan(
            spec=spec,
            eval_lanes=tuple(self._lanes.lane_of(step.model, step.lane) for step in spec.evals),
            session_lanes=tuple(self._lanes.lane_of(step.model, step.lane) for step in spec.session_evals),
            unstructured=tuple(
                name for name, each in self._settings.connections.items() if not each.structured
            ),
        )
        Rendering(plan)
        return plan


class _Versioned(BaseModel):
    """All that is read of a spec before it is known to be of our version."""

    model_config = ConfigDict(extra="ignore")

    version: int = SPEC_VERSION


def _readable(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False)[0]
        text = f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"
    else:
        text = str(error) or type(error).__name__
    return text[:REASON_CHARS].encode(errors="replace").decode()
