"""Plays a scenario from start to end, on a server of its own, and records what `measure` needs."""

import logging
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import structlog
from redis import Redis

from fairlane.embedded.server import EmbeddedRedis
from fairlane.lab.rehearsal.scenario import CONNECTION, Load, Scenario, lane_of
from fairlane.lab.rehearsal.virtual.cluster import Cluster
from fairlane.lab.rehearsal.virtual.simulated import SimulatedWorker
from fairlane.lab.rehearsal.virtual.simulated_provider import ProviderLog, SimulatedProvider
from fairlane.model.job import Attempt
from fairlane.model.outcome import Outcome
from fairlane.model.run import RunRef
from fairlane.model.tokens import CHARS_PER_TOKEN, TOKENS_PER_MESSAGE
from fairlane.store.connection.connect import RedisClient

SAMPLE_S = 5.0
MOST_REPETITIONS = 1000

Progress = Callable[[float, int, int], None]
"""Called with the seconds that have passed, the jobs that have succeeded, and all jobs."""


@dataclass(slots=True)
class Lane:
    """One lane's record. ``paces`` and ``foreign`` are samples: time and value."""

    model: str
    log: ProviderLog
    paces: list[tuple[int, float | None]] = field(default_factory=list)
    foreign: list[tuple[int, int]] = field(default_factory=list)
    news: list[tuple[int, str]] = field(default_factory=list)
    peak: int = 0


@dataclass(slots=True)
class Recording:
    """A finished rehearsal; times are milliseconds of its clock. ``complete``: every job has finished."""

    scenario: Scenario
    began_ms: int
    ended_ms: int
    lanes: dict[str, Lane]
    complete: bool


def record(scenario: Scenario, redis: RedisClient, progress: Progress | None = None) -> Recording:
    """Play ``scenario`` on a Redis that nobody else uses; deletes all its keys first."""
    redis.flushall()
    player = _Player(scenario, redis)
    player.play(progress)
    return player.recording()


class _Player:
    def __init__(self, scenario: Scenario, redis: RedisClient) -> None:
        self._scenario = scenario
        self._cluster = Cluster(
            redis,
            provider=self,
            workers=[SimulatedWorker(f"w{n}", scenario.slots) for n in range(scenario.workers)],
            lanes={lane_of(m): limits.model_dump(exclude_unset=True) for m, limits in scenario.lanes.items()},
            teams=scenario.teams,
            seed=scenario.seed,
            bounds={"max_in_flight": max(1000, scenario.workers * scenario.slots)},
        )
        self._began_ms = self._cluster.now_ms
        self._loads: dict[RunRef, Load] = {}
        events = self._cluster.events
        self._providers = {
            lane_of(name): SimulatedProvider(
                model, scenario.network, scenario.seed, events, self._load_of, scenario.sheds
            )
            for name, model in scenario.models.items()
        }
        self._lanes = {lane: Lane(lane.partition(":")[2], p.log) for lane, p in self._providers.items()}

    def serve(self, attempt: Attempt, finish: Callable[[Outcome], None]) -> None:
        self._providers[attempt.lane].serve(attempt, finish)

    def play(self, progress: Progress | None) -> None:
        """Play from the submission to the end."""
        scenario, cluster = self._scenario, self._cluster
        jobs = sum(self._submit(load) for load in scenario.loads)
        until_done = scenario.minutes is None
        length_s = scenario.longest_hours * 3600 if scenario.minutes is None else scenario.minutes * 60
        self._sample()
        while (left_s := length_s - self._elapsed_s) > 0:
            cluster.run_for(min(SAMPLE_S, left_s))
            self._sample()
            if progress is not None:
                progress(self._elapsed_s, sum(p.log.succeeded for p in self._providers.values()), jobs)
            if until_done and self._is_complete():
                return

    def recording(self) -> Recording:
        for at_ms, name, news in self._cluster.simulated.news:
            self._lanes[name].news.append((at_ms, news))
        for name, lane in self._lanes.items():
            lane.peak = self._cluster.simulated.peak.get(name, 0)
        complete = self._is_complete()
        ended_ms = max(p.log.last_ms for p in self._providers.values()) if complete else self._cluster.now_ms
        return Recording(self._scenario, self._began_ms, ended_ms, self._lanes, complete)

    @property
    def _elapsed_s(self) -> float:
        return (self._cluster.now_ms - self._began_ms) / 1000

    def _load_of(self, attempt: Attempt) -> Load:
        return self._loads[RunRef(attempt.team, attempt.run)]

    def _submit(self, load: Load) -> int:
        jobs = self._scenario.jobs_of(load)
        repetitions = min(MOST_REPETITIONS, jobs) if load.jobs is None else _divisor(jobs)
        rows = -(-jobs // repetitions)
        prompt = "x" * max(1, (load.input_tokens - 2 * TOKENS_PER_MESSAGE) * CHARS_PER_TOKEN)
        ref = self._cluster.submit(
            rows,
            load.team,
            f"{CONNECTION}:{load.model}",
            prompt=prompt,
            repetitions=repetitions,
            params={} if load.max_tokens is None else {"max_tokens": load.max_tokens},
        )
        self._loads[ref] = load
        return rows * repetitions

    def _is_complete(self) -> bool:
        return all(self._cluster.status(ref).state.finished for ref in self._loads)

    def _sample(self) -> None:
        now_ms = self._cluster.now_ms
        views = self._cluster.lanes.views(list(self._lanes), now_ms)
        for view, (name, lane) in zip(views, self._lanes.items(), strict=True):
            limits = self._providers[name].limits
            limits.levels(now_ms)  # applies the requests of others until now
            lane.paces.append((now_ms, view.learned_per_minute))
            lane.foreign.append((now_ms, limits.foreign_admitted))


def _divisor(jobs: int) -> int:
    """The largest number of repetitions that makes exactly so many jobs."""
    return next(count for count in range(min(MOST_REPETITIONS, jobs), 0, -1) if jobs % count == 0)


@contextmanager
def backend() -> Iterator[RedisClient]:
    """An empty embedded server, stopped after the block. Raises `LocalStackError`."""
    with (
        tempfile.TemporaryDirectory(prefix="fairlane-rehearsal-") as folder,
        EmbeddedRedis(Path(folder), unix_socket=True) as embedded,
        Redis.from_url(embedded.url, protocol=2, single_connection_client=True) as redis,
    ):
        redis.config_set("appendonly", "no")
        redis.config_set("save", "")
        yield redis


@contextmanager
def quiet() -> Iterator[None]:
    """Log only errors inside the block: otherwise a rehearsal writes a line or more for every call."""
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    try:
        yield
    finally:
        structlog.configure(**before)
