"""Recovers jobs of lapsed leases and of silent workers; nothing else requeues them."""

from collections import Counter
from collections.abc import Callable

from fairlane.core.events import Event
from fairlane.model.ending import Completion
from fairlane.model.job import JobState
from fairlane.model.results import TaskResult
from fairlane.model.run import Plan
from fairlane.store.connection.connect import RedisClient
from fairlane.store.write.attempts import Attempts
from fairlane.store.write.leases import Lease, Leases
from fairlane.store.write.workers import Beat, Workers
from fairlane.telemetry.logs import get_logger
from fairlane_scheduler.feed.run_loader import RunLoader
from fairlane_scheduler.state.server_time import Moment

log = get_logger("recoverer")

EVERY_MS = 500
IDLE_MS = 1000  # while nothing is leased
AT_ONCE = 200
NEVER = 1_000_000  # most attempts of a job whose plan is unreadable: it is always requeued
KILLED = "its worker died or fell silent during each attempt"


class Recoverer:
    """Recovers leases. After a start or an outage of Redis it first waits one worker timeout for heartbeats.

    ``due_ms``: when to `tick` next (monotonic). ``idle``: nothing was leased at the last tick.
    """

    def __init__(
        self,
        redis: RedisClient,
        attempts: Attempts,
        leases: Leases,
        workers: Workers,
        loader: RunLoader,
        worker_timeout_ms: int,
        on_lost_worker: Callable[[], None] | None = None,
    ) -> None:
        """``on_lost_worker`` is called for each worker whose heartbeat has stopped."""
        self._redis = redis
        self._attempts = attempts
        self._leases = leases
        self._workers = workers
        self._loader = loader
        self._timeout_ms = worker_timeout_ms
        self._on_lost_worker = on_lost_worker
        self.due_ms = 0
        self.idle = False
        self._recovered: Counter[str] = Counter()  # by silent worker with leases left

    def wait_for_workers(self, monotonic_ms: int) -> None:
        """Recover nothing until one worker timeout has passed."""
        self.due_ms, self.idle = monotonic_ms + self._timeout_ms, False
        self._recovered.clear()

    def tick(self, moment: Moment) -> None:
        """Make one pass, and set when the next is due."""
        left = AT_ONCE
        for beat in self._workers.beats(self._redis):
            if left > 0 and beat.beat_ms + self._timeout_ms < moment.server_ms:
                left -= self._remove_worker(beat, left, moment)
        leased = self._leases.count()
        lapsed = self._leases.lapsed(moment.server_ms, left) if leased and left > 0 else []
        for lease in lapsed:
            self._recover(lease, "", moment)
        self.idle = not (self._leases.count() if lapsed else leased)
        wait = IDLE_MS if self.idle else EVERY_MS
        self.due_ms = moment.monotonic_ms + (wait if len(lapsed) < left else 0)

    def _remove_worker(self, beat: Beat, most: int, moment: Moment) -> int:
        """Recover up to ``most`` leases of a silent worker; forget it with the last. Returns how many."""
        held = self._leases.of_worker(beat.worker)
        some = held[:most]
        self._recovered[beat.worker] += sum(self._recover(lease, beat.worker, moment) for lease in some)
        if len(some) < len(held):
            return len(some)
        taken = self._recovered.pop(beat.worker)
        if self._workers.forget_silent(self._redis, beat.worker, self._timeout_ms, moment.argument):
            if self._on_lost_worker is not None:
                self._on_lost_worker()
            log.warning(Event.WORKER_LOST, worker=beat.info.name, leases=taken)
        return len(some)

    def _recover(self, lease: Lease, worker: str, moment: Moment) -> bool:
        """Recover a lease if it has lapsed, or if ``worker`` holds it and is still silent."""
        plan = self._loader.plan(lease.ref)
        attempts = plan.spec.retry.max_attempts if plan else NEVER
        completion = self._completion(lease, plan, attempts)
        taken = self._attempts.recover(
            lease.attempt,
            moment.epoch,
            worker=worker,
            worker_timeout_ms=self._timeout_ms,
            max_attempts=attempts,
            completion=completion,
            now_ms=moment.argument,
            damaged=self._loader.is_damaged(lease.ref),
        ).run(self._redis)
        if not taken:
            return False
        fields = lease.attempt.labels | (plan.spec.labels(lease.attempt.job) if plan else {})
        log.warning(Event.LEASE_RECOVERED, **fields, worker=lease.worker, failed=taken == 2)
        if taken == 2 and "dimension" in fields:
            outcome = {"status_code": None, "elapsed_s": None, "attempts": attempts, "reason": KILLED}
            log.error(Event.EVALUATION_FAILED, **fields, **outcome)
        return True

    def _completion(self, lease: Lease, plan: Plan | None, attempts: int) -> Completion:
        """The completion of the lease's job, for the case that its attempts are used up."""
        if plan is None:
            payload = TaskResult(JobState.FAILED, error=KILLED, attempts=attempts).to_json()
            return Completion(JobState.FAILED, payload)
        return self._loader.completion_of(lease.ref, plan, lease.attempt.job, lease.tokens, KILLED, attempts)
