"""Reads what waits on a lane, run by run, and estimates a job's place and start."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from pydantic import ValidationError

from fairlane.model.run import Plan, RunRef
from fairlane.store.connection.connect import if_allowed
from fairlane.store.keys import Stored
from fairlane.store.run_queries import RunStates, ask_each, queue_lengths
from fairlane.store.verbs import script
from fairlane.store.write.attempts import named_keys
from fairlane.store.write.lanes.lane_view import AxisView, LaneView
from fairlane.why.waiting import Eta

MINUTE_MS, DAY_MS = 60_000, 86_400_000
_TRIED_AGAIN = ("circuit", "held", "probing", "blocked", "refused")

LOOKED_AT = 5_000
"""Most retries and evaluations among which a job's position is searched."""

PRIORITIES_READ = 50
"""Most runs of a team on a lane whose priorities are read; further ones count as equal."""

OWN_RUNS_READ = 200
"""A team's latest runs, which stand for its active ones where its user may not read the set of these."""


class Cost(NamedTuple):
    """The mean charge of the sampled jobs when they start."""

    input: float
    output: float

    def on(self, axis: str) -> float:
        """Its charge on one axis."""
        charges = {"tokens": self.input + self.output, "input": self.input, "output": self.output}
        return charges.get(axis, 1.0)


@dataclass(frozen=True, slots=True)
class RunQueue:
    """A run's part of a lane: its queued jobs, and all of its unfed items.

    Jobs of a ``paused`` run wait for no other job, and no other job waits for them.
    """

    ref: RunRef
    queued: int
    unfed: int
    paused: bool = False


@dataclass(frozen=True, slots=True)
class QueueView:
    """One run's queue on a lane: what its next jobs cost, and a job's place in it (1 is next)."""

    queued: int
    cost: Cost
    place: int | None


class Queues(Stored):
    """Reads queues. The cost grows with the number of active runs, not with their jobs."""

    def on(self, lanes: Sequence[str], team: str | None = None) -> dict[str, list[RunQueue]]:
        """Runs with queued jobs, by lane; only those of ``team`` where no more may be read."""
        refs, found = self._active(team), {lane: list[RunQueue]() for lane in lanes}
        runs = RunStates(self._redis, self._keys).read(refs, "items", "handed", "paused_ms")
        queued = queue_lengths(self._redis, self._keys, [(ref, lane) for ref in refs for lane in lanes])
        for ref, run in zip(refs, runs, strict=True):
            unfed = run.count("items") - run.count("handed")
            for lane in lanes:
                if queued[ref, lane]:
                    found[lane].append(RunQueue(ref, queued[ref, lane], unfed, run.paused))
        return found

    def _active(self, team: str | None) -> list[RunRef]:
        active = if_allowed(RunStates(self._redis, self._keys).active, None)
        if active is not None:
            return active
        if team is None:
            return []
        latest = self._redis.zrevrange(self._keys.runs(team), 0, OWN_RUNS_READ - 1)
        return [RunRef(team, run.decode()) for run in latest]

    def of(self, ref: RunRef, lane: str, job: int = -1) -> QueueView:
        """One run's queue, and the position of ``job`` in it."""
        owned = named_keys(self._keys, ref, lane)
        call = script("queue_view").bind(owned, {"job": job, "looked": LOOKED_AT})
        reply = json.loads(call.look(self._redis))
        count = reply["sampled"]
        cost = Cost(reply["input"] / count, reply["output"] / count) if count else Cost(0, 0)
        return QueueView(reply["queued"], cost, reply["position"] or None)

    def priorities(self, refs: Sequence[RunRef]) -> dict[RunRef, int]:
        """The runs' priorities; leaves out runs whose plan cannot be read."""
        some = refs[:PRIORITIES_READ]
        found = {}
        for ref, text in ask_each(self._redis, some, lambda ask, ref: ask.get(self._keys.plan(ref))):
            try:
                found[ref] = Plan.read(text or b"").spec.priority
            except ValidationError:
                continue
        return found


