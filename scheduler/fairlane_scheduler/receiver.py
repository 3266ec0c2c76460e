"""Reads the teams' inboxes: admits, refuses and cancels runs. All in them is hostile until validated."""

from __future__ import annotations

from pydantic import ValidationError

from fairlane.errors import FairlaneError
from fairlane.events import Event
from fairlane.logs import get_logger
from fairlane.prompts import Prompt, Template
from fairlane.run import Plan, RunSpec
from fairlane.store.inbox import Inbox, Request
from fairlane.store.keys import RunRef
from fairlane.store.runs import Runs
from fairlane_scheduler.backlog import ActiveRun, Backlog
from fairlane_scheduler.feeder import Feeder
from fairlane_scheduler.lane_registry import LaneRegistry

log = get_logger("receiver")


class Receiver:
    """One request at a time, in order, team by team; a request is forgotten once it has taken effect."""

    def __init__(
        self, inbox: Inbox, runs: Runs, backlog: Backlog, feeder: Feeder, lanes: LaneRegistry
    ) -> None:
        self._inbox, self._runs, self._backlog = inbox, runs, backlog
        self._feeder, self._lanes = feeder, lanes

    def tick(self, teams: list[str] | None, epoch: int, server_ms: int, server_now: str | int = "") -> None:
        """Act on what lies in the inboxes of ``teams``, or of all."""
        for team in self._inbox.teams() if teams is None else teams:
            handled = 0
            for request in self._inbox.peek(team):
                handled += 1
                if request is not None:
                    self._act(RunRef(team, request.run), request, epoch, server_ms, server_now)
            if handled:
                self._inbox.drop(team, handled)

    def _act(self, ref: RunRef, request: Request, epoch: int, server_ms: int, server_now: str | int) -> None:
        if request.op == "submit":
            self._submit(ref, epoch, server_ms, server_now)
        elif request.op == "cancel":
            cancelled = self._runs.cancel(ref, self._lanes.names(), epoch, server_now)
            if cancelled >= 0:
                self._backlog.drop_run(ref)
                self._feeder.forget(ref)
                log.info(Event.RUN_CANCELLED, run=ref.run, team=ref.team, jobs=cancelled)

    def _submit(self, ref: RunRef, epoch: int, server_ms: int, server_now: str | int) -> None:
        text = self._runs.spec_text(ref)
        if text is None:
            return
        try:
            plan = self._plan(ref, text)
        except (ValidationError, FairlaneError, ValueError) as error:
            reason = _readable(error)
            if self._runs.refuse(ref, reason, server_ms, epoch, server_now):
                log.warning(Event.RUN_REFUSED, run=ref.run, team=ref.team, reason=reason)
            return
        for lane in plan.judge_lanes:
            self._lanes.ensure(lane)
        admitted = self._runs.admit(plan.spec, plan, epoch, server_now)
        if admitted:
            log.info(
                Event.RUN_ADMITTED, run=ref.run, team=ref.team, items=plan.spec.items, jobs=plan.spec.jobs
            )
        if admitted == 1:
            self._backlog.add_run(ActiveRun(ref, plan))

    def _plan(self, ref: RunRef, text: bytes) -> Plan:
        spec = RunSpec.model_validate_json(text)
        if (spec.team, spec.run) != (ref.team, ref.run):
            raise ValueError(f"the spec names run {spec.team}/{spec.run}, it was submitted as {ref}")
        for number, messages in enumerate(spec.prompts):
            Prompt(messages, f"prompts[{number}]")
        for number, model in enumerate(spec.models):
            if Template(f"models[{number}]", model).constant:
                self._lanes.lane_of(model)
        for judge in spec.judges:
            Template(f"evaluators[{judge.name}].template", judge.template)
        return Plan(spec=spec, judge_lanes=tuple(self._lanes.lane_of(judge.model) for judge in spec.judges))


def _readable(error: Exception) -> str:
    if isinstance(error, ValidationError):
        first = error.errors(include_url=False, include_input=False)[0]
        return f"{'.'.join(str(part) for part in first['loc'])}: {first['msg']}"
    return str(error)[:500]
