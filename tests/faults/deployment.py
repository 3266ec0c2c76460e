"""Two schedulers, three workers and Redis as real processes, each behind its own proxy, and the provider."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

from redis.backoff import NoBackoff
from redis.exceptions import RedisError
from redis.retry import Retry

from fairlane import Client, Settings
from fairlane.config.loader import load_settings
from fairlane.core.errors import FairlaneError
from fairlane.embedded.guard import Guard
from fairlane.embedded.processes import Process, describe_exit, stop_all
from fairlane.embedded.server import EmbeddedRedis
from fairlane.store.connection.connect import RedisClient, open_redis
from fairlane.store.keys import Keys
from fairlane.store.write.lanes.lanes import Lanes
from fairlane.store.write.workers import Beat, Workers
from tests.faults.kinds import (
    BEAT_S,
    LEADER_LEASE_S,
    LEASE_S,
    SCHEDULERS,
    WORKER_TIMEOUT_S,
    WORKERS,
)
from tests.faults.provider import WORKER_HEADER, ServedJournal, serve_journal
from tests.faults.proxy import Proxies, run_proxies
from tests.faults.servers import OneServer, WatchedServers
from tests.support.rabbitmq import RabbitMQ
from tests.support.redis_fleet import Fleet
from tests.support.wait import wait_until

CLIENT, PROVIDER = "client", "provider"
EVERYBODY = (*SCHEDULERS, *WORKERS, CLIENT)
SLOTS = 20
READY_S = 60.0
STOP_S = 30.0
"""A worker gives its calls `worker.shutdown_grace_seconds`, 20 s, and needs some time itself."""

ARCHIVED_AFTER_S = 6.0
"""Some runs are read from Redis, some from the archive, and some are moved while they are read."""

KEPT_S = 45
"""Finished runs then are in the archive alone, so that much of a session reads them there."""

PATIENCE_S = 1.0
CONFIG = """
[connections.sim]
protocol = "openai"
base_url = "{base_url}"
[scheduler]
leader_lease_seconds = {leader_lease}
lease_seconds = {lease}
worker_timeout_seconds = {worker_timeout}
finished_ttl_seconds = {kept}
[worker]
beat_seconds = {beat}
slots = {slots}
[archive]
url = "sqlite:///{archive}"
after_seconds = {archived_after}
[log]
format = "json"
calls = "all"
"""


class Deployment:
    """What a schedule is played on. ``redis`` is the harness' own connection, behind a proxy too."""

    def __init__(
        self,
        directory: Path,
        proxies: Proxies,
        provider: ServedJournal,
        guard: Guard,
        broker: RabbitMQ | None = None,
        watched: bool = False,
    ) -> None:
        self.directory, self.proxies, self.provider = directory, proxies, provider
        self._guard, self.broker = guard, broker
        self.down: set[str] = set()
        self._stopping: dict[str, float] = {}
        self._returning: dict[str, Mapping[str, str] | None] = {}
        self.died: list[str] = []
        self.schedules = 0
        self._led = SCHEDULERS[0]
        self._read_from: dict[Path, int] = {}
        self.servers: OneServer | WatchedServers = (
            WatchedServers(directory / "redis")
            if watched
            else OneServer(directory, proxies, guard, EVERYBODY)
        )
        self._broker_ports = {name: proxies.add(to_broker(name), broker.port) for name in EVERYBODY if broker}
        self.config = directory / "fairlane.toml"
        base_url = f"http://127.0.0.1:{proxies.add(PROVIDER, provider.port)}/v1"
        self.config.write_text(
            CONFIG.format(
                base_url=base_url,
                leader_lease=LEADER_LEASE_S,
                lease=LEASE_S,
                worker_timeout=WORKER_TIMEOUT_S,
                kept=KEPT_S,
                beat=BEAT_S,
                slots=SLOTS,
                archive=directory / "archive.sqlite",
                archived_after=ARCHIVED_AFTER_S,
            ),
            encoding="utf-8",
        )
        self.processes = {name: self._process(name) for name in (*SCHEDULERS, *WORKERS)}
        self.settings: Settings = load_settings(self.config, environ=self.environment(CLIENT))
        self.redis: RedisClient = open_redis(
            str(self.settings.redis.url),
            deployment=self.settings.redis.deployment,
            socket_timeout=PATIENCE_S,
            socket_connect_timeout=PATIENCE_S,
            retry=Retry(NoBackoff(), 0),
        )
        self.keys = Keys(self.settings.redis.deployment)
        self._clients = ExitStack()

    @property
    def lanes(self) -> Lanes:
        return Lanes(self.redis, self.keys)

    def client_of(self, team: str) -> Client:
        """A new client of a team; it closes with the deployment."""
        settings = self.settings.model_copy(update={"team": team})
        return self._clients.enter_context(Client(settings=settings))

    def environment(self, name: str) -> dict[str, str]:
        """The environment of the process ``name``: its own way to Redis, and its name in its calls."""
        broker = dict[str, str]()
        if self.broker is not None:
            broker["FAIRLANE_CELERY__BROKER_URL"] = self.broker.url_at(self._broker_ports[name])
        return {
            **broker,
            "PYTHONUNBUFFERED": "1",
            "FAIRLANE_CONFIG": str(self.config),
            "FAIRLANE_REDIS__URL": self.servers.url_for(name),
            f"FAIRLANE_CONNECTIONS__SIM__HEADERS__{WORKER_HEADER.upper()}": name,
        }

    def start(self) -> None:
        """Start every process, and return once all workers beat and a scheduler leads."""
        for process in self.processes.values():
            process.start()
        self.wait_whole()

    def wait_whole(self) -> None:
        """Return once every process runs, all workers beat, and a scheduler leads."""
        wait_until(self._is_whole, timeout=READY_S, interval=0.1)

    def _is_whole(self) -> bool:
        self.mind()
        with suppress(RedisError):
            running = all(process.is_running for process in self.processes.values())
            fresh = {beat.info.pid for beat in self.beats()} >= {
                self.processes[name].pid for name in WORKERS if self.processes[name].is_running
            }
            return running and fresh and bool(self.redis.hget(self.keys.leader, "id"))
        return False

    def beats(self) -> list[Beat]:
        return Workers(self.keys).beats(self.redis)

    def leader(self) -> str:
        """The scheduler that led when Redis last answered; the first one if nobody ever did."""
        with suppress(RedisError):
            if name := self.redis.hget(self.keys.leader, "id"):
                self._led = name.decode()
        return self._led

    def mind(self) -> None:
        """Do what a supervisor does: start again what has ended, and note what ended as it should not."""
        for name, process in self.processes.items():
            if name in self._stopping:
                self._mind_stopping(name, process)
            elif name not in self.down and process.returncode is not None:
                self.died.append(f"{name} {describe_exit(process.returncode)}: {process.log_tail(3)[-400:]}")
                process.start()

    def _mind_stopping(self, name: str, process: Process) -> None:
        if process.is_running and time.monotonic() < self._stopping[name]:
            return
        if process.is_running:
            self.died.append(f"{name} did not stop within {STOP_S:g} s of SIGTERM")
            process.end_by_force()
        elif not _ended_well(process):
            how = describe_exit(process.returncode or 0)
            self.died.append(f"{name} {how} on SIGTERM: {process.log_tail(3)}")
        del self._stopping[name]
        if name in self._returning:
            self.revive(name, self._returning.pop(name))

    def kill(self, name: str) -> None:
        """SIGKILL; it stays down until `revive`."""
        self.down.add(name)
        self._stopping.pop(name, None)
        self._returning.pop(name, None)
        self.processes[name].end_by_force()

    def stop(self, name: str) -> None:
        """SIGTERM, without waiting for its end; it stays down until `revive`."""
        self.down.add(name)
        self._stopping.setdefault(name, time.monotonic() + STOP_S)
        self.processes[name].ask_to_stop()

    def revive(self, name: str, env: Mapping[str, str] | None = None) -> None:
        """Start it again with further variables, as soon as it has ended."""
        if name in self._stopping:
            self._returning[name] = env
            return
        self.processes[name] = self._process(name, env)
        self.processes[name].start()
        self.down.discard(name)

    @property
    def one(self) -> OneServer:
        """The only server."""
        assert isinstance(self.servers, OneServer), "Sentinels watch the servers"
        return self.servers

    @property
    def server(self) -> EmbeddedRedis:
        """The only server's process."""
        return self.one.server

    @property
    def fleet(self) -> Fleet:
        """The servers that Sentinels watch."""
        assert isinstance(self.servers, WatchedServers), (
            "no Sentinel watches the server: play it with --sentinels"
        )
        return self.servers.fleet

    def begin(self) -> None:
        """Begin a schedule: log lines and deaths from before it do not count."""
        self._read_from = {log: log.stat().st_size for log in self._logs()}
        self.died = []
        self.schedules += 1

    def logged(self) -> list[dict[str, Any]]:
        """The log lines since `begin`, and tracebacks that are none."""
        found = list[dict[str, Any]]()
        for log in self._logs():
            text = log.read_bytes()[self._read_from.get(log, 0) :].decode(errors="replace")
            for line in text.splitlines():
                if line.startswith("{"):
                    with suppress(ValueError):
                        found.append({"process": log.stem, **json.loads(line)})
                elif line.startswith("Traceback"):
                    after = text[text.index(line) :][:3000]
                    found.append({"event": "traceback", "process": log.stem, "text": after})
        return found

    def stop_all(self) -> list[str]:
        """Stop everything; what did not end as it should."""
        self.died = []
        self.servers.wake()
        running = [process for process in self.processes.values() if process.is_running]
        stop_all(running, STOP_S)
        wrong = [
            f"{each.name} {describe_exit(each.returncode or 0)} on SIGTERM: {each.log_tail(3)}"
            for each in running
            if not _ended_well(each)
        ]
        self._clients.close()
        self.redis.close()
        self.servers.stop()
        return wrong

    def _process(self, name: str, env: Mapping[str, str] | None = None) -> Process:
        return Process(
            name,
            _command(name),
            log=self.directory / "logs" / f"{name}.log",
            guard=self._guard,
            env={**self.environment(name), **(env or {})},
        )

    def _logs(self) -> list[Path]:
        return sorted((self.directory / "logs").glob("*.log"))


