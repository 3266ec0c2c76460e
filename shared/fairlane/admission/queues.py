"""What waits on a lane, run by run, and how much of it goes first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pydantic import ValidationError

from fairlane.admission.eta import Cost
from fairlane.run import Plan
from fairlane.store.allowed import if_allowed
from fairlane.store.attempts import headroom_keys
from fairlane.store.connect import RedisClient
from fairlane.store.keys import Keys, RunRef
from fairlane.store.script import script

LOOKED_AT = 5_000
"""Retries and judges among which a job's place is looked for."""

PRIORITIES_READ = 50
"""A team's runs on a lane whose priority is read; further ones count as equal."""


OWN_RUNS_READ = 200
"""A team's latest runs, among which the active ones are looked for where it may not ask which are."""


@dataclass(frozen=True, slots=True)
class RunQueue:
    """A run's part of a lane: jobs that are queued, and all of its items that are not handed out yet.

    Those of a run that is ``paused`` wait for nobody, and nobody waits for them.
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


class Queues:
    """Reads queues. The cost grows with the runs that are active, not with what they hold."""

    def __init__(self, redis: RedisClient, keys: Keys) -> None:
        self._redis, self._keys = redis, keys

    def on(self, lanes: Sequence[str], team: str | None = None) -> dict[str, list[RunQueue]]:
        """Who has something queued, by lane; of ``team`` alone where no more may be read."""
        keys = self._keys
        refs = self._active(team)
        pipeline = self._redis.pipeline(transaction=False)
        for ref in refs:
            pipeline.hmget(keys.state(ref), "items", "handed", "paused_ms")
            for lane in lanes:
                pipeline.llen(keys.hot(ref, lane))
                pipeline.llen(keys.fresh(ref, lane))
        replies, found = iter(pipeline.execute()), {lane: list[RunQueue]() for lane in lanes}
        for ref in refs:
            items, handed, paused_ms = next(replies)
            unfed, paused = int(items or 0) - int(handed or 0), paused_ms is not None
            for lane in lanes:
                if queued := next(replies) + next(replies):
                    found[lane].append(RunQueue(ref, queued, unfed, paused))
        return found

    def _active(self, team: str | None) -> list[RunRef]:
        active = if_allowed(lambda: self._redis.smembers(self._keys.active), None)
        if active is not None:
            return [RunRef.parse(ref.decode()) for ref in active]
        if team is None:
            return []
        latest = self._redis.zrevrange(self._keys.runs(team), 0, OWN_RUNS_READ - 1)
        return [RunRef(team, run.decode()) for run in latest]

    def of(self, ref: RunRef, lane: str, job: int = -1) -> QueueView:
        """One run's queue, and where ``job`` stands in it."""
        keys = self._keys
        owned = {
            "lane": keys.lane(lane),
            "limits": keys.limits(lane),
            "state": keys.state(ref),
            "hot": keys.hot(ref, lane),
            "fresh": keys.fresh(ref, lane),
            **headroom_keys(keys, lane),
        }
        call = script("queue_view").bind(owned, {"job": job, "looked": LOOKED_AT})
        queued, count, tokens_in, tokens_out, place = call.look(self._redis)
        cost = Cost(int(tokens_in) / count, int(tokens_out) / count) if count else Cost(0, 0)
        return QueueView(int(queued), cost, int(place) or None)

    def priorities(self, refs: Sequence[RunRef]) -> dict[RunRef, int]:
        """How these runs rank among their team's; runs that cannot be read are left out."""
        some = refs[:PRIORITIES_READ]
        pipeline = self._redis.pipeline(transaction=False)
        for ref in some:
            pipeline.get(self._keys.plan(ref))
        found = {}
        for ref, text in zip(some, pipeline.execute(), strict=True):
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

    While that many start, an equal run of the team starts as many and one with a higher priority all it has;
    each other team then starts as many as its weight allows beside these. None starts more than it has.
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
