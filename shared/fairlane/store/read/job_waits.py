"""Reads a run's jobs that have not ended: their leases and delays, and how far the run is fed."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pydantic import ValidationError

from fairlane.model.results import stored_state
from fairlane.model.run import Plan, RunRef
from fairlane.model.tokens import Entry
from fairlane.store.connection.connect import RedisClient, if_allowed
from fairlane.store.keys import Keys
from fairlane.store.read.turn_reading import TurnReader
from fairlane.store.run_queries import RunFields, RunStates
from fairlane.store.write.budgets import Allowance, Budgets
from fairlane.store.write.lanes.lane_view import HeldModels, read_limits, read_models
from fairlane.store.write.runs.uncalled_jobs import Spent

SCANNED_AT_ONCE = 1000


class Delay(NamedTuple):
    """A job that is tried again at ``due_ms``."""

    job: int
    lane: str
    due_ms: int


class NextJob(NamedTuple):
    """A run's next job on a lane; ``fresh``: never called, neither a retry nor an evaluation of an output."""

    entry: Entry
    fresh: bool


@dataclass(frozen=True, slots=True)
class Flight:
    """A permit that a job holds. ``worker`` is ``None`` until one has taken it."""

    lane: str
    worker: str | None
    granted_ms: int
    number: int


@dataclass(frozen=True, slots=True)
class JobTraces:
    """One job in a run's keys, apart from queues and delays."""

    done: bool
    result: bytes | None
    run_state: str
    flight: Flight | None

    @property
    def result_state(self) -> str | None:
        """The state that the result names."""
        return stored_state(self.result) if self.result else None


class HeldShare(NamedTuple):
    """The most percent of a lane that a team may take, and when its next call may start; ``None``: when one
    of its calls ends.
    """

    most: float
    until_ms: int | None


