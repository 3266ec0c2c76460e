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
from fairlane_scheduler.run_loader import RunLoader
from fairlane_scheduler.server_time import Moment

log = get_logger("recoverer")

EVERY_MS = 500
IDLE_MS = 1000  # while nothing is leased
AT_ONCE = 200
NEVER = 1_000_000  # attempts of a job whose plan cannot be read: it is put back, whatever it has spent
KILLED = "its worker died or fell silent during each attempt"


class Recoverer:
    """Once it starts, or Redis comes back, it waits one worker time-out: living workers beat first."""

    def __init__(
        self,
        redis: RedisClient,
        attempts: Attempts,
        leases: Leases,
        workers: Workers,
        loader: RunLoader,
        worker_timeout_ms: int,
    ) -> None:
        self._redis, self._attempts, self._leases = redis, attempts, leases
        self._workers, self._loader, self._timeout_ms = workers, loader, worker_timeout_ms
        self._due_ms = 0

    def hold_off(self, monotonic_ms: int) -> None:
        """Recover nothing for one worker time-out."""
        self._due_ms = monotonic_ms + self._timeout_ms

    def tick(self, moment: Moment) -> int:
        """One pass if it is due; milliseconds until the next."""
        if moment.monotonic_ms < self._due_ms:
            return self._due_ms - moment.monotonic_ms
        for beat in self._workers.beats(self._redis):
            if beat.beat_ms + self._timeout_ms < moment.server_ms:
                self._bury(beat, moment)
        lapsed = self._leases.lapsed(moment.server_ms, AT_ONCE)
        for lease in lapsed:
            self._take_back(lease, "", moment)
        wait = EVERY_MS if self._leases.count() else IDLE_MS
        self._due_ms = moment.monotonic_ms + (wait if len(lapsed) < AT_ONCE else 0)
        return self._due_ms - moment.monotonic_ms

    def _bury(self, beat: Beat, moment: Moment) -> None:
        held = self._leases.of_worker(beat.worker)
        for lease in held:
            self._take_back(lease, beat.worker, moment)
        self._workers.leave(beat.worker).run(self._redis)
        log.warning(Event.WORKER_LOST, worker=beat.info.name, leases=len(held))

    def _take_back(self, lease: Lease, dead_worker: str, moment: Moment) -> None:
        plan = self._loader.plan(lease.ref)
        attempts = plan.spec.retry.max_attempts if plan else NEVER
        is_task = plan is None or lease.attempt.job % plan.spec.steps == 0
        kind = TaskResult if is_task else JudgeResult
        judge_lanes = plan.judge_lanes if plan and is_task else ()
        taken = self._attempts.recover(
            lease.attempt,
            moment.epoch,
            dead_worker=dead_worker,
            max_attempts=attempts,
            payload=kind(JobState.FAILED, error=KILLED, attempts=attempts).to_json(),
            follow=[
                Over(lease.attempt.job + step, JobState.SKIPPED, SKIPPED_JUDGE, lane)
                for step, lane in enumerate(judge_lanes, start=1)
            ],
            now_ms=moment.argument,
        ).run(self._redis)
        if taken:
            log.warning(
                Event.LEASE_RECOVERED, **attempt_fields(lease.attempt), worker=lease.worker, failed=taken == 2
            )
