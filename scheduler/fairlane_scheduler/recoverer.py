"""Takes back the leases that lapsed and those of workers that died: the only recovery there is."""

from __future__ import annotations

from fairlane.events import Event
from fairlane.job import JobState
from fairlane.logs import attempt_fields, get_logger
from fairlane.results import SKIPPED_JUDGE, JudgeResult, TaskResult
from fairlane.store.attempts import Attempts, Over
from fairlane.store.connect import RedisClient
from fairlane.store.leases import Lease, Leases
from fairlane.store.workers import Beat, Workers
from fairlane_scheduler.backlog import Backlog

log = get_logger("recoverer")

EVERY_MS = 500
KILLED = "its worker died or fell silent during each attempt"


class Recoverer:
    """Once it starts, or Redis comes back, it waits one worker time-out: living workers beat first."""

    def __init__(
        self,
        redis: RedisClient,
        attempts: Attempts,
        leases: Leases,
        workers: Workers,
        backlog: Backlog,
        worker_timeout_ms: int,
    ) -> None:
        self._redis, self._attempts, self._leases, self._workers = redis, attempts, leases, workers
        self._backlog, self._timeout_ms = backlog, worker_timeout_ms
        self._due_ms = 0

    def hold_off(self, monotonic_ms: int) -> None:
        """Recover nothing for one worker time-out."""
        self._due_ms = monotonic_ms + self._timeout_ms

    def tick(self, epoch: int, monotonic_ms: int, server_ms: int, server_now: str | int = "") -> int:
        """One pass if it is due; milliseconds until the next."""
        if monotonic_ms < self._due_ms:
            return self._due_ms - monotonic_ms
        for beat in self._workers.beats(self._redis):
            if beat.beat_ms + self._timeout_ms < server_ms:
                self._bury(beat, epoch, server_now)
        for lease in self._leases.lapsed(server_ms):
            self._take_back(lease, epoch, "", server_now)
        self._due_ms = monotonic_ms + EVERY_MS
        return EVERY_MS

    def _bury(self, beat: Beat, epoch: int, server_now: str | int) -> None:
        held = self._leases.of_worker(beat.worker)
        for lease in held:
            self._take_back(lease, epoch, beat.worker, server_now)
        self._workers.leave(beat.worker).run(self._redis)
        log.warning(Event.WORKER_LOST, worker=beat.info.name, leases=len(held))

    def _take_back(self, lease: Lease, epoch: int, dead_worker: str, server_now: str | int) -> None:
        run = self._backlog.get(lease.ref)
        steps = run.plan.spec.steps if run else 1
        is_task = lease.attempt.job % steps == 0
        result = (
            TaskResult(JobState.FAILED, error=KILLED, attempts=lease.attempt.number).to_json()
            if is_task
            else JudgeResult(JobState.FAILED, error=KILLED, attempts=lease.attempt.number).to_json()
        )
        judge_lanes = run.plan.judge_lanes if run and is_task else ()
        taken = self._attempts.recover(
            lease.attempt,
            epoch,
            dead_worker=dead_worker,
            max_attempts=run.plan.spec.retry.max_attempts if run else 1,
            payload=result,
            follow=[
                Over(lease.attempt.job + step, JobState.SKIPPED, SKIPPED_JUDGE, lane)
                for step, lane in enumerate(judge_lanes, start=1)
            ],
            now_ms=server_now,
        ).run(self._redis)
        if taken:
            log.warning(
                Event.LEASE_RECOVERED,
                **attempt_fields(lease.attempt),
                worker=lease.worker,
                failed=taken == 2,
            )
