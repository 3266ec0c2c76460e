"""Takes back the leases that lapsed and those of workers that died: the only recovery there is."""

from __future__ import annotations

from fairlane.events import Event
from fairlane.job import JobState
from fairlane.joining import given_up
from fairlane.logs import attempt_fields, get_logger
from fairlane.results import JudgeResult, TaskResult
from fairlane.run import Plan
from fairlane.store.attempts import Attempts, Over, Ready
from fairlane.store.connect import RedisClient
from fairlane.store.entry import Entry
from fairlane.store.leases import Lease, Leases
from fairlane.store.sessions import Joined
from fairlane.store.workers import Beat, Workers
from fairlane.verdict import skipped_evals
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
        is_task = plan is None or _step(lease, plan) == 0
        kind = TaskResult if is_task else JudgeResult
        taken = self._attempts.recover(
            lease.attempt,
            moment.epoch,
            dead_worker=dead_worker,
            max_attempts=attempts,
            payload=kind(JobState.FAILED, error=KILLED, attempts=attempts).to_json(),
            follow=_follow(lease, plan),
            joined=self._joined(lease, plan),
            now_ms=moment.argument,
        ).run(self._redis)
        if not taken:
            return
        fields = attempt_fields(lease.attempt) | (plan.spec.labels(lease.attempt.job) if plan else {})
        log.warning(Event.LEASE_RECOVERED, **fields, worker=lease.worker, failed=taken == 2)
        if taken == 2 and "dimension" in fields:
            told = {"status_code": None, "elapsed_s": None, "attempts": attempts, "reason": KILLED}
            log.error(Event.EVALUATION_FAILED, **fields, **told)

    def _joined(self, lease: Lease, plan: Plan | None) -> Joined | None:
        """What the job's item tells its session, if it is over with it."""
        step = _step(lease, plan) if plan else None
        if plan is None or step is None:
            return None
        item = lease.attempt.job // plan.spec.steps
        return given_up(plan, item, self._loader.seat(lease.ref, plan, item), answered=step > 0)


def _step(lease: Lease, plan: Plan) -> int | None:
    """Which step of its item the job is; ``None`` for a session's."""
    job, spec = lease.attempt.job, plan.spec
    if spec.session_evals and job >= spec.items * spec.steps:
        return None
    return job % spec.steps


def _follow(lease: Lease, plan: Plan | None) -> list[Over | Ready]:
    """What becomes of the evaluations of a job that is given up: none without an output, criteria one by
    one.
    """
    step = _step(lease, plan) if plan else None
    if plan is None or step is None:
        return []
    spec, job = plan.spec, lease.attempt.job
    if step == 0:
        return list(skipped_evals(job // spec.steps, plan.eval_lanes))
    kinds = max(1, len(spec.models)) - 1
    return [
        Ready(Entry(job - step + number, lease.tokens, kinds + number), plan.eval_lanes[number - 1])
        for number, each in enumerate(spec.evals, start=1)
        if each.after == step
    ]