class RunTraces:
    """Reads one run's jobs. Methods that scan all leases or delays are O(n) in their number."""

    def __init__(self, redis: RedisClient, keys: Keys, ref: RunRef) -> None:
        self._redis, self._keys, self._ref = redis, keys, ref

    @property
    def run(self) -> str:
        """The run's id."""
        return self._ref.run

    @property
    def team(self) -> str:
        """The run's team."""
        return self._ref.team

    def plan(self) -> Plan | None:
        """The run as admitted; ``None`` if it is not, or where another version wrote it."""
        text = self._redis.get(self._keys.plan(self._ref))
        try:
            return Plan.read(text) if text else None
        except ValidationError:
            return None

    def state(self) -> RunFields:
        """The run's counts, and the bounds that it was admitted with; empty if it was not."""
        (run,) = RunStates(self._redis, self._keys).read([self._ref])
        return run

    def unfed_before(self, item: int) -> int | None:
        """Unfed items before this one, where conversations go side by side; ``None`` if it was fed."""
        return TurnReader(self._redis, self._keys).unfed_before(self._ref, item)

    def budgets(self, now_ms: int) -> list[Allowance]:
        """The state of its team's budgets."""
        return Budgets(self._redis, self._keys).of([self._ref.team], now_ms)

    def held_share(self, lane: str) -> HeldShare | None:
        """The team's maximum share of the lane, if that last delayed the team; ``None`` also if this user may
        not read it.
        """
        keys = self._keys
        text = if_allowed(
            lambda: self._redis.hget(keys.reserved_shares(lane), f"held {self._ref.team}"), None
        )
        if text is None:
            return None
        most, until_ms = text.decode().split()
        if until_ms == "0" and self._redis.hget(keys.lane(lane), "teams_wait") != b"1":
            return None
        return HeldShare(100 * float(most), int(until_ms) or None)

    def shut_out(self, lane: str) -> bool:
        """Whether the team's calls alone fail on the lane (``lib/circuit/shut_out.lua``)."""
        return self._is_among(lane, "shut_teams")

    def refused_alone(self, lane: str) -> bool:
        """Whether the provider rejects the team's calls alone (``lib/circuit/refused_teams.lua``)."""
        return self._is_among(lane, "refused_teams")

    def models(self, lane: str) -> HeldModels | None:
        """The models that the lane's server holds; ``None`` if it may call any number."""
        limits = read_limits(self._hash(self._keys.limits(lane)))
        if limits.models_at_once is None:
            return None
        return read_models(self._hash(self._keys.lane(lane)), limits)

    def unanswered_ms(self, jobs: Sequence[int], lane: str) -> int | None:
        """When the first of these jobs' calls failed that no later answer of the lane has followed.

        ``None`` if their failures are their own, or there are none.
        """
        if not jobs:
            return None
        pipeline = self._redis.pipeline(transaction=True)
        pipeline.hmget(self._keys.jobs(self._ref), list(map(str, jobs)))
        pipeline.hget(self._keys.lane(lane), "answered_n")
        counts, answered_n = pipeline.execute()
        answered = int(answered_n or 0)
        unjudged = [spent for spent in map(Spent.parse, counts) if spent.failures and spent.last_n > answered]
        return min((spent.failed_ms for spent in unjudged if spent.failed_ms), default=None)

    def _hash(self, key: str) -> dict[str, str]:
        return {name.decode(): value.decode() for name, value in self._redis.hgetall(key).items()}

    def _is_among(self, lane: str, field: str) -> bool:
        teams = self._redis.hget(self._keys.lane(lane), field) or b""
        return self._ref.team in {each.split(":")[0] for each in teams.decode().split(",")}

    def head(self, lane: str) -> NextJob | None:
        """The run's next job on a lane; ``None`` if it has nothing queued there."""
        keys, ref = self._keys, self._ref
        pipeline = self._redis.pipeline(transaction=True)
        pipeline.lindex(keys.hot(ref, lane), 0)
        pipeline.lindex(keys.fresh(ref, lane), 0)
        hot, fresh = pipeline.execute()
        text = hot or fresh
        return NextJob(Entry.parse(text.decode()), fresh=not hot) if text else None

    def sees_all(self) -> bool:
        """Whether this user may read keys of the whole deployment: leases, delays, workers, the leader."""
        return if_allowed(lambda: self._redis.exists(self._keys.leased) >= 0, otherwise=False)

    def leases(self) -> int:
        """Calls in flight, of all runs; 0 if they may not be counted."""
        return if_allowed(lambda: int(self._redis.zcard(self._keys.leases)), 0)

    def lanes(self) -> list[str]:
        """Lanes on which the run has had jobs."""
        return sorted(lane.decode() for lane in self._redis.smembers(self._keys.run_lanes(self._ref)))

    def delays(self, job: int | None = None) -> Iterator[Delay]:
        """Jobs that wait out a back-off, or one of them."""
        match = f"{self._ref}|*" if job is None else f"{self._ref}|{job}:*"
        if self.sees_all():
            yield from delays_of(self._redis, self._keys, match)

    def flights(self) -> Iterator[Flight]:
        """Permits that jobs of the run hold."""
        match = f"{self._ref}/*"
        if not self.sees_all():
            return
        for _, record in self._redis.hscan_iter(self._keys.leased, match=match, count=SCANNED_AT_ONCE):
            yield _flight(json.loads(record))

    def job(self, job: int) -> JobTraces:
        """The state of one job, apart from queues and delays."""
        keys, ref = self._keys, self._ref
        pipeline = self._redis.pipeline(transaction=True)
        pipeline.getbit(keys.done(ref), job)
        pipeline.hget(keys.results(ref), str(job))
        pipeline.hget(keys.jobs(ref), str(job))
        pipeline.hget(keys.state(ref), "state")
        done, result, tried, state = pipeline.execute()
        record = None
        if tried is not None:
            number = tried.decode().partition(":")[0]
            lease = f"{ref}/{job}/{number}"
            record = if_allowed(lambda: self._redis.hget(keys.leased, lease), None)
        return JobTraces(
            done=bool(done),
            result=result,
            run_state=state.decode() if state else "",
            flight=_flight(json.loads(record)) if record else None,
        )


def delays_of(redis: RedisClient, keys: Keys, match: str = "*") -> Iterator[Delay]:
    """Jobs of any run that wait out a back-off. O(n) in their number."""
    for member, due_ms in redis.zscan_iter(keys.delayed, match=match, count=SCANNED_AT_ONCE):
        _, entry, lane = member.decode().split("|", 2)
        yield Delay(int(entry.partition(":")[0]), lane, int(due_ms))


def _flight(record: dict[str, Any]) -> Flight:
    return Flight(record["lane"], record.get("worker"), int(record["granted_ms"]), int(record["number"]))
