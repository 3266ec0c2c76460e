"""Answers why something waits: a lane, a run by its id, or a job as ``RUN/ITEM`` or ``RUN/ITEM/STEP``."""

import difflib
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

from fairlane.core.clock import span, until
from fairlane.core.errors import RunNotFound, TargetNotFound
from fairlane.model.results import JudgeResult, TaskResult
from fairlane.model.run import Plan, RunRef, RunSpec, RunState
from fairlane.model.run_status import RunStatus
from fairlane.store.connection.connect import RedisClient
from fairlane.store.keys import Keys
from fairlane.store.read.job_waits import Flight, RunTraces
from fairlane.store.read.overview import DeploymentReader
from fairlane.store.read.reading import LaneDirectory, RunReader
from fairlane.store.write.lanes.lanes import Lanes
from fairlane.store.write.leases import UNTAKEN_MS
from fairlane.why.explaining import ended, explain_lane, explain_run
from fairlane.why.queues import Queues
from fairlane.why.reasons import LEADERLESS, Reason
from fairlane.why.run_bounds import UNTIMED, RunBounds
from fairlane.why.surroundings import Surroundings
from fairlane.why.waiting import UNKNOWN, Eta, LaneWait, Waiting, no_earlier

_RUN = re.compile(r"[A-Za-z0-9_-]{1,64}", re.ASCII)
_NUMBER = re.compile(r"[0-9]{1,15}", re.ASCII)
NEAR = 3

SEARCHES = 3
"""A job may move while it is searched for, so the search runs up to so many times."""

UNREADABLE_BY_TEAMS = (
    "what other teams have queued",
    "whether a scheduler leads and workers serve",
    "which calls are in flight, and which retries wait",
)
"""What a team's own user may not read; an answer without it says so."""


