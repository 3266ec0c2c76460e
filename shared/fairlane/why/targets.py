"""Finds a question's target: a lane's name, a run's id, or a job as ``RUN/ITEM`` or ``RUN/ITEM/STEP``."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from fairlane.core.errors import RunNotFound, TargetNotFound
from fairlane.model.run import Plan, RunRef, RunSpec
from fairlane.model.run_status import RunStatus
from fairlane.store.connection.connect import RedisClient
from fairlane.store.keys import Keys
from fairlane.store.read.job_waits import RunTraces
from fairlane.store.read.overview import DeploymentReader
from fairlane.store.read.reading import LaneDirectory, RunReader
from fairlane.store.write.lanes.lanes import Lanes
from fairlane.why.explaining import explain_lane, explain_run
from fairlane.why.job_waits import JobExplainer
from fairlane.why.waiting import Waiting

_RUN = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
_NUMBER = re.compile(r"[0-9]{1,15}", re.ASCII)
NEAR = 3
OUT_OF_SIGHT = (
    "what other teams have queued",
    "whether a scheduler leads and workers serve",
    "which calls are in flight, and which retries wait",
)
"""What a team's own user may not read; an answer without it says so."""


class Explainer:
    """Answers "why is this waiting?" for one team. ``weights`` are the teams' shares of a lane."""

    def __init__(
        self,
        redis: RedisClient,
        keys: Keys,
        team: str,
        weights: Mapping[str, float],
        now_ms: str | int = "",
    ) -> None:
        self._redis, self._keys, self._team = redis, keys, team
        self._weights, self._now_ms = weights, now_ms

    def why(self, target: str) -> Waiting:
        """A lane wins over a run of that name. Raises `TargetNotFound`."""
        found = self._why(target)
        sees_all = RunTraces(self._redis, self._keys, RunRef(self._team, "")).sees_all()
        return found if sees_all else replace(found, unknown=OUT_OF_SIGHT)

    def _why(self, target: str) -> Waiting:
        if found := self._lane(target):
            return found
        run, *rest = target.split("/")
        status, spec = self._run(run, target)
        if not rest:
            return explain_run(self._redis, self._keys, status, self._weights, self._now_ms)
        if len(rest) > 2:
            raise TargetNotFound(target, detail="a job is RUN/ITEM or RUN/ITEM/STEP")
        plan = RunTraces(self._redis, self._keys, RunRef(self._team, run)).plan()
        item = _item(target, rest[0], status)
        step = _step(target, rest[1], spec) if len(rest) == 2 else None
        return self._job(status, plan, item, step)

    def _lane(self, name: str) -> Waiting | None:
        """The lane of that name; where nothing is left on it, the one that carries its calls now."""
        lanes = Lanes(self._redis, self._keys)
        found, carrier = None, LaneDirectory.read(self._redis, self._keys).carrier(name)
        if lanes.knows(name):
            found = explain_lane(self._redis, self._keys, name, self._now_ms, self._team)
        left = found is not None and any(part.queued or part.in_flight for part in found.lanes)
        if carrier == name or left or not lanes.knows(carrier):
            return found
        return explain_lane(self._redis, self._keys, carrier, self._now_ms, self._team)

    def _job(self, status: RunStatus, plan: Plan | None, item: int, step: int | None) -> Waiting:
        if plan is None:
            # Not admitted, rejected, or of another version: the run's reason is its jobs' reason.
            whole = explain_run(self._redis, self._keys, status, self._weights, self._now_ms)
            target = f"{status.run}/{item}" + ("" if step is None else f"/{step}")
            return replace(whole, target=target, kind="job", ahead=None, lanes=())
        explainer = JobExplainer(self._redis, self._keys, status, plan, self._weights, self._now_ms)
        return explainer.explain(item, step)

    def _run(self, run: str, target: str) -> tuple[RunStatus, RunSpec | None]:
        if _RUN.fullmatch(run):
            with suppress(RunNotFound):
                return RunReader(self._redis, self._keys).overview(RunRef(self._team, run))
        known = Lanes(self._redis, self._keys).names()
        known += DeploymentReader(self._redis, self._keys).run_ids(self._team)
        near = {*difflib.get_close_matches(target, known, NEAR), *difflib.get_close_matches(run, known, NEAR)}
        raise TargetNotFound(target, sorted(near))


def _number(text: str) -> int | None:
    return int(text) if _NUMBER.fullmatch(text) else None


def _item(target: str, text: str, status: RunStatus) -> int:
    number = _number(text)
    if number is not None and number < status.items:
        return number
    raise TargetNotFound(target, detail=f"run {status.run} has the items 0 to {status.items - 1}")


def _step(target: str, text: str, spec: RunSpec | None) -> int:
    names = ["task", *(step.name for step in spec.evals)] if spec else ["task"]
    if text in names:
        return names.index(text)
    number = _number(text)
    if number is not None and number < len(names):
        return number
    known = ", ".join(f"{number} ({name})" for number, name in enumerate(names))
    raise TargetNotFound(target, detail=f"the run's steps are {known}")
