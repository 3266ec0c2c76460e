"""Finds and fails jobs that Redis has lost: fed, without a record, and neither queued, leased nor delayed."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from fairlane.model.ending import ReadyJob
from fairlane.model.run import RunRef
from fairlane.store.connection.connect import RedisClient
from fairlane.store.keys import Keys
from fairlane.store.verbs import script
from fairlane.store.write.attempts import follow_json, named_keys
from fairlane.store.write.runs.uncalled_jobs import JobCompletion, Spent


class LostJobs:
    """For the leader: fenced by its epoch."""

    def __init__(self, redis: RedisClient, keys: Keys) -> None:
        self._redis, self._keys = redis, keys

    def is_stranded(self, ref: RunRef, lanes: Sequence[str], epoch: int, now_ms: str | int = "") -> bool:
        """Whether none of a run's jobs is queued on ``lanes``, leased or delayed."""
        queues = [queue(ref, lane) for lane in lanes for queue in (self._keys.hot, self._keys.fresh)]
        arguments = {"now_ms": now_ms, "epoch": epoch, "ref": str(ref)}
        call = script("run_stranded").bind(named_keys(self._keys, ref, queues=queues), arguments)
        return bool(call.run(self._redis) == 1)

    def recount(self, refs: Sequence[RunRef], epoch: int, now_ms: str | int = "") -> int:
        """Count the calls in flight of all active runs anew where leases disagree; how many were wrong."""
        states = [self._keys.state(ref) for ref in refs]
        arguments = {"now_ms": now_ms, "epoch": epoch, "channel": self._keys.wake}
        refs_json = json.dumps([str(ref) for ref in refs])
        call = script("runs_recount").bind(
            named_keys(self._keys, states=states), arguments | {"refs": refs_json}
        )
        return int(call.run(self._redis))

    def unrecorded(self, ref: RunRef, steps: int, fed: int | None) -> Iterator[int]:
        """Jobs of the first ``fed`` items, or of those in the run's bitmap, that have no record and may run:
        a task, and an evaluation whose task has ended.
        """
        done, bitmap = self._redis.mget([self._keys.done(ref), self._keys.fed(ref)])
        for item in range(8 * len(bitmap or b"")) if fed is None else range(fed):
            if fed is None and not _has(bitmap, item):
                continue
            task = item * steps
            if not _has(done, task):
                yield task
            else:
                yield from (job for job in range(task + 1, task + steps) if not _has(done, job))

    def attempts(self, ref: RunRef, jobs: Sequence[int]) -> list[int]:
        """How many attempts each of these jobs has used."""
        counts = self._redis.hmget(self._keys.jobs(ref), list(map(str, jobs))) if jobs else []
        return [Spent.parse(each).attempts for each in counts]

    def fail(
        self, ref: RunRef, job: int, lane: str, completion: JobCompletion, epoch: int, now_ms: str | int = ""
    ) -> int:
        """Fail a job of a stranded run. 1: failed, 2: and the run has ended, 0: not."""
        keys, session = self._keys, completion.session
        following = [each.lane for each in completion.follow if isinstance(each, ReadyJob)]
        following += session.lanes if session else []
        call = script("job_lose").bind(
            named_keys(keys, ref, hot=[keys.hot(ref, each) for each in following]),
            {
                "now_ms": now_ms,
                "epoch": epoch,
                "channel": keys.wake,
                "ref": str(ref),
                "job": job,
                "lane": lane,
                "payload": completion.payload,
                "follow": follow_json(completion.follow),
                "joined": session.to_json() if session else "",
            },
        )
        return int(call.run(self._redis))


def _has(bitmap: bytes | None, place: int) -> bool:
    """Whether a bit of a bitmap is set, as SETBIT counts them."""
    byte, bit = divmod(place, 8)
    return bitmap is not None and byte < len(bitmap) and bool(bitmap[byte] >> (7 - bit) & 1)
