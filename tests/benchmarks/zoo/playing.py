"""Plays Fairlane in a world: the real scheduler and scripts in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fairlane.lab.rehearsal.scenario import CONNECTION, lane_of
from fairlane.lab.rehearsal.virtual.cluster import Cluster
from fairlane.lab.rehearsal.virtual.simulated import SimulatedWorker
from fairlane.model.job import Attempt
from fairlane.model.outcome import Outcome
from fairlane.model.tokens import CHARS_PER_TOKEN, TOKENS_PER_MESSAGE
from fairlane.store.connection.connect import RedisClient
from tests.benchmarks.zoo.oracle import Schedule, best_schedule
from tests.benchmarks.zoo.provider import Arrival, GeneratedProvider
from tests.benchmarks.zoo.world import World

MODEL = "model"
MORE_SLOTS = 2.0
LEAST_SLOTS = 200
"""The zoo does not test slots: players get this many times the oracle's most calls in flight."""
GRACE = 1.0
"""After the horizon, play continues until every job has ended, for at most this many horizons."""
SAMPLES = 100


@dataclass(frozen=True, slots=True)
class Course:
    """Every call that the provider saw from one player, and how the player's jobs ended.

    Times are milliseconds from the start. ``paces`` are samples of the rate that a lane has learned, in
    calls a minute. ``unfinished`` counts the jobs that had not ended when play stopped.
    """

    world: World
    best: Schedule
    arrivals: tuple[Arrival, ...]
    jobs: int
    failed: int
    unfinished: int
    lost: int = 0
    paces: tuple[tuple[int, float], ...] = ()


def slots_for(best: Schedule) -> int:
    """How many calls a player may have in flight."""
    return max(LEAST_SLOTS, round(MORE_SLOTS * best.peak))


def jobs_for(best: Schedule) -> int:
    """How many jobs a player gets: as many as the oracle finishes."""
    return max(1, len(best.times_ms))


def play_fairlane(world: World, redis: RedisClient, *, to_the_end: bool = True) -> Course:
    """Play a world on a Redis that has no other user: this first deletes all its keys.

    ``to_the_end``: continue after the horizon until every job has ended, for at most `GRACE` horizons.
    """
    redis.flushall()
    best = best_schedule(world)
    game = _Game(world, best, redis)
    return game.play(to_the_end)


class _Game:
    def __init__(self, world: World, best: Schedule, redis: RedisClient) -> None:
        self._world, self._best, self._lane = world, best, lane_of(MODEL)
        slots = slots_for(best)
        limits = world.configured
        self._cluster = Cluster(
            redis,
            provider=self,
            workers=[SimulatedWorker("w0", slots)],
            lanes={} if limits is None else {self._lane: limits.model_dump(exclude_unset=True)},
            seed=world.seed,
            bounds={"max_in_flight": max(1000, slots)},
        )
        self._provider = GeneratedProvider(world, self._cluster.events)
        self._paces: list[tuple[int, float]] = []

    def serve(self, attempt: Attempt, finish: Callable[[Outcome], None]) -> None:
        self._provider.serve(attempt, finish)

    def play(self, to_the_end: bool) -> Course:
        cluster, world = self._cluster, self._world
        jobs = jobs_for(self._best)
        work = world.work
        prompt = "x" * max(1, (work.input_tokens - 2 * TOKENS_PER_MESSAGE) * CHARS_PER_TOKEN)
        ref = cluster.submit(
            jobs,
            "zoo",
            f"{CONNECTION}:{MODEL}",
            prompt=prompt,
            params={} if work.max_tokens is None else {"max_tokens": work.max_tokens},
        )
        part_s = world.horizon_s / SAMPLES
        for _ in range(SAMPLES):
            cluster.run_for(part_s)
            self._sample()
        most = round(GRACE * SAMPLES) if to_the_end else 0
        while most > 0 and not cluster.status(ref).state.finished:
            cluster.run_for(part_s)
            most -= 1
        status = cluster.status(ref)
        began_ms = self._provider.began_ms
        return Course(
            world,
            self._best,
            tuple(Arrival(at_ms - began_ms, verdict) for at_ms, verdict in self._provider.arrivals),
            jobs,
            status.failed,
            jobs - status.jobs_done,
            jobs - status.jobs,
            tuple(self._paces),
        )

    def _sample(self) -> None:
        (view,) = self._cluster.lanes.views([self._lane], self._cluster.now_ms)
        pace = view.learned_per_minute
        if pace is not None:
            self._paces.append((self._cluster.now_ms - self._provider.began_ms, pace))
