"""Reads once per question what `why` compares: the leader, workers, lanes and their queues."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from redis.exceptions import NoPermissionError

from fairlane.model.lane import ENDPOINT_PREFIXES, FUNCTIONS
from fairlane.model.run import Plan, RunRef
from fairlane.store.connection.connect import RedisClient, if_allowed
from fairlane.store.keys import Keys
from fairlane.store.read.job_waits import RunTraces
from fairlane.store.read.mistyped import Mistyped, damaged_runs, refusal_of
from fairlane.store.read.overview import DeploymentReader
from fairlane.store.read.reading import LaneDirectory, RunReader
from fairlane.store.write.lanes.lanes import Lanes
from fairlane.store.write.workers import Beat, WorkerInfo, Workers
from fairlane.why.queues import Cost, Queues, ahead_of, share_of, start_of
from fairlane.why.reasons import CAPACITY_CONSTRAINTS, Reason, reason_of
from fairlane.why.waiting import Eta

_SMALLEST = Cost(1, 1)
MOST_NAMED = 3
MANY_SLOTS = 1_000_000  # an unknown number of slots limits nothing


class Lack(NamedTuple):
    """Why workers cannot serve a lane's connection, and the remedy."""

    problem: str
    remedy: str
    of_one_worker: bool = False

    def __str__(self) -> str:
        return self.problem if self.of_one_worker else f"{self.problem}; {self.remedy}"


def lacking(lane: str, workers: Sequence[WorkerInfo]) -> Lack | None:
    """Why none of ``workers`` serves a lane; ``None`` if that is not known."""
    connection = lane.partition(":")[0]
    for info in workers:
        if connection in info.unusable:
            problem = f"{info.name} cannot use {connection}: {info.unusable[connection]}"
            return Lack(problem, "correct that where the worker runs, and start it again", of_one_worker=True)
    reported = bool(workers) and all(info.connections for info in workers)
    named = connection not in (FUNCTIONS, *ENDPOINT_PREFIXES)
    if not reported or not named or any(connection in info.connections for info in workers):
        return None
    problem = f"none has a connection {connection!r}"
    return Lack(problem, "add it to the workers' settings, and restart them")


DRAINED = "`fairlane drain --all --undo` has them take work again"


def _drained(lane: str, workers: Sequence[WorkerInfo]) -> Lack | None:
    """That workers which an operator has drained would serve a lane; ``None`` if none would."""
    alone = all(info.stopping for info in workers)
    count = sum(info.draining and (alone or lane in info.lanes) for info in workers)
    return Lack(f"{count:,} drained or draining", DRAINED) if count else None


