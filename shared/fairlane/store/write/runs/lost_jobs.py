"""Finds and fails jobs that Redis has lost: fed, without a record, and neither queued, leased nor delayed."""

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

from fairlane.model.ending import Completion
from fairlane.model.run import RunRef, RunSpec
from fairlane.model.sessions import first_session_job
from fairlane.store.keys import Stored
from fairlane.store.write.attempts import bound, ended_values, following_queues, named_keys
from fairlane.store.write.runs.uncalled_jobs import Spent


class LostJobs(Stored):
    """Finds and fails a stranded run's jobs, for the leader: fenced by its epoch."""

    def is_stranded(self, ref: RunRef, lanes: Sequence[str], epoch: int, now_ms: str | int = "") -> bool:
        """Whether none of a run's jobs is queued on ``lanes``, leased or delayed."""
        queues = [queue(ref, lane) for lane in lanes for queue in (self._keys.hot, self._keys.fresh)]
        call = bound("run_stranded", named_keys(self._keys, ref, queues=queues), now_ms=now_ms, epoch=epoch)
        return bool(call.run(self._redis) == 1)

    def mend(self, ref: RunRef, epoch: int, now_ms: str | int = "") -> int:
        """Rebuild the bitmap of a stranded run's ended jobs from their records. 1: mended; 2: and the run has
        ended; 0: nothing to mend.
        """
        call = bound("run_mend", named_keys(self._keys, ref), now_ms=now_ms, epoch=epoch)
        return int(call.run(self._redis))

    def recount(self, refs: Sequence[RunRef], epoch: int, now_ms: str | int = "") -> int:
        """Recount the calls in flight of all active runs from leases. Returns how many counts were wrong."""
        keys = named_keys(self._keys, states=[self._keys.state(ref) for ref in refs])
        names = json.dumps([str(ref) for ref in refs])
        call = bound("runs_recount", keys, now_ms=now_ms, epoch=epoch, refs=names)
        return int(call.run(self._redis))

    def unrecorded(self, ref: RunRef, spec: RunSpec, fed: Iterable[int] | None) -> Iterator[int]:
        """Jobs of the ``fed`` items, or of those in the run's bitmap, that have no record and may run.

        They are tasks, evaluations whose task has ended, and those of sessions once all items have ended.
        """
        done, bitmap = self._redis.mget([self._keys.done(ref), self._keys.fed(ref)])
        steps = spec.steps
        for item in (n for n in range(8 * len(bitmap or b"")) if has_bit(bitmap, n)) if fed is None else fed:
            task = item * steps
            if not has_bit(done, task):
                yield task
            else:
                yield from (job for job in range(task + 1, task + steps) if not has_bit(done, job))
        if spec.session_evals:
            yield from self._unrecorded_of_sessions(ref, spec, done)

    def _unrecorded_of_sessions(self, ref: RunRef, spec: RunSpec, done: bytes | None) -> Iterator[int]:
        """As many as have not ended; evaluations of incomplete sessions end without a record."""
        counts = self._redis.hmget(self._keys.state(ref), "items", "items_done", "jobs", "jobs_done")
        items, ended, jobs, over = (int(count or 0) for count in counts)
        if ended >= items:
            first = first_session_job(spec)
            all_of_them = range(first, first + spec.session_jobs)
            yield from islice((job for job in all_of_them if not has_bit(done, job)), max(0, jobs - over))

    def attempts(self, ref: RunRef, jobs: Sequence[int]) -> list[int]:
        """How many attempts each of these jobs has used."""
        counts = self._redis.hmget(self._keys.jobs(ref), list(map(str, jobs))) if jobs else []
        return [Spent.parse(each).attempts for each in counts]

    def fail(
        self, ref: RunRef, job: int, lane: str, completion: Completion, epoch: int, now_ms: str | int = ""
    ) -> int:
        """Fail a job of a stranded run. 1: failed, 2: and the run has ended, 0: not."""
        call = bound(
            "job_lose",
            named_keys(self._keys, ref, hot=following_queues(self._keys, ref, completion)),
            now_ms=now_ms,
            epoch=epoch,
            job=job,
            lane=lane,
            **ended_values(completion),
        )
        return int(call.run(self._redis))


def has_bit(bitmap: bytes | None, place: int) -> bool:
    """Whether a bit of a bitmap is set, as SETBIT counts them."""
    byte, bit = divmod(place, 8)
    return bitmap is not None and byte < len(bitmap) and bool(bitmap[byte] >> (7 - bit) & 1)
