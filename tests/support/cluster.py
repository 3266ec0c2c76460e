"""A deployment of real processes for tests: Redis, schedulers, workers, and a simulated provider."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fairlane import Client, JobState, Record, Run, RunState, RunStatus, Settings
from fairlane.config.loader import load_settings
from fairlane.core.events import Event
from fairlane.embedded.processes import Process
from fairlane.local.plan import StackPlan
from fairlane.local.stack import Stack
from fairlane.store.connection.connect import RedisClient, open_store
from fairlane.store.keys import Keys
from fairlane.store.read.reading import LaneDirectory
from fairlane.store.write.lanes.lanes import Lanes
from fairlane.store.write.leases import Leases
from fairlane.store.write.workers import Beat, Workers
from fairlane.testing import ModelStats, ServedProvider, SimulatedModel, SimulatorConfig, serve_in_thread
from tests.support.preloaded import spawn
from tests.support.wait import wait_until

READY_S = 30.0
"""Longer than any of these small deployments needs to start or to react."""

SPARE_MODELS = 300
"""More models than the tests of a session use. Each has its own lane, and only one test uses it."""

SCHEDULER = {"leader_lease_seconds": 1.0, "lease_seconds": 3.0, "worker_timeout_seconds": 2.0}
WORKER = {"beat_seconds": 0.3}
"""Shorter than in production, so that tests wait less for lost processes to be noticed."""


@dataclass(slots=True)
class Cluster:
    """A running deployment. ``provider`` serves the connection ``sim`` over HTTP, from this process."""

    stack: Stack
    provider: ServedProvider
    settings: Settings
    directory: Path
    redis: RedisClient
    _open: ExitStack
    _clients: dict[str, Client] = field(default_factory=dict)
    _spare: Iterator[int] = field(default_factory=lambda: iter(range(SPARE_MODELS)))
    _read_from: dict[Path, int] = field(default_factory=dict)

    @property
    def keys(self) -> Keys:
        return Keys(self.settings.redis.deployment)

    @property
    def lanes(self) -> Lanes:
        return Lanes(self.redis, self.keys)

    @property
    def client(self) -> Client:
        return self.client_of("search")

    def client_of(self, team: str) -> Client:
        """A team's client; the cluster closes it at its end."""
        if team not in self._clients:
            client = Client(settings=self.settings.model_copy(update={"team": team}))
            self._clients[team] = self._open.enter_context(client)
        return self._clients[team]

    def new_model(self, **behaviour: Any) -> str:
        """The name of a model that no test has used; ``behaviour`` are fields of `SimulatedModel`."""
        name = f"m{next(self._spare)}"
        self.provider.change_model(name, **behaviour)
        return name

    def served(self, model: str) -> ModelStats:
        """The provider's own statistics of a model."""
        return self.provider.stats().models[model]

    def process(self, name: str) -> Process:
        return self.stack.processes[name]

    def leader(self) -> Process:
        """The scheduler that holds the leader's lease."""
        identity = self.redis.hget(self.keys.leader, "id")
        assert identity is not None, "nobody leads"
        return self.process(identity.decode())

    def beats(self) -> list[Beat]:
        """The workers that are registered in Redis."""
        return Workers(self.keys).beats(self.redis)

    def held(self) -> dict[str, int]:
        """By worker, the attempts that it has claimed and not reported; workers without any are left out."""
        leases = Leases(self.redis, self.keys)
        counts = {beat.info.name: len(leases.of_worker(beat.worker)) for beat in self.beats()}
        return {name: count for name, count in counts.items() if count}

    def begin(self) -> None:
        """Begin a test: it ignores log lines and dead processes from before."""
        self._read_from = {log: log.stat().st_size for log in self._logs()}
        self.stack.poll()

    def logged(self, event: Event, **fields: Any) -> list[dict[str, Any]]:
        """The log lines of all processes with this event and these fields, in no particular order."""
        found = []
        for log in self._logs():
            text = log.read_bytes()[self._read_from.get(log, 0) :].decode(errors="replace")
            for line in text.splitlines():
                if f'"{event}"' in line and line.startswith("{"):
                    entry = json.loads(line)
                    if entry["event"] == event and fields.items() <= entry.items():
                        found.append(entry)
        return found

    def wait_logged(self, event: Event, **fields: Any) -> None:
        """Return once a process has logged a line with this event and these fields."""
        wait_until(lambda: self.logged(event, **fields))

    def wait_ready(self, workers: int) -> None:
        """Return once that many workers serve all lanes, and a scheduler leads."""
        wait_until(lambda: self._is_ready(workers), timeout=READY_S)

    def _is_ready(self, workers: int) -> bool:
        carrier = LaneDirectory.read(self.redis, self.keys).carrier
        stated = {carrier(lane) for lane in self.settings.lanes}
        wanted = {lane.decode() for lane in self.redis.smembers(self.keys.lanes)} | stated
        beats = self.beats()
        serving = len(beats) == workers and all(wanted <= set(beat.info.lanes) for beat in beats)
        return serving and bool(self.redis.hget(self.keys.leader, "id"))

    def _logs(self) -> list[Path]:
        return sorted((self.directory / "data" / "logs").glob("*.log"))