class JobExplainer:
    """Explains jobs of one admitted run.

    A job is in one place at a time: unfed, queued, delayed, in flight, finished.
    """

    def __init__(
        self,
        redis: RedisClient,
        keys: Keys,
        status: RunStatus,
        plan: Plan,
        weights: Mapping[str, float],
        now_ms: str | int = "",
    ) -> None:
        self._ref, self._plan, self._status = RunRef(status.team, status.run), plan, status
        self._traces, self._queues = RunTraces(redis, keys, self._ref), Queues(redis, keys)
        lanes = sorted({*self._traces.lanes(), *plan.eval_lanes})
        self._here = Surroundings(redis, keys, lanes, weights, now_ms, status.team, self._ref)
        awaited = self._here.awaited(plan)
        self._bounds = RunBounds(self._traces, plan, status.items, self._here.now_ms, awaited)

    def explain(self, item: int, step: int | None) -> Waiting:
        """Step 0 is the item's task, step k its k-th evaluation; ``None`` is the first that is not over."""
        steps = self._plan.spec.steps
        if step is not None:
            return self._explain(item, step)
        for each in range(steps):
            found = self._explain(item, each)
            if found.constraint != "done":
                return found
        return self._explain(item, 0)

    def _explain(self, item: int, step: int) -> Waiting:
        job = item * self._plan.spec.steps + step
        for _ in range(SEARCHES):
            found = self._over(item, step, job) or self._in_flight(item, step, job)
            found = found or self._paused(item, step) or self._delayed(item, step, job)
            found = found or self._queued(item, step, job) or self._unready(item, step)
            if found is not None:
                return found
        return self._answer(item, step, "waiting", Reason("nothing", "its state changes just now: ask again"))

    def _answer(
        self,
        item: int,
        step: int,
        state: str,
        reason: Reason,
        eta: Eta = UNKNOWN,
        *,
        position: int | None = None,
        ahead: int | None = None,
        lane: str | None = None,
    ) -> Waiting:
        here, target = self._here, f"{self._ref.run}/{item}/{step}"
        parts: tuple[LaneWait, ...] = ()
        if lane is not None and lane in here.views:
            queued = next((queue.queued for queue in here.queues[lane] if queue.ref == self._ref), 0)
            part = LaneWait(
                lane,
                *reason,
                queued=queued,
                in_flight=here.views[lane].in_flight,
                share=here.share(self._ref.team, lane),
                ahead=ahead,
                eta=eta,
            )
            parts = (part,)
        job = item * self._plan.spec.steps + step
        return Waiting(target, "job", state, *reason, position, ahead, eta, parts, here.now_ms, job=job)

    def _over(self, item: int, step: int, job: int) -> Waiting | None:
        traces = self._traces.job(job)
        if traces.done:
            state, end = traces.result_state or "over", _end_in_words(traces.result, step)
            return self._answer(item, step, state, Reason("done", f"it is over: {state}{end}"))
        state = RunState(traces.run_state) if traces.run_state else self._status.state
        if state.finished:
            how = ended(replace(self._status, state=state))
            return self._answer(item, step, state, Reason(how.constraint, f"its run is over: {how.sentence}"))
        return None

    def _in_flight(self, item: int, step: int, job: int) -> Waiting | None:
        flight = self._traces.job(job).flight
        if flight is None:
            return None
        reason = self._here.refusing or _carried(flight, self._here)
        return self._answer(item, step, "leased", reason, lane=flight.lane)

    def _paused(self, item: int, step: int) -> Waiting | None:
        held = self._bounds.paused() or self._here.old_scheduler(self._bounds.spec_version)
        return self._answer(item, step, "waiting", held, Eta(None, True)) if held else None

    def _delayed(self, item: int, step: int, job: int) -> Waiting | None:
        delay = next(self._traces.delays(job), None)
        if delay is None:
            return None
        here, lane = self._here, delay.lane
        ahead = here.ahead(self._ref, lane, 0)
        eta = here.eta(lane, ahead + 1, here.cost(lane, self._ref))
        eta = no_earlier(eta, delay.due_ms, at_least=True)
        old, held = here.old_workers(self._bounds.spec_version, lane), here.reason(lane, 1, self._ref.team)
        further = f"; and {held.sentence}" if held else ""
        why = "it was requeued" if old else "its last call failed"
        words = f"{why}: it is tried again {until(delay.due_ms, here.now_ms)}{further}"
        words = f"{words}; {old}" if old else words
        if lane in here.views:
            words += self._bounds.outage_end(here.views[lane], [job], "it fails")
        reason = Reason("delayed", words, delay.due_ms)
        return self._answer(item, step, "waiting", reason, eta, lane=lane)

    def _queued(self, item: int, step: int, job: int) -> Waiting | None:
        here = self._here
        lanes = [self._plan.eval_lanes[step - 1]] if step else self._traces.lanes()
        for lane in lanes:
            queue = self._queues.of(self._ref, lane, job)
            if queue.place is None or lane not in here.views:
                continue
            ahead = here.ahead(self._ref, lane, queue.place - 1)
            old = here.too_old(self._bounds.spec_version, lane)
            held = old or here.reason(lane, queue.queued, self._ref.team, self._bounds.reason(lane))
            reason = held or Reason("nothing", f"nothing limits {lane}: it starts in a moment")
            outage_end = self._bounds.outage_end(here.views[lane], [job], "it fails")
            reason = reason._replace(sentence=f"{reason.sentence}{outage_end}")
            place = queue.place
            eta = here.eta(lane, ahead + 1, queue.cost, self._bounds.concurrency)
            earliest_ms = self._bounds.earliest_ms(lane, place, tasks=step == 0)
            eta = no_earlier(eta, earliest_ms, at_least=reason.constraint in UNTIMED)
            return self._answer(item, step, "waiting", reason, eta, position=place, ahead=ahead, lane=lane)
        return None

    def _later_step(self, item: int, step: int) -> Waiting | None:
        """An evaluation that is ready once the task has ended, or the call that makes several at once."""
        words = "it scores an output that does not exist yet"
        found = None if self._bounds.given else self._explain(item, 0)
        if found is None or found.constraint == "done":
            before = self._plan.spec.evals[step - 1].after
            words = "it gets a call of its own only if the answer to all of them lacks it"
            found = self._explain(item, before) if before else None
        if found is None or found.constraint == "done":
            return None
        reason = Reason("task", f"{words}: {found.sentence}", found.until_ms)
        return self._answer(item, step, "waiting", reason, _later(found.eta))

    def _unready(self, item: int, step: int) -> Waiting | None:
        """The answer for a job that is not queued yet."""
        first = self._bounds.before(item)
        if first is None:
            return self._later_step(item, step) if step else None
        words = f"item {item:,} is not fed yet: {first:,} items are fed before it"
        reason = Reason("feeding", words)
        own = self._here.refusing or self._bounds.feeding()
        if own is not None:
            reason = Reason(own.constraint, f"item {item:,} is not fed yet: {own.sentence}")
            return self._answer(item, step, "waiting", reason, Eta(None, True))
        # One that became the run's after the others were read is not among these.
        lanes = (set(self._traces.lanes()) - set(self._plan.eval_lanes)) & set(self._here.queues)
        if len(lanes) != 1 or len(self._plan.spec.models) != 1 or "{" in self._plan.spec.models[0]:
            return self._answer(item, step, "waiting", reason)
        here, lane = self._here, lanes.pop()
        queue = self._queues.of(self._ref, lane)
        ahead = here.ahead(self._ref, lane, queue.queued + first)
        eta = here.eta(lane, ahead + 1, queue.cost, self._bounds.concurrency)
        held = here.reason(lane, queue.queued, self._ref.team, self._bounds.reason(lane))
        if held is not None:
            reason = Reason("feeding", f"{words}; {held.sentence}", held.until_ms)
        earliest_ms = self._bounds.earliest_ms(lane, queue.queued + first + 1, tasks=True)
        eta = no_earlier(eta, earliest_ms, at_least=held is not None and held.constraint in UNTIMED)
        return self._answer(
            item, step, "waiting", reason, _later(eta) if step else eta, ahead=ahead, lane=lane
        )