class Surroundings:
    """The leader, workers, lanes and their queues at one moment.

    ``weights`` are those of the caller's settings, by team; a team that they do not name has 1.
    A user who may read only ``team``'s keys gets answers as if a scheduler led and workers served.
    """

    def __init__(
        self,
        redis: RedisClient,
        keys: Keys,
        lanes: Sequence[str],
        weights: Mapping[str, float],
        now_ms: str | int,
        team: str | None = None,
        ref: RunRef | None = None,
    ) -> None:
        """``ref``: the run that the question is about. A damaged key of it, or of the run that it continues,
        holds it up, too.
        """
        self._weights, self._queues = weights, Queues(redis, keys)
        self.views = dict(zip(lanes, Lanes(redis, keys).views(lanes, now_ms), strict=True))
        self.queues = self._queues.on(lanes, team)
        self._known_lanes = Lanes(redis, keys).knows
        self._published = LaneDirectory.read(redis, keys)
        self._workers = list[WorkerInfo]()
        self.beats: dict[str, Beat] = {}
        """Of workers that have not left, by id."""
        beats = if_allowed(lambda: Workers(keys).beats(redis), None)
        self._in_part = beats is None
        self._slots, self._lacking = dict.fromkeys(lanes, MANY_SLOTS), dict[str, Lack | None]()
        if beats is not None:
            self.beats = {beat.worker: beat for beat in beats}
            infos = [beat.info for beat in beats]
            working = self._workers = [info for info in infos if not info.stopping]
            self._slots = {lane: sum(info.slots for info in working if lane in info.lanes) for lane in lanes}
            self._lacking = {lane: _drained(lane, infos) or lacking(lane, working) for lane in lanes}
        self.now_ms = RunReader(redis, keys).now_ms() if now_ms == "" else int(now_ms)
        """Server milliseconds at which everything was read."""
        deployment = DeploymentReader(redis, keys)
        self._leader, self.led = None, True
        with suppress(NoPermissionError):
            self._leader = deployment.leader()
            self.led = self._leader is not None and self._leader.until_ms > self.now_ms
        server = deployment.server()
        refusing = None if server is None else server.refusing
        if ref is not None and refusing is None:
            refusing = refusal_of(if_allowed(lambda: _damaged(redis, keys, ref), []))
        self.refusing: Reason | None = None
        if refusing is not None:
            ends = f"nothing starts or is recorded until that ends. {refusing.remedy}"
            self.refusing = Reason("scheduler", f"{refusing.problem}: {ends}")

    def awaited(self, plan: Plan | None) -> str:
        """A sentence if the leader lacks a connection of the run's models; "" if it has all.

        It does not check models that rows choose.
        """
        names = self._published.names
        if plan is None or names is None:
            return ""
        for model in plan.spec.models:
            connection = model.partition(":")[0].strip()
            if "{" in model or connection == FUNCTIONS or connection in names or self._known_lanes(model):
                continue
            holders = sorted(info.name for info in self._workers if connection in info.connections)
            have = f", which {', '.join(holders[:MOST_NAMED])} have" if holders else ""
            return (
                f"the scheduler that leads has no connection {connection!r}{have}: its items wait until the "
                "schedulers restart with settings that have it"
            )
        return ""

    def old_scheduler(self, version: int) -> Reason | None:
        """A reason if the leader cannot read a spec of this version, and so ignores the run."""
        leader = self._leader
        if leader is None or not self.led or version <= leader.specs:
            return None
        return Reason(
            "scheduler",
            f"{leader.identity}, which leads, is too old for this run and ignores it: it reads specs up "
            f"to version {leader.specs}, and the run's has {version}. Upgrade the schedulers",
        )

    def too_old(self, version: int, lane: str) -> Reason | None:
        """A reason if the leader, or all workers of the lane, cannot read a spec of this version."""
        if old := self.old_scheduler(version):
            return old
        serving = [info for info in self._workers if lane in info.lanes]
        if any(info.specs >= version for info in serving) or not serving:
            return None
        return Reason("slots", self.old_workers(version, lane))

    def old_workers(self, version: int, lane: str) -> str:
        """Which workers of a lane cannot read a spec of this version, and the remedy; "" if all can."""
        serving = [info for info in self._workers if lane in info.lanes]
        old = sorted(info.name for info in serving if info.specs < version)
        if not old:
            return ""
        how_many = "all" if len(old) == len(serving) else "some"
        more = f" and {len(old) - MOST_NAMED:,} more" if len(old) > MOST_NAMED else ""
        who = f"{', '.join(old[:MOST_NAMED])}{more}"
        return (
            f"{how_many} workers of {lane} are too old for this run and requeue its jobs: {who}; the run's "
            f"spec has version {version}. Upgrade the workers"
        )

    def depth(self, lane: str) -> int:
        """Jobs queued on a lane, over all runs that are not paused."""
        return sum(queue.queued for queue in self.queues[lane] if not queue.paused)

    def share(self, team: str, lane: str) -> float:
        """The team's part of a lane that several teams use."""
        return share_of(team, self.queues[lane], self._weights)

    def reason(
        self, lane: str, queued: int, team: str | None = None, own: Reason | None = None
    ) -> Reason | None:
        """What limits ``queued`` jobs of a lane, those of ``team`` if one is named.

        A blocked or unserved lane comes before ``own``, the run's bound. That comes before a used-up limit of
        the lane, unless this lasts longer.
        """
        if queued and self.refusing is not None:
            return self.refusing
        share = 1.0 if team is None else self.share(team, lane)
        slots, lack = self._slots[lane], self._lacking.get(lane)
        found = reason_of(self.views[lane], queued, slots, led=self.led, share=share, lacking=str(lack or ""))
        if own is None or found is None:
            return own or found
        used_up = found.constraint in CAPACITY_CONSTRAINTS or found.constraint == "fairness"
        if not used_up or not self._slots[lane]:
            return found
        if own.until_ms is None:
            return own
        next_ms = found.until_ms or self.eta(lane, 1, _SMALLEST).at_ms
        return found if next_ms is not None and next_ms > own.until_ms else own

    def ahead(self, ref: RunRef, lane: str, before: int) -> int:
        """About how many jobs start before one with ``before`` others of its own run before it."""
        queues = self.queues[lane]
        rivals = [queue.ref for queue in queues if queue.ref.team == ref.team and queue.ref != ref]
        priorities = self._queues.priorities([ref, *rivals]) if rivals else {}
        return ahead_of(ref, before, queues, self._weights, priorities)

    def eta(self, lane: str, jobs: int, cost: Cost, concurrency: int | None = None) -> Eta:
        """When the ``jobs``-th job from now starts. ``concurrency``: the most calls of its run in flight."""
        if not self.led or self.refusing is not None:
            return Eta(None, True)
        slots = self._slots[lane] if concurrency is None else min(self._slots[lane], concurrency)
        found = start_of(jobs, self.views[lane], cost, slots)
        return found._replace(at_least=True) if self._in_part else found

    def cost(self, lane: str, ref: RunRef) -> Cost:
        """The mean charge of the run's next jobs on a lane."""
        return self._queues.of(ref, lane).cost


def _damaged(redis: RedisClient, keys: Keys, ref: RunRef) -> list[Mistyped]:
    """The keys of wrong types of a run; without any, those of the run that it continues."""
    own = damaged_runs(redis, keys, [ref])
    plan = None if own else RunTraces(redis, keys, ref).plan()
    old = [plan.spec.continued] if plan and plan.spec.continued else []
    return [each for found in (own or damaged_runs(redis, keys, old)).values() for each in found]