def to_broker(name: str) -> str:
    """The name of a process's proxy to RabbitMQ."""
    return f"{name} to broker"


def _ended_well(process: Process) -> bool:
    """Whether it ended as SIGTERM asks. One without a log line of ours is still importing."""
    logged = any(line.startswith("{") for line in process.log_tail(50).splitlines())
    return process.returncode == 0 or (process.returncode == -signal.SIGTERM and not logged)


def _command(name: str) -> list[str]:
    """The last worker is plain Celery's own command."""
    if name == WORKERS[-1]:
        app = ["-m", "celery", "-A", "fairlane_workers.app", "worker"]
        return [sys.executable, "-P", *app, "--without-gossip", "--without-mingle", "-n", f"{name}@%h"]
    package = "workers" if name in WORKERS else "scheduler"
    return [sys.executable, "-P", "-m", f"fairlane_{package}", "--name", name]


@contextmanager
def deployed(
    directory: Path, broker: RabbitMQ | None = None, *, watched: bool = False
) -> Iterator[Deployment]:
    """A whole deployment, whose messages are in Redis or in another broker; at the end all of it is gone.

    ``watched``: Sentinels decide which Redis it uses.
    """
    with Guard() as guard, run_proxies() as proxies, serve_journal() as provider:
        made = Deployment(directory, proxies, provider, guard, broker, watched)
        try:
            made.start()
            yield made
        finally:
            with suppress(FairlaneError, RedisError):
                made.stop_all()