def _later(eta: Eta) -> Eta:
    return eta._replace(at_least=True)


def _end_in_words(stored: bytes | None, step: int) -> str:
    """How many attempts a stored result took, if several, and its error; empty without either."""
    if not stored:
        return ""
    result = (JudgeResult if step else TaskResult).from_json(stored)
    attempts = f" after {result.attempts:,} attempts" if result.attempts > 1 else ""
    return f"{attempts}: {result.error}" if result.error else attempts


def _carried(flight: Flight, here: Surroundings) -> Reason:
    """Who has a call in flight, and what becomes of the call if nobody is heard of any more."""
    beat, taken = here.beats.get(flight.worker or ""), span(here.now_ms - flight.granted_ms)
    heard_ms = beat.beat_ms if beat else flight.granted_ms if flight.worker is None else here.now_ms
    lost = here.now_ms - heard_ms >= UNTAKEN_MS
    name = beat.info.name if beat else flight.worker
    if flight.worker is None:
        words = f"it was sent to the workers of {flight.lane} {taken} ago; none has taken it yet"
    elif lost:
        words = (
            f"worker {name} took it {taken} ago, and has sent no heartbeat for {span(here.now_ms - heard_ms)}"
        )
    else:
        words = f"it is being called by worker {name}, for {taken} (dispatch {flight.number})"
    if lost and not here.led:
        return LEADERLESS._replace(sentence=f"{words}; {LEADERLESS.sentence}")
    return Reason("running", f"{words}: it is soon sent again; see `fairlane doctor`" if lost else words)


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
        return found if sees_all else replace(found, unknown=UNREADABLE_BY_TEAMS)

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
        item = existing_item(target, _number(rest[0]), status)
        step = _step(target, rest[1], spec) if len(rest) == 2 else None
        return self._job(status, plan, item, step)

    def _lane(self, name: str) -> Waiting | None:
        """The lane of that name; where nothing is left on it, the one that carries its calls now."""
        lanes = Lanes(self._redis, self._keys)
        found, carrier = None, LaneDirectory.read(self._redis, self._keys).carrier(name)
        if lanes.knows(name):
            found = explain_lane(self._redis, self._keys, name, self._now_ms, self._team)
        left = found is not None and any(part.waits or part.in_flight for part in found.lanes)
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


def existing_item(target: str, number: int | None, status: RunStatus) -> int:
    """The number of an item of the run. Raises `TargetNotFound`."""
    if number is not None and number < status.items:
        return number
    items = f"the items 0 to {status.items - 1}" if status.items else "no items"
    raise TargetNotFound(target, detail=f"run {status.run} has {items}")


def _step(target: str, text: str, spec: RunSpec | None) -> int:
    names = ["task", *(step.name for step in spec.evals)] if spec else ["task"]
    if text in names:
        return names.index(text)
    number = _number(text)
    if number is not None and number < len(names):
        return number
    known = ", ".join(f"{number} ({name})" for number, name in enumerate(names))
    raise TargetNotFound(target, detail=f"the run's steps are {known}")
