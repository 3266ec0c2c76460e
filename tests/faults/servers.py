"""The Redis of a deployment: one server behind a proxy for each process, or several that Sentinels watch."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

import redis

from fairlane.core.errors import FairlaneError
from fairlane.embedded.guard import Guard
from fairlane.embedded.server import EmbeddedRedis
from fairlane.embedded.servers import find_server
from tests.faults.proxy import Proxies
from tests.support.redis_fleet import Fleet, watched_by_sentinels

MEASURE_S = 0.05
UNSYNCED_S = 1.0
"""What a power loss takes: Redis syncs its file once a second."""

FAILOVER_MS = 2000
"""Sentinels replace a primary again after twice this time."""


class OneServer:
    """A server that can lose power and be replaced; ``everybody`` are the processes with a way to it."""

    def __init__(self, directory: Path, proxies: Proxies, guard: Guard, everybody: tuple[str, ...]) -> None:
        self._directory, self._guard = directory, guard
        self._proxies, self._everybody = proxies, everybody
        self._sizes: deque[tuple[float, Path, int]] = deque(maxlen=400)
        self._stopped = threading.Event()
        self.server = self.start_another("redis-1")
        threading.Thread(target=self._measure, name="measure", daemon=True).start()
        self._ports = {name: proxies.add(name, self.port) for name in everybody}

    @property
    def port(self) -> int:
        """Where Redis itself listens."""
        return int(self.server.url.rpartition(":")[2].partition("/")[0])

    def url_for(self, name: str) -> str:
        """Where the process ``name`` reaches it."""
        return f"redis://127.0.0.1:{self._ports[name]}/0"

    def client(self) -> redis.Redis:
        """A client of its own, past all proxies."""
        return redis.Redis.from_url(self.server.url)

    def _measure(self) -> None:
        """Note the length of the append-only file, again and again: whoever plays faults may be held up."""
        while not self._stopped.wait(MEASURE_S):
            with suppress(OSError, ValueError):
                file = self._log_file()
                self._sizes.append((time.monotonic(), file, file.stat().st_size))

    def heal(self) -> None:
        """Start it if it does not run, and let everything pass."""
        with suppress(FairlaneError):
            if not self.server.is_running:
                self.server.start()
        self._proxies.each([*self._everybody], lambda proxy: proxy.mend())

    def stop(self) -> None:
        self._stopped.set()
        self.server.stop()

    def wake(self) -> None:
        """It goes on if it was stopped."""
        self.server.kill(signal.SIGCONT)

    def lose_a_second(self) -> None:
        """Kill Redis as a power cut does: what it wrote in the last second is not on its disk."""
        killed, file = time.monotonic(), self._log_file()
        self.server.kill()
        os.truncate(file, min(self._size_at(killed - UNSYNCED_S, file), file.stat().st_size))

    def _size_at(self, moment: float, file: Path) -> int:
        """The file's size at the first look after that moment, so that no more than that is lost."""
        looks = list(self._sizes)
        return next(
            (size for at, which, size in looks if at >= moment and which == file), file.stat().st_size
        )

    def fail_over(
        self, replica: EmbeddedRedis, before_use: Callable[[redis.Redis], None] = lambda _: None
    ) -> None:
        """Kill the primary, and lead everybody to its replica once ``before_use`` has changed it."""
        self.server.kill()
        with redis.Redis.from_url(replica.url) as promoted:
            promoted.replicaof("NO", "ONE")
            before_use(promoted)
        self.server = replica
        self._sizes.clear()
        self._proxies.lead_to(self.port, [*self._everybody])
        self._proxies.each([*self._everybody], lambda proxy: proxy.reset())

    def start_another(self, name: str) -> EmbeddedRedis:
        """One more server, which is empty and has its own directory."""
        found = find_server()
        # A write past RLIMIT_FSIZE then fails, as one on a full disk does, and ends nobody.
        patient = ("/bin/sh", "-c", 'trap "" XFSZ; exec "$0" "$@"', *found.command)
        return EmbeddedRedis(
            self._directory / name, guard=self._guard, server=replace(found, command=patient)
        ).start()

    def log_bytes(self) -> int:
        """The size of the append-only file that Redis writes to."""
        return self._log_file().stat().st_size

    def _log_file(self) -> Path:
        """The append-only file that Redis writes to: the latest, while it rewrites what came before."""
        files = self.server.data_dir.rglob("*.incr.aof")
        return max(files, key=lambda file: int(file.name.split(".")[-3]))


class WatchedServers:
    """A primary and its replica. Every process asks their Sentinels which one is the primary."""

    def __init__(self, directory: Path) -> None:
        self._open = ExitStack()
        directory.mkdir(parents=True)
        servers = watched_by_sentinels(directory, failover_ms=FAILOVER_MS, guarded=True)
        self.fleet: Fleet = self._open.enter_context(servers)

    def url_for(self, _: str) -> str:
        """The Sentinels' addresses."""
        return self.fleet.url

    def client(self) -> redis.Redis:
        """A client of the primary."""
        return self.fleet.client(self.fleet.primary())

    def heal(self) -> None:
        """Whatever is down starts again, and copies the primary."""
        self.fleet.restore()

    def wake(self) -> None:
        """No fault stops them for a while."""

    def stop(self) -> None:
        self._open.close()