def share_of(team: str, queues: Sequence[RunQueue], weights: Mapping[str, float]) -> float:
    """A team's part of a lane, by weight among the teams that wait for it."""
    teams = {queue.ref.team for queue in queues if not queue.paused} | {team}
    return weights.get(team, 1.0) / sum(weights.get(each, 1.0) for each in teams)


def ahead_of(
    ref: RunRef,
    before: int,
    queues: Sequence[RunQueue],
    weights: Mapping[str, float],
    priorities: Mapping[RunRef, int],
) -> int:
    """About how many jobs start before one that has ``before`` others of its own run before it.

    While that many start, an equal run of the team starts as many, and one with a higher priority all it has.
    Each other team then starts as many as its weight allows beside these. None starts more than it has.
    """
    own = priorities.get(ref, 0)
    team = before
    for queue in queues:
        if queue.ref.team != ref.team or queue.ref == ref or queue.paused:
            continue
        rank, has = priorities.get(queue.ref, own), queue.queued + queue.unfed
        team += has if rank > own else min(has, before) if rank == own else 0
    others: dict[str, int] = {}
    for queue in queues:
        if queue.ref.team != ref.team and not queue.paused:
            others[queue.ref.team] = others.get(queue.ref.team, 0) + queue.queued + queue.unfed
    weight = weights.get(ref.team, 1.0)
    return team + sum(min(has, round(team * weights.get(name, 1.0) / weight)) for name, has in others.items())


def start_of(jobs: int, view: LaneView, cost: Cost, slots: int) -> Eta:
    """When the ``jobs``-th job from now starts (1: the next) on a lane whose workers have ``slots``.

    The slowest axis decides, or the calls in flight (Little's law). The time is ``None`` if only an unknown
    latency or renewal could give it, or if an operator must act first.
    """
    hold = view.hold(jobs)
    if slots == 0 or view.paused or view.parked is not None or (hold and hold.reason == "probing"):
        return Eta(None, True)
    shut_until_ms = (view.shut.until_ms if view.shut else None) or view.now_ms
    gap_ms = view.limits.min_gap_ms
    times = [float(max(shut_until_ms, (view.started_ms or 0) + gap_ms) + (jobs - 1) * gap_ms)]
    for name, axis in view.axes.items():
        at_ms = _by_axis(name, axis, jobs, cost, shut_until_ms)
        if at_ms is None:
            return Eta(None, True)
        times.append(at_ms)
    in_flight_ms = _by_concurrency(view, jobs, min(slots, view.places.most or slots))
    if in_flight_ms is not None:
        times.append(shut_until_ms + in_flight_ms)
    elif hold is not None and hold.reason in ("window", "slots"):
        return Eta(None, True)
    at_least = hold is not None and hold.reason in _TRIED_AGAIN and not view.asked_to_wait
    return Eta(math.ceil(max(times)), at_least)


def _by_axis(name: str, axis: AxisView, jobs: int, cost: Cost, from_ms: int) -> float | None:
    if not axis.allowed:
        return from_ms
    # A job larger than the bucket starts when the bucket is full, and leaves a debt.
    last = cost.on(name) if axis.full is None else min(cost.on(name), axis.full)
    missing = (jobs - 1) * cost.on(name) + last - (axis.level or 0.0)
    if missing <= 0:
        return from_ms
    if name == "day":
        return axis.renews_ms and axis.renews_ms + math.ceil(missing / axis.allowed - 1) * DAY_MS
    return max(from_ms, axis.from_ms or 0) + missing / axis.allowed * MINUTE_MS


def _by_concurrency(view: LaneView, jobs: int, concurrency: int) -> float | None:
    waits = jobs - max(0, concurrency - view.in_flight)
    if waits <= 0:
        return 0.0
    return None if view.latency_ms is None else waits * view.latency_ms / concurrency
