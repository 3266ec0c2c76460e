"""Simulated workers: they claim, call a simulated provider, report and send heartbeats as real workers do."""

from __future__ import annotations

import random
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from fairlane.config.settings import Settings
from fairlane.lab.rehearsal.virtual.event_queue import EventQueue
from fairlane.lab.rehearsal.virtual.simulated import AnswerFunction, EventProvider, SimulatedWorker, Start
from fairlane.model.decision import Defer, Finish, decide, decide_control, finish, unsent
from fairlane.model.ending import Completion
from fairlane.model.job import Attempt, Claim, Reported
from fairlane.model.outcome import Outcome, Success
from fairlane.model.run import Plan, RunRef, RunSpec
from fairlane.model.tokens import Estimate
from fairlane.pipeline.completion import complete_without_row
from fairlane.pipeline.evaluations import FinishedJob
from fairlane.store.keys import Keys
from fairlane.store.script import Call
from fairlane.store.write.attempts import Attempts
from fairlane.store.write.workers import WorkerInfo, Workers

BEAT_MS = 1000
JUDGE_TOKENS = Estimate(4, 16)

StoreCall = tuple[Call, Callable[[Any], None]]
"""A script to run, and the function that takes its reply."""


class SimulatedWorkers:
    """All workers. Their scripts are collected, so that one millisecond takes one round trip."""

    def __init__(
        self,
        keys: Keys,
        settings: Settings,
        events: EventQueue,
        provider: AnswerFunction | EventProvider,
        seed: int,
    ) -> None:
        self.provider = provider
        self.workers: list[SimulatedWorker] = []
        self.specs: dict[RunRef, RunSpec] = {}
        self.starts: list[Start] = []
        self.late: list[Attempt] = []
        self.stale, self.unsent, self.short_of_slots = 0, 0, 0
        self.peak: dict[str, int] = defaultdict(int)  # most calls at once, by lane; "" over all
        self.news: list[tuple[int, str, str]] = []  # what reports brought about: when, on which lane, what
        self.lanes: Sequence[str] = ()
        self._lane_of = settings.lane_of
        self._attempts, self._registry = Attempts(keys), Workers(keys)
        self._lease_ms = round(settings.scheduler.lease_seconds * 1000)
        self._events, self._rng = events, random.Random(seed)
        self._queues: dict[str, deque[tuple[int, Attempt]]] = defaultdict(deque)
        self._calls: list[StoreCall] = []
        self._plans: dict[RunRef, Plan] = {}
        self._answered: dict[tuple[RunRef, str], Attempt] = {}  # the latest call of each run and lane

    def take_calls(self) -> list[StoreCall]:
        """Reports and heartbeats since the last call, in order."""
        calls, self._calls = self._calls, []
        return calls

    def add(self, worker: SimulatedWorker) -> None:
        """Add a worker, which sends heartbeats from now on."""
        self.workers.append(worker)
        self._keep_beating(worker)

    def enqueue(self, attempts: Iterable[Attempt]) -> None:
        """Queue attempts that a scheduler has published."""
        for attempt in attempts:
            self._queues[attempt.lane].append((self._events.now_ms, attempt))

    def claim_queued(self) -> list[StoreCall]:
        """Claims of queued attempts, as many as there are free slots."""
        claims: list[StoreCall] = []
        for lane, queue in self._queues.items():
            while queue:
                free = [worker for worker in self.workers if worker.free > 0 and worker.serves(lane)]
                if not free:
                    self.short_of_slots += 1
                    break
                claims.append(self._claim(max(free, key=lambda worker: worker.free), *queue.popleft()))
        return claims

    def measure_peak(self) -> None:
        """Note how many calls run at once, for `peak`."""
        total = sum(len(worker.calls) for worker in self.workers if worker.alive)
        by_lane = {next(iter(self._queues)): total} if len(self._queues) == 1 else self._busy_by_lane()
        for lane, busy in {"": total, **by_lane}.items():
            self.peak[lane] = max(self.peak[lane], busy)

    def beat(self, worker: SimulatedWorker, *, changed: bool) -> None:
        """Send a worker's heartbeat; ``changed`` wakes the scheduler."""
        if not worker.alive:
            return
        lanes = tuple(lane for lane in self.lanes if worker.serves(lane))
        info = WorkerInfo(
            worker.name, worker.slots, lanes, "0", 1, "host", 0, len(worker.calls), worker.stopping
        )
        now_ms = self._events.now_ms
        call = self._registry.beat(
            worker.name, info, list(worker.calls), self._lease_ms, changed=changed, now_ms=now_ms
        )

        def forget(lost: Sequence[bytes]) -> None:
            for attempt in lost:
                worker.calls.pop(attempt.decode(), None)

        self._calls.append((call, forget))

    def _busy_by_lane(self) -> Counter[str]:
        return sum((worker.busy_by_lane() for worker in self.workers), Counter())

    def _keep_beating(self, worker: SimulatedWorker) -> None:
        if worker.alive:
            self.beat(worker, changed=False)
            self._events.after(BEAT_MS, lambda: self._keep_beating(worker))

    def _claim(self, worker: SimulatedWorker, sent_ms: int, attempt: Attempt) -> StoreCall:
        now_ms = self._events.now_ms
        copy = attempt.id in worker.calls  # the same message twice
        worker.calls[attempt.id] = attempt  # its slot is in use during the claim

        def begin(reply: bytes | None) -> None:
            claim = Claim.of(reply)
            if claim is None:
                self.stale += 1
                if not copy:
                    worker.calls.pop(attempt.id, None)
                return
            if not claim.sendable:
                worker.calls.pop(attempt.id, None)
                self.unsent += 1
                self._calls.append((self._defer(worker, attempt, unsent()), lambda _: None))
                return
            if claim.hold_ms:
                self._events.after(claim.hold_ms, lambda: leave(claim, now_ms + claim.hold_ms))
            else:
                leave(claim, now_ms)

        def leave(claim: Claim, left_ms: int) -> None:
            self.starts.append(Start(left_ms, attempt, worker.name, left_ms - sent_ms))
            self._call(worker, attempt, claim)

        return self._attempts.claim(attempt, worker.name, self._lease_ms, now_ms), begin

    def _call(self, worker: SimulatedWorker, attempt: Attempt, claim: Claim) -> None:
        control = self._answered.get((ref_of(attempt), attempt.lane)) if claim.control else None
        called = control or attempt

        def report(outcome: Outcome) -> None:
            self._report(worker, attempt, claim, outcome, is_control=control is not None)

        if not callable(self.provider):
            self.provider.serve(called, report)
            return
        seconds, outcome = self.provider(called)
        self._events.after(round(seconds * 1000), lambda: report(outcome))

    def _report(
        self, worker: SimulatedWorker, attempt: Attempt, claim: Claim, outcome: Outcome, *, is_control: bool
    ) -> None:
        if not worker.alive or worker.calls.pop(attempt.id, None) is None:
            return
        policy = self.specs[ref_of(attempt)].retry
        if is_control:
            self._conclude(worker, attempt, outcome, decide_control(outcome, claim, policy, self._rng))
            return
        if isinstance(outcome, Success):
            self._answered[ref_of(attempt), attempt.lane] = attempt
        claim = claim.with_one_left(policy.max_attempts)
        self._conclude(worker, attempt, outcome, decide(outcome, claim, policy, self._rng))

    def _conclude(
        self, worker: SimulatedWorker, attempt: Attempt, outcome: Outcome, decision: Finish | Defer
    ) -> None:
        if isinstance(decision, Finish):
            call = self._finish(worker, attempt, outcome, decision)
        else:
            call = self._defer(worker, attempt, decision)

        def on_reply(reply: bytes | None) -> None:
            reported = Reported.of(reply)
            if reported is None:
                self.late.append(attempt)
            elif reported.exhausted and isinstance(decision, Defer):
                self._conclude(worker, attempt, outcome, finish(decision, reported.exhausted))
            elif reported.news:
                self.news.append((self._events.now_ms, attempt.lane, reported.news))

        self._calls.append((call, on_reply))

    def _finish(self, worker: SimulatedWorker, attempt: Attempt, outcome: Outcome, decision: Finish) -> Call:
        completion = _completion(attempt, self._plan(ref_of(attempt)), outcome, decision)
        return self._attempts.finish(attempt, worker.name, decision.feedback, completion, self._events.now_ms)

    def _plan(self, ref: RunRef) -> Plan:
        """The plan of a run, as its scheduler has it."""
        plan = self._plans.get(ref)
        if plan is None:
            spec = self.specs[ref]
            lanes = tuple(self._lane_of(step.model) for step in spec.evals)
            plan = self._plans[ref] = Plan(spec=spec, eval_lanes=lanes)
        return plan

    def _defer(self, worker: SimulatedWorker, attempt: Attempt, decision: Defer) -> Call:
        return self._attempts.defer(attempt, worker.name, decision, now_ms=self._events.now_ms)


def ref_of(attempt: Attempt) -> RunRef:
    """The run that an attempt belongs to."""
    return RunRef(attempt.team, attempt.run)


def _completion(attempt: Attempt, plan: Plan, outcome: Outcome, decision: Finish) -> Completion:
    """The completion of a simulated call."""
    answer = outcome if decision.error is None and isinstance(outcome, Success) else None
    finished = FinishedJob(answer, decision.error, decision.attempts)
    return complete_without_row(plan, attempt.job, finished, JUDGE_TOKENS)
