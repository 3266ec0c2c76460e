"""A deployment under a manual clock: one method for each verb, for tests that play all roles in turn."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from fairlane.core.clock import TIME_FIELDS, ManualClock, time_at
from fairlane.model.choices import Message
from fairlane.model.decision import Cost, Defer
from fairlane.model.ending import CANCELLED, Completion, ReadyJob, RecordedJob
from fairlane.model.evaluators import Judge
from fairlane.model.job import Attempt, Claim, Feedback, JobState, Reported, Signal
from fairlane.model.lane import LaneLimits
from fairlane.model.run import Plan, RunRef, RunSpec
from fairlane.model.tokens import Entry, Estimate, Usage
from fairlane.store.connection.connect import RedisClient
from fairlane.store.keys import Keys
from fairlane.store.script import Functions
from fairlane.store.write.attempts import Attempts
from fairlane.store.write.lanes.lanes import Lanes
from fairlane.store.write.leader import LeaderLease, Leadership
from fairlane.store.write.leases import Leases
from fairlane.store.write.permits import Grant, Offer, ReservedShare
from fairlane.store.write.runs.runs import Runs
from fairlane.store.write.workers import Workers

FOREVER_MS = 10**12
LEASE_MS = 15_000
TTL_MS = 60_000
UPLOAD_TTL_S = 3600
PLENTY = 10**6
SPENT = '{"s":"failed"}'


BURST_S = 1.266
"""The burst of a lane without settings; permits use 900 ms of it: see `permit_burst_ms`."""


def permit_burst_ms(burst_seconds: float) -> int:
    """The part of a lane's burst that permits use; late claims and late sends use the rest."""
    ms = round(burst_seconds * 1000)
    return ms - min(50, ms // 4) - min(400, ms // 4)


class Deployment:
    """Client, scheduler and workers of one deployment. Only ``clock`` gives the time."""

    def __init__(self, redis: RedisClient, leader: str = "scheduler-1") -> None:
        self.redis: RedisClient = redis
        self.keys, self.clock = Keys("test"), ManualClock()
        self.runs = Runs(redis, self.keys, TTL_MS)
        self.lanes = Lanes(redis, self.keys)
        self.leases = Leases(redis, self.keys)
        self.attempts = Attempts(self.keys)
        self.workers = Workers(self.keys)
        self.functions = Functions()
        self.epoch = self._stepped_ms = self._steps = 0
        self.elect(leader)

    @property
    def redis_ms(self) -> int:
        """Redis's clock: what scripts take as ``now_ms``."""
        return self.clock.now_ms() + self._stepped_ms

    @property
    def now_ms(self) -> int:
        """The deployment's time: Redis's, until that steps."""
        if not self._steps:
            return self.redis_ms
        return time_at(self.redis_ms, self.redis.hmget(self.keys.clock, *TIME_FIELDS)).now_ms

    def advance(self, milliseconds: int) -> None:
        self.clock.advance(milliseconds / 1000)

    def step(self, milliseconds: int) -> None:
        """Set Redis's clock forward, or back by a negative number. Nobody has bid since."""
        self._stepped_ms += milliseconds
        self._steps += 1

    def bid(self) -> Leadership:
        """The leader renews its lease, as it does once a second."""
        return self.leader(self._identity).acquire(self.redis_ms)

    def leader(self, identity: str, lease_ms: int = FOREVER_MS) -> LeaderLease:
        return LeaderLease(self.redis, self.keys, identity, lease_ms)

    def elect(self, identity: str, lease_ms: int = FOREVER_MS) -> int:
        """End the present leader's lease and give it to ``identity``. Returns the new epoch."""
        self._identity = identity
        self.redis.hset(self.keys.leader, "until_ms", "0")
        self.epoch = self.leader(identity, lease_ms).acquire(self.redis_ms).epoch
        return self.epoch

    def submit(
        self, team: str = "search", run: str = "r1", rows: int = 10, judges: Sequence[str] = ()
    ) -> RunRef:
        """Upload and admit a run whose judges call on the lanes ``judges``."""
        spec = make_spec(team, run, rows, len(judges), self.now_ms)
        ref = self.upload(spec)
        self.runs.admit(Plan(spec=spec, eval_lanes=tuple(judges)), self.epoch, self.redis_ms)
        return ref

    def upload(self, spec: RunSpec) -> RunRef:
        ref = RunRef(spec.team, spec.run)
        self.redis.set(self.keys.spec(ref), spec.model_dump_json(), ex=UPLOAD_TTL_S)
        self.redis.hset(self.keys.rows(ref), "0", b"rows")
        self.redis.expire(self.keys.rows(ref), UPLOAD_TTL_S)
        return ref

    def lane(self, lane: str = "sim:fast", **limits: float | str | None) -> str:
        """Add a lane with these `LaneLimits`; ``requests_per_minute=None``: it must detect its rate."""
        stated = {"requests_per_minute": 0, **limits}
        if any(value for name, value in limits.items() if name.endswith("per_minute")):
            stated.setdefault("burst_seconds", BURST_S)
        known = {name: value for name, value in stated.items() if value is not None}
        self.lanes.configure(lane, LaneLimits.model_validate(known))
        return lane

    def feed(self, ref: RunRef, count: int, lane: str = "sim:fast", tokens: int | Estimate = 10) -> int:
        """Feed the next ``count`` items, all on one lane."""
        start, steps = self.runs.cursor(ref), self.steps(ref)
        entries = {lane: [entry(item * steps, tokens) for item in range(start, start + count)]}
        return self.runs.feed(ref, self.epoch, start, start + count, entries, [], self.redis_ms)

    def queued_lane(
        self,
        jobs: int = 10,
        lane: str = "sim:fast",
        tokens: int | Estimate = 10,
        run: str = "r1",
        **limits: float | str | None,
    ) -> RunRef:
        """A lane with ``jobs`` jobs of one run queued on it."""
        self.lane(lane, **limits)
        ref = self.submit(run=run, rows=jobs)
        self.feed(ref, jobs, lane, tokens)
        return ref

    def unknown_lane(self, jobs: int = 1000, **limits: float | str | None) -> RunRef:
        """A lane with queued jobs, without a configured or reported rate of requests."""
        return self.queued_lane(jobs=jobs, requests_per_minute=None, **limits)

    def ask(
        self,
        offers: Sequence[Offer] | RunRef,
        lane: str = "sim:fast",
        count: int = PLENTY,
        room: int = PLENTY,
        max_in_flight: int = PLENTY,
        shares: Mapping[str, ReservedShare] | None = None,
    ) -> Grant:
        """Request permits of a lane as the leader. Fails if another scheduler leads."""
        if isinstance(offers, RunRef):
            offers = [Offer(offers, count)]
        grant = self.lanes.grant(
            lane,
            self.epoch,
            offers,
            room=room,
            max_in_flight=max_in_flight,
            lease_ms=LEASE_MS,
            now_ms=self.redis_ms,
            shares=shares,
        )
        assert grant is not None, "not the leader"
        return grant

    def take(self, ref: RunRef, count: int = PLENTY, lane: str = "sim:fast") -> list[Attempt]:
        """The attempts for which a lane grants a run permits now."""
        return attempts_of(self.ask(ref, lane, count), [Offer(ref, count)], lane)

    def start(self, ref: RunRef, count: int = 1, lane: str = "sim:fast", worker: str = "w1") -> list[Attempt]:
        """Attempts that are granted and claimed. Fails if the lane grants fewer than ``count``."""
        taken = self.take(ref, count, lane)
        assert len(taken) == count, f"wanted {count} permits, got {len(taken)}"
        for attempt in taken:
            assert self.claim(attempt, worker) is not None
        return taken

    def start_next(
        self, ref: RunRef, lane: str = "sim:fast", tries: int = 20, step_ms: int | None = None
    ) -> Attempt:
        """The next attempt, claimed, as soon as its lane grants one.

        The clock advances by what the lane waits for, or by ``step_ms``, at most ``tries`` times.
        """
        for _ in range(tries):
            grant = self.ask(ref, lane, count=1)
            if grant.permits:
                [attempt] = attempts_of(grant, [Offer(ref, 1)], lane)
                assert self.claim(attempt) is not None
                return attempt
            self.advance(max(1, grant.wait_ms) if step_ms is None else step_ms)
        raise AssertionError(f"the lane grants nothing: {grant.reason}")

    def pass_through(self, ref: RunRef, lane: str = "sim:fast") -> int:
        """How many calls a lane lets start now. They end at once, and teach it nothing."""
        taken = self.take(ref, lane=lane)
        for attempt in taken:
            assert self.claim(attempt) is not None
            self.finish(attempt, signal="none")
        return len(taken)

    def claim(self, attempt: Attempt, worker: str = "w1") -> Claim | None:
        call = self.attempts.claim(attempt, worker, LEASE_MS, self.redis_ms)
        return Claim.of(self.functions.run(self.redis, call))

    def wait_for(
        self, attempt: Attempt, worker: str = "w1", handle: str = "h:1", *, frees_slot: bool = True
    ) -> bool:
        call = self.attempts.wait_for(attempt, worker, handle, frees_slot=frees_slot)
        return bool(self.functions.run(self.redis, call) == 1)

    def finish(
        self,
        attempt: Attempt,
        worker: str = "w1",
        signal: Signal = "ok",
        state: JobState = JobState.SUCCEEDED,
        used: int | Usage | None = None,
        retry_after_ms: int | None = None,
        follow: Sequence[ReadyJob | RecordedJob] = (),
    ) -> Reported | None:
        call = self.attempts.finish(
            attempt,
            worker,
            Feedback(signal, usage(used), retry_after_ms),
            Completion(state, payload(state), tuple(follow)),
            self.redis_ms,
        )
        return Reported.of(self.functions.run(self.redis, call))

    def defer(
        self,
        attempt: Attempt,
        worker: str = "w1",
        signal: Signal = "none",
        used: int | Usage | None = None,
        retry_after_ms: int | None = None,
        reason: str = "",
        delay_ms: int = 0,
        cost: Cost = "nothing",
        max_attempts: int = 0,
        rate_limited: bool = False,
        handle: str | None = None,
        sent: bool | None = None,
    ) -> Reported | None:
        """``sent``: whether the call left; by default all do but those that teach their lane nothing."""
        call = self.attempts.defer(
            attempt,
            worker,
            Defer(
                Feedback(
                    signal,
                    usage(used),
                    retry_after_ms,
                    reason,
                    sent=signal != "none" if sent is None else sent,
                ),
                delay_ms=delay_ms,
                cost=cost,
                max_attempts=max_attempts,
                rate_limited=rate_limited,
            ),
            handle=handle,
            now_ms=self.redis_ms,
        )
        return Reported.of(self.functions.run(self.redis, call))

    def report(
        self, attempt: Attempt, feedback: Feedback, *, done: bool, worker: str = "w1"
    ) -> Reported | None:
        """End an attempt; the lane learns ``feedback``. A job that is not finished is requeued at once."""
        if done:
            state = JobState.SUCCEEDED
            call = self.attempts.finish(
                attempt, worker, feedback, Completion(state, payload(state)), self.redis_ms
            )
        else:
            call = self.attempts.defer(attempt, worker, Defer(feedback), now_ms=self.redis_ms)
        return Reported.of(self.functions.run(self.redis, call))

    def recover(
        self,
        attempt: Attempt,
        dead_worker: str = "",
        max_attempts: int = 3,
        follow: Sequence[RecordedJob] = (),
        worker_timeout_ms: int = 0,
    ) -> int:
        call = self.attempts.recover(
            attempt,
            self.epoch,
            completion=Completion(JobState.FAILED, SPENT, tuple(follow)),
            worker=dead_worker,
            worker_timeout_ms=worker_timeout_ms,
            max_attempts=max_attempts,
            now_ms=self.redis_ms,
        )
        return int(self.functions.run(self.redis, call))

    def next_due_ms(self) -> int | None:
        """The time at which the next back-off ends."""
        first = self.redis.zrange(self.keys.delayed, 0, 0, withscores=True)
        return int(first[0][1]) if first else None

    def promote(self) -> int:
        """Queue all jobs whose back-off has ended. Returns how many."""
        return sum(self.runs.promote(job, self.redis_ms) for job in self.runs.delayed(self.now_ms))

    def cancel(self, ref: RunRef) -> int:
        return self.runs.end(ref, self.lanes.names(), CANCELLED, self.epoch, self.redis_ms)

    def steps(self, ref: RunRef) -> int:
        return int(self.redis.hget(self.keys.state(ref), "steps") or 1)

    def state(self, ref: RunRef) -> dict[str, str]:
        return self.hash(self.keys.state(ref))

    def count(self, ref: RunRef, field: str) -> int:
        return int(self.state(ref).get(field, 0))

    def lane_state(self, lane: str = "sim:fast") -> dict[str, str]:
        return self.hash(self.keys.lane(lane))

    def lease(self, attempt: Attempt) -> dict[str, object] | None:
        record = self.redis.hget(self.keys.leased, attempt.id)
        return None if record is None else dict(json.loads(record))

    def dirty(self) -> set[str]:
        """Take the lanes and runs for which the scheduler was woken."""
        shown = {name.decode() for name in self.redis.smembers(self.keys.dirty)}
        self.redis.delete(self.keys.dirty)
        return shown

    def hash(self, key: str) -> dict[str, str]:
        flat: Mapping[bytes, bytes] = self.redis.hgetall(key)
        return {name.decode(): value.decode() for name, value in flat.items()}

    def list(self, key: str) -> list[str]:
        return [entry.decode() for entry in self.redis.lrange(key, 0, -1)]


def make_spec(team: str, run: str, rows: int, judges: int, submitted_ms: int) -> RunSpec:
    """A run of ``rows`` items with one prompt, one model and ``judges`` judges."""
    return RunSpec(
        run=run,
        team=team,
        name=run,
        prompts=((Message(role="user", content="{{ question }}"),),),
        models=("sim:fast",),
        evaluators=tuple(
            Judge(name=f"judge{n}", model="sim:judge", template="{{ output }}", choices={"yes": 1.0})
            for n in range(judges)
        ),
        rows=rows,
        page_rows=1000,
        submitted_ms=submitted_ms,
    )


def entry(job: int, tokens: int | Estimate, kind: int = 0) -> Entry:
    """A queued job; ``tokens`` as a plain number is output."""
    return Entry(job, Estimate(0, tokens) if isinstance(tokens, int) else tokens, kind)


def usage(used: int | Usage | None) -> Usage:
    """The usage that a provider reports; a plain number is output."""
    if isinstance(used, Usage):
        return used
    return Usage() if used is None else Usage(0, used)


def attempts_of(grant: Grant, offers: Sequence[Offer], lane: str) -> list[Attempt]:
    """The attempts of a grant, as the dispatcher publishes them."""
    return [
        Attempt(offers[permit.offer].ref.run, offers[permit.offer].ref.team, permit.job, permit.number, lane)
        for permit in grant.permits
    ]


def payload(state: JobState) -> str:
    return json.dumps({"s": state})
