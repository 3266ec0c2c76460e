"""Plays a peer's controller in a world: one process with slots that starts its jobs in order and retries."""

from __future__ import annotations

import heapq
import random
from collections import deque
from collections.abc import Callable

from fairlane.core.clock import ManualClock
from fairlane.lab.rehearsal.virtual.event_queue import EventQueue
from fairlane.model.job import Attempt
from fairlane.model.outcome import Outcome, RateLimited, Success
from tests.benchmarks.zoo.oracle import best_schedule
from tests.benchmarks.zoo.peers import NEVER, PEERS, Peer
from tests.benchmarks.zoo.playing import GRACE, Course, jobs_for, slots_for
from tests.benchmarks.zoo.provider import Arrival, GeneratedProvider
from tests.benchmarks.zoo.world import World

LANE = "sim:model"


def play_peer(world: World, name: str) -> Course:
    """Play a world with one of `PEERS`."""
    best = best_schedule(world)
    slots = slots_for(best)
    return _Client(world, PEERS[name](world, slots), jobs_for(best)).play()


class _Client:
    def __init__(self, world: World, peer: Peer, jobs: int) -> None:
        self._world, self._peer, self._jobs = world, peer, jobs
        self._clock = ManualClock(1_700_000_000_000)
        self._began_ms = self._clock.now_ms()
        self._events = EventQueue(self._clock)
        self._provider = GeneratedProvider(world, self._events)
        self._rng = random.Random(f"peer/{world.seed}")
        self._fresh = deque(range(jobs))
        self._retries: list[tuple[float, int]] = []
        self._tried = [0] * jobs
        self._in_flight = self._waiting = self._done = self._failed = 0
        self._woken_s = NEVER

    def play(self) -> Course:
        best = best_schedule(self._world)
        until_ms = self._began_ms + round(self._world.horizon_ms * (1 + GRACE))
        self._start_calls()
        while self._done < self._jobs:
            next_ms = self._events.next_ms
            if next_ms is None or next_ms > until_ms:
                break
            self._clock.advance(max(0, next_ms - self._clock.now_ms()) / 1000)
            self._events.run_due()
            self._start_calls()
        arrivals = tuple(Arrival(at - self._began_ms, verdict) for at, verdict in self._provider.arrivals)
        return Course(self._world, best, arrivals, self._jobs, self._failed, self._jobs - self._done)

    @property
    def _now_s(self) -> float:
        return (self._clock.now_ms() - self._began_ms) / 1000

    def _start_calls(self) -> None:
        peer = self._peer
        while True:
            now_s = self._now_s
            due = bool(self._retries) and self._retries[0][0] <= now_s
            if not due and not self._fresh:
                if self._retries:
                    self._wake_in(self._retries[0][0] - now_s)
                return
            # A retry that kept its slot takes no second one, but still waits for the controller's permit.
            held = self._waiting if peer.holds_slot else 0
            in_use = self._in_flight + held - (1 if due and peer.holds_slot else 0)
            wait_s = peer.wait_s(now_s, in_use)
            if wait_s > 0:
                if wait_s < NEVER:
                    self._wake_in(wait_s)
                elif self._retries:
                    self._wake_in(self._retries[0][0] - now_s)
                return
            self._start(due)

    def _start(self, due: bool) -> None:
        if due:
            _, job = heapq.heappop(self._retries)
            self._waiting -= 1
        else:
            job = self._fresh.popleft()
        self._in_flight += 1
        self._peer.started(self._now_s)
        attempt = Attempt("peer", "zoo", job, self._tried[job] + 1, LANE)
        self._provider.serve(attempt, self._hear(job))

    def _hear(self, job: int) -> Callable[[Outcome], None]:
        def hear(outcome: Outcome) -> None:
            self._in_flight -= 1
            self._tried[job] += 1
            now_s, peer = self._now_s, self._peer
            if isinstance(outcome, Success):
                peer.succeeded(now_s)
                self._done += 1
                return
            wait_ms = outcome.retry_after_ms
            wait_s = None if wait_ms is None else wait_ms / 1000
            if isinstance(outcome, RateLimited):
                peer.limited(now_s, wait_s)
            if self._tried[job] >= peer.attempts:
                self._done, self._failed = self._done + 1, self._failed + 1
                return
            again_s = now_s + peer.retry_in_s(self._tried[job], wait_s, self._rng)
            heapq.heappush(self._retries, (again_s, job))
            self._waiting += 1

        return hear

    def _wake_in(self, wait_s: float) -> None:
        at_s = self._now_s + max(0.001, wait_s)
        if self._woken_s <= self._now_s or at_s < self._woken_s:
            self._woken_s = at_s
            self._events.after(max(1, -int(-wait_s * 1000 // 1)), lambda: None)
