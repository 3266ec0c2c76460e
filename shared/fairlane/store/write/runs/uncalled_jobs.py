"""Fails jobs without a call: their lane answers no call, or their model rejected the run's first calls."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

from fairlane.model.ending import Completion
from fairlane.model.run import RunRef
from fairlane.model.tokens import NO_UNKEPT, Entry, Unkept
from fairlane.store.keys import Stored
from fairlane.store.run_queries import ask_each
from fairlane.store.write.attempts import bound, ended_values, following_queues, named_keys
from fairlane.store.write.runs.runs import Delayed

SCANNED_AT_ONCE = 2000  # delayed jobs of a page: some 3 ms

Cause: TypeAlias = Literal["outage", "unanswered", "refusals"]
"""Why a job is not called (``lib/job/uncalled.lua``). It fails only while the cause lasts."""


class Spent(NamedTuple):
    """A job's used attempts, and its paid answers that were not kept (``unkept``).

    ``failures`` may be the lane's fault: the first ended at ``failed_ms`` (server time; 0: unknown), and the
    last had the permit ``last_n``.
    """

    attempts: int = 0
    failures: int = 0
    last_n: int = 0
    failed_ms: int = 0
    unkept: Unkept = NO_UNKEPT

    @classmethod
    def parse(cls, counts: bytes | None) -> Spent:
        """Of a job's counts (``lib/job/attempt_counts.lua``); nothing if it has none."""
        fields = (counts or b"0:0:0").decode().split(":")
        missing = [0] * (14 - max(4, len(fields)))
        further = [*map(int, fields[4:14]), *missing]
        failures, last_n, _, _, _, *answers, failed_ms = further
        unkept = Unkept.from_list(answers) if answers[0] else NO_UNKEPT
        return cls(int(fields[1]), failures, last_n, failed_ms, unkept)


class QueuedJob(NamedTuple):
    """A job in a queue: the queue's key, its entry there, and what it has spent."""

    queue: str
    entry: str
    spent: Spent


class UncalledJobs(Stored):
    """Fails jobs without a call, for the leader: fenced by its epoch."""

    def first_queued(self, ref: RunRef, lane: str, most: int) -> list[QueuedJob]:
        """Up to ``most`` first jobs of the run's retries on a lane, or if it has none, of its fresh jobs."""
        if most <= 0:  # a range to -1 would be the whole queue
            return []
        for queue in (self._keys.hot(ref, lane), self._keys.fresh(ref, lane)):
            if found := [entry.decode() for entry in self._redis.lrange(queue, 0, most - 1)]:
                jobs = [str(Entry.parse(entry).job) for entry in found]
                counts = self._redis.hmget(self._keys.jobs(ref), jobs)
                return [QueuedJob(queue, *each) for each in zip(found, map(Spent.parse, counts), strict=True)]
        return []

    def some_delayed(self, cursor: int) -> tuple[int, list[Delayed]]:
        """A page of the jobs that wait for their retry, and the cursor of the next one; 0 begins and ends.

        A job that waits during all pages is in one of them at least.
        """
        following, found = self._redis.zscan(self._keys.delayed, cursor, count=SCANNED_AT_ONCE)
        return int(following), [Delayed.parse(member.decode()) for member, _ in found]

    def spent(self, jobs: Sequence[Delayed]) -> list[Spent]:
        """What each of these jobs has spent."""
        found = ask_each(
            self._redis,
            jobs,
            lambda ask, job: ask.hget(self._keys.jobs(job.ref), job.entry.partition(":")[0]),
        )
        return [Spent.parse(counts) for _, counts in found]

    def fail(
        self,
        ref: RunRef,
        lane: str,
        queue: str,
        entry: str,
        cause: Cause,
        completion: Completion,
        epoch: int,
        now_ms: str | int = "",
        *,
        down_ms: int | None = None,
        member: str = "",
    ) -> int:
        """Fail a queue's first job while ``cause`` lasts; ``down_ms`` is since when the lane is down.

        ``member``: the job's in the index of delayed jobs, if it waits for its retry. Returns 1: failed; 2:
        and the run has ended; 0: not failed.
        """
        hot = following_queues(self._keys, ref, completion)
        call = bound(
            "job_fail",
            named_keys(self._keys, ref, lane, queue=queue, hot=hot),
            now_ms=now_ms,
            epoch=epoch,
            name=lane,
            entry=entry,
            member=member,
            cause=cause,
            down_ms=down_ms or "",
            **ended_values(completion),
        )
        return int(call.run(self._redis))

    def fail_delayed(
        self,
        job: Delayed,
        cause: Cause,
        completion: Completion,
        epoch: int,
        now_ms: str | int = "",
        *,
        down_ms: int | None = None,
    ) -> int:
        """Fail a job that waits for its retry, as `fail` does."""
        ref, lane, queue = job.ref, job.lane, self._keys.hot(job.ref, job.lane)
        more: dict[str, Any] = {"down_ms": down_ms, "member": job.member}
        return self.fail(ref, lane, queue, job.entry, cause, completion, epoch, now_ms, **more)