@contextmanager
def cluster(
    directory: Path,
    models: Mapping[str, SimulatedModel] | None = None,
    *,
    config: str = "",
    scheduler: Mapping[str, float] | None = None,
    worker: Mapping[str, float] | None = None,
    workers: int = 2,
    slots: int = 20,
    schedulers: int = 1,
    env: Mapping[str, str] | None = None,
    redis_url: str | None = None,
) -> Iterator[Cluster]:
    """Start a deployment, wait until each worker serves all lanes in ``config``, and stop it at the end.

    ``models`` are further models of the connection ``sim``. ``config`` is further TOML, such as lanes and
    teams, in which ``{base_url}`` stands for the provider's URL. The deployment has its own Redis unless
    ``redis_url`` is given.
    """
    with ExitStack() as stack:
        spare = {f"m{number}": SimulatedModel() for number in range(SPARE_MODELS)}
        served = SimulatorConfig(models={**spare, **(models or {})})
        provider = stack.enter_context(serve_in_thread(served))
        file = directory / "fairlane.toml"
        further = config.replace("{base_url}", provider.base_url)
        file.write_text(_toml(provider.base_url, scheduler or {}, worker or {}, further), encoding="utf-8")
        plan = StackPlan(
            data_dir=directory / "data",
            config=file,
            env=env or {},
            redis_url=redis_url,
            workers=workers,
            schedulers=schedulers,
            slots=slots,
        )
        processes = stack.enter_context(Stack(plan, spawn=spawn))
        settings = load_settings(file, environ=processes.environment)
        redis = stack.enter_context(open_store(settings.redis))
        made = Cluster(processes, provider, settings, directory, redis, stack)
        made.wait_ready(workers)
        yield made


def whole(run: Run, timeout: float = 45.0) -> list[Record]:
    """Wait for a run's end and return its records. Fails unless each item has one and the counts agree."""
    status = run.wait(timeout=timeout)
    records = list(run.results())
    check_books(status, records)
    return records


def all_succeeded(run: Run, timeout: float = 45.0) -> list[Record]:
    """Like `whole`; fails unless the run has completed and every job has succeeded."""
    records = whole(run, timeout)
    assert run.status().state is RunState.COMPLETED
    failed = [(record.item, record.state, record.error) for record in records if record.error]
    assert not failed, failed[:3]
    assert {record.state for record in records} <= {JobState.SUCCEEDED}
    return records


def check_books(status: RunStatus, records: list[Record]) -> None:
    """Fail unless each job is in exactly one terminal record and progress is exactly 1."""
    assert status.state.finished
    assert [record.item for record in records] == list(range(status.items))
    assert (status.items_done, status.jobs_done) == (status.items, status.jobs)
    assert status.progress == 1.0
    assert status.in_flight == 0
    assert sum(status.by_state.values()) == status.jobs
    if not any(record.scores for record in records):
        assert Counter(record.state for record in records) == {k: n for k, n in status.by_state.items() if n}


def numbered(count: int, **fields: Any) -> list[dict[str, Any]]:
    """``count`` rows with a different ``n`` each, so that the provider can distinguish their calls."""
    return [{"n": n, **fields} for n in range(count)]


def _toml(base_url: str, scheduler: Mapping[str, float], worker: Mapping[str, float], config: str) -> str:
    lines = ["[connections.sim]", 'protocol = "openai"', f'base_url = "{base_url}"']
    for section, values in (("scheduler", SCHEDULER | dict(scheduler)), ("worker", WORKER | dict(worker))):
        lines += [f"[{section}]", *(f"{name} = {value}" for name, value in values.items())]
    return "\n".join([*lines, "[log]", 'format = "json"', 'calls = "all"', config])
