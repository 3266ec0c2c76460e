"""Workers that only pretend: they claim, call a pretended provider, report and beat, as workers do."""

from __future__ import annotations

import random
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from fairlane.decision import Finish, decide
from fairlane.job import Attempt, JobState, Outcome
from fairlane.results import SKIPPED_JUDGE, JudgeResult, TaskResult
from fairlane.run import RunSpec
from fairlane.settings import Settings
from fairlane.store.attempts import Attempts, Claim, Over, Ready, Reported
from fairlane.store.entry import Entry
from fairlane.store.keys import Keys, RunRef
from fairlane.store.script import Call
from fairlane.store.workers import WorkerInfo, Workers
from fairlane.tokens import Estimate
from fairlane_scheduler.rehearsal.agenda import Agenda
from fairlane_scheduler.rehearsal.stand_ins import Answering, PretendedWorker, Serving, Start

BEAT_MS = 1000
JUDGE_TOKENS = Estimate(4, 16)

Errand = tuple[Call, Callable[[Any], None]]
"""A script to run, and what is done with its reply."""


class Workforce:
    """All workers. What they have to tell Redis is collected, so that one millisecond is one round trip."""

    def __init__(
        self, keys: Keys, settings: Settings, agenda: Agenda, provider: Answering | Serving, seed: int
    ) -> None:
        self.provider = provider
        self.workers: list[PretendedWorker] = []
        self.specs: dict[RunRef, RunSpec] = {}
        self.starts: list[Start] = []
        self.late: list[Attempt] = []
        self.stale, self.crowded = 0, 0
        self.peak: dict[str, int] = defaultdict(int)  # most calls at once, by lane; "" over all
        self.news: list[tuple[int, str, str]] = []  # what reports brought about: when, on which lane, what
        self.lanes: Sequence[str] = ()
        self._attempts, self._registry = Attempts(keys), Workers(keys)
        self._lease_ms = round(settings.scheduler.lease_seconds * 1000)
        self._agenda, self._rng = agenda, random.Random(seed)
        self._queues: dict[str, deque[tuple[int, Attempt]]] = defaultdict(deque)
        self._errands: list[Errand] = []

    def take_errands(self) -> list[Errand]:
        """Reports and beats since the last time, in order."""
        errands, self._errands = self._errands, []
        return errands

    def hire(self, worker: PretendedWorker) -> None:
        """A worker that beats from now on."""
        self.workers.append(worker)
        self._keep_beating(worker)

    def enqueue(self, attempts: Iterable[Attempt]) -> None:
        """What a scheduler has handed over."""
        for attempt in attempts:
            self._queues[attempt.lane].append((self._agenda.now_ms, attempt))

    def take_up(self) -> list[Errand]:
        """Claims of what is queued, as far as there are free slots."""
        claims: list[Errand] = []
        for lane, queue in self._queues.items():
            while queue:
                free = [worker for worker in self.workers if worker.free > 0 and worker.serves(lane)]
                if not free:
                    self.crowded += 1
                    break
                claims.append(self._claim(max(free, key=lambda worker: worker.free), *queue.popleft()))
        return claims

    def measure_peak(self) -> None:
        """Note how many calls run at once."""
        total = sum(len(worker.calls) for worker in self.workers if worker.alive)
        by_lane = {next(iter(self._queues)): total} if len(self._queues) == 1 else self._busy_by_lane()
        for lane, busy in {"": total, **by_lane}.items():
            self.peak[lane] = max(self.peak[lane], busy)

    def beat(self, worker: PretendedWorker, *, changed: bool) -> None:
        """Let a worker say how it is; ``changed`` wakes the scheduler."""
        if not worker.alive:
            return
        lanes = tuple(lane for lane in self.lanes if worker.serves(lane))
        info = WorkerInfo(
            worker.name, worker.slots, lanes, "0", 1, "host", 0, len(worker.calls), worker.stopping
        )
        now_ms = self._agenda.now_ms
        call = self._registry.beat(
            worker.name, info, list(worker.calls), self._lease_ms, changed=changed, now_ms=now_ms
        )

        def forget(lost: Sequence[bytes]) -> None:
            for attempt in lost:
                worker.calls.pop(attempt.decode(), None)

        self._errands.append((call, forget))

    def _busy_by_lane(self) -> Counter[str]:
        return sum((worker.busy_by_lane() for worker in self.workers), Counter())

    def _keep_beating(self, worker: PretendedWorker) -> None:
        if worker.alive:
            self.beat(worker, changed=False)
            self._agenda.after(BEAT_MS, lambda: self._keep_beating(worker))

    def _claim(self, worker: PretendedWorker, sent_ms: int, attempt: Attempt) -> Errand:
        now_ms = self._agenda.now_ms
        copy = attempt.id in worker.calls  # the same message twice
        worker.calls[attempt.id] = attempt  # its slot is taken while it asks

        def begin(reply: Sequence[int]) -> None:
            claim = Claim.of(reply)
            if claim is None:
                self.stale += 1
                if not copy:
                    worker.calls.pop(attempt.id, None)
                return
            self.starts.append(Start(now_ms, attempt, worker.name, now_ms - sent_ms))
            self._call(worker, attempt, claim)

        return self._attempts.claim(attempt, worker.name, self._lease_ms, now_ms), begin

    def _call(self, worker: PretendedWorker, attempt: Attempt, claim: Claim) -> None:
        if not callable(self.provider):
            self.provider.serve(attempt, lambda outcome: self._report(worker, attempt, claim, outcome))
            return
        seconds, outcome = self.provider(attempt)
        self._agenda.after(round(seconds * 1000), lambda: self._report(worker, attempt, claim, outcome))

    def _report(self, worker: PretendedWorker, attempt: Attempt, claim: Claim, outcome: Outcome) -> None:
        if not worker.alive or worker.calls.pop(attempt.id, None) is None:
            return
        spec, now_ms = self.specs[ref_of(attempt)], self._agenda.now_ms
        decision = decide(outcome, claim, spec.retry, self._rng)
        if isinstance(decision, Finish):
            state = JobState.FAILED if decision.error else JobState.SUCCEEDED
            call = self._attempts.finish(
                attempt,
                worker.name,
                decision.lesson,
                state,
                _payload(attempt, spec, state, decision),
                _follow(attempt, spec, state),
                now_ms,
            )
        else:
            call = self._attempts.defer(
                attempt,
                worker.name,
                decision.lesson,
                delay_ms=decision.delay_ms,
                costs_attempt=decision.costs_attempt,
                rate_limited=decision.rate_limited,
                now_ms=now_ms,
            )

        def heard(reply: Sequence[Any]) -> None:
            reported = Reported.of(reply)
            if reported is None:
                self.late.append(attempt)
            elif reported.news:
                self.news.append((now_ms, attempt.lane, reported.news))

        self._errands.append((call, heard))


def ref_of(attempt: Attempt) -> RunRef:
    """The run that an attempt belongs to."""
    return RunRef(attempt.team, attempt.run)


def _payload(attempt: Attempt, spec: RunSpec, state: JobState, decision: Finish) -> str:
    kind = TaskResult if attempt.job % spec.steps == 0 else JudgeResult
    return kind(state, error=decision.error, attempts=decision.attempts).to_json()


def _follow(attempt: Attempt, spec: RunSpec, state: JobState) -> list[Ready | Over]:
    if attempt.job % spec.steps:
        return []
    lanes = [step.model for step in spec.evals]
    if state is JobState.SUCCEEDED:
        return [
            Ready(Entry(attempt.job + step, JUDGE_TOKENS, len(spec.models) + step - 1), lane)
            for step, lane in enumerate(lanes, start=1)
        ]
    skipped = JobState.SKIPPED
    return [
        Over(attempt.job + step, skipped, SKIPPED_JUDGE, lane) for step, lane in enumerate(lanes, start=1)
    ]
