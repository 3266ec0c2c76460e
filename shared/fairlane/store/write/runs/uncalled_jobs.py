"""Fails queued jobs without a call: their lane is down, or refusals hold the run's jobs for their model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol, TypeAlias

from fairlane.model.ending import ReadyJob, RecordedJob, SessionCompletion
from fairlane.model.run import RunRef
from fairlane.model.tokens import Entry
from fairlane.store.connection.connect import RedisClient
from fairlane.store.keys import Keys
from fairlane.store.verbs import script
from fairlane.store.write.attempts import follow_json, named_keys

Cause: TypeAlias = Literal["outage", "refusals"]
"""Why a job is not called. It fails only while the cause lasts."""


class JobCompletion(Protocol):
    """What `UncalledJobs.fail` writes of a job; `fairlane.pipeline.completion.Completion` is one."""

    @property
    def payload(self) -> str:
        """Its stored result."""
        ...

    @property
    def follow(self) -> Sequence[ReadyJob | RecordedJob]:
        """Evaluations that follow it."""
        ...

    @property
    def session(self) -> SessionCompletion | None:
        """Its item's part of a session, if that is complete."""
        ...


class QueuedJob(NamedTuple):
    """A job in a queue: the queue's key, its entry there, and how many attempts it has used."""

    queue: str
    entry: str
    attempts: int


class UncalledJobs:
    """For the leader: fenced by its epoch."""

    def __init__(self, redis: RedisClient, keys: Keys) -> None:
        self.redis, self.keys = redis, keys

    def first_queued(self, ref: RunRef, lane: str, most: int) -> list[QueuedJob]:
        """The first jobs of the run's queue on a lane that has any; none for a ``most`` of 0 or less."""
        if most <= 0:  # a range to -1 would be the whole queue
            return []
        for queue in (self.keys.hot(ref, lane), self.keys.fresh(ref, lane)):
            if found := [entry.decode() for entry in self.redis.lrange(queue, 0, most - 1)]:
                jobs = [str(Entry.parse(entry).job) for entry in found]
                counts = self.redis.hmget(self.keys.jobs(ref), jobs)
                return [QueuedJob(queue, *each) for each in zip(found, map(attempts_of, counts), strict=True)]
        return []

    def fail(
        self,
        ref: RunRef,
        lane: str,
        queue: str,
        entry: str,
        cause: Cause,
        completion: JobCompletion,
        epoch: int,
        now_ms: str | int = "",
    ) -> int:
        """Fail a queue's first job while ``cause`` lasts. 1: failed, 2: and the run has ended, 0: not."""
        keys, session = self.keys, completion.session
        following = [each.lane for each in completion.follow if isinstance(each, ReadyJob)]
        following += session.lanes if session else []
        call = script("job_fail").bind(
            named_keys(keys, ref, lane, queue=queue, hot=[keys.hot(ref, each) for each in following]),
            {
                "now_ms": now_ms,
                "epoch": epoch,
                "channel": keys.wake,
                "ref": str(ref),
                "name": lane,
                "cause": cause,
                "entry": entry,
                "payload": completion.payload,
                "follow": follow_json(completion.follow),
                "joined": session.to_json() if session else "",
            },
        )
        return int(call.run(self.redis))


def attempts_of(counts: bytes | None) -> int:
    """Of a job's counts, "dispatches:attempts:…" (lib/job/attempt_counts.lua); without any, 0."""
    return int(counts.split(b":")[1]) if counts else 0
