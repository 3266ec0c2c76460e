"""A worker process' event loop in a thread of its own, with everything that runs on it."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import threading
import uuid
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from fairlane.clock import SystemClock
from fairlane.events import Event
from fairlane.job import MESSAGE_VERSION, Attempt
from fairlane.lane import FUNCTIONS
from fairlane.logs import get_logger
from fairlane.metrics_server import MetricsServer
from fairlane.settings import Settings, WorkerSecrets
from fairlane.store.attempts import Attempts
from fairlane.store.keys import Keys
from fairlane.store.primary_pool import async_primary_pool
from fairlane.store.trust import options_of
from fairlane.store.workers import WorkerInfo
from fairlane.topology import topology_of
from fairlane.version import __version__
from fairlane_workers.batcher import Batcher
from fairlane_workers.chunks import Chunks
from fairlane_workers.credentials import fingerprints
from fairlane_workers.drain import Drain
from fairlane_workers.executor import Executor
from fairlane_workers.functions.catalog import Catalog, ImportedFunctions
from fairlane_workers.functions.roster import Roster
from fairlane_workers.health import WorkerHealth
from fairlane_workers.heartbeat import Heartbeat
from fairlane_workers.lane_queues import LaneQueues
from fairlane_workers.material import Materials
from fairlane_workers.metrics import MeasuredBatcher, WorkerMetrics
from fairlane_workers.providers.contract import Provider
from fairlane_workers.providers.functions import FunctionProvider
from fairlane_workers.providers.registry import build_provider
from fairlane_workers.traces import open_traces
from fairlane_workers.watch import Watches

log = get_logger("engine")

READY_S, CLOSE_S = 30.0, 10.0
REPORT_S = 5.0  # what a last report may take once the grace period is over
ANSWER_TIMEOUT_S = 10.0


class Engine:
    """Started once a process, before its first task; `start_attempt` is what the pool calls."""

    def __init__(
        self,
        settings: Settings,
        secrets: WorkerSecrets,
        name: str | None = None,
        catalog: Catalog | None = None,
        end: Callable[[], None] = lambda: None,
    ) -> None:
        """``catalog`` has the functions of ``settings.worker.modules``; left out, they are imported.

        ``end`` stops the process warmly; it is called on the engine's loop, once an operator who asked for
        that has been obeyed.
        """
        self._end = end
        self._settings, self._secrets = settings, secrets
        self._catalog = catalog or ImportedFunctions(settings.worker.modules)
        self.worker = uuid.uuid4().hex[:12]
        self.name = name or f"worker@{socket.gethostname()}-{os.getpid()}"
        self.queues = LaneQueues(self._on_subscribed)
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop
        self._batcher: Batcher
        self._executor: Executor
        self._heartbeat: Heartbeat
        self._background: list[asyncio.Task[None]] = []
        self._traces = open_traces(settings.tracing)
        self._metrics = WorkerMetrics(settings, self._busy, lambda: len(self.queues.consumed), self._pending)
        timeout_s, observe = settings.scheduler.worker_timeout_seconds, self._metrics.loop_delay.observe
        self._health = WorkerHealth(SystemClock(), timeout_s, lambda: self.queues.listening, observe)
        port, registry = settings.metrics.worker_port, self._metrics.registry
        self._server = MetricsServer(settings.metrics, port, registry, self._health)

    @property
    def metrics_url(self) -> str | None:
        """Where the process tells of itself; ``None`` where it does not."""
        return self._server.url

    def start(self) -> None:
        """Build everything on the loop and begin to beat."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="fairlane-engine", daemon=True)
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._open(), self._loop).result(READY_S)
        self._server.start()
        log.info(Event.WORKER_STARTED, worker=self.worker, slots=self._settings.worker.slots)

    def start_attempt(self, attempt: Attempt, free: Callable[[], None] = lambda: None) -> Future[str]:
        """Begin one attempt; the future is done when it has been reported, and has what it came to.

        ``free`` is called on the engine's thread if the attempt needs its slot no longer before that.
        """
        return asyncio.run_coroutine_threadsafe(self._executor.execute(attempt, free), self._loop)

    def begin_stop(self) -> None:
        """Warm stop: take nothing new, give back what is not finished within the grace period.

        A Redis that is away then is waited for a little longer; after that the leases lapse.
        """
        if self._thread is None:
            return
        log.info(Event.WORKER_STOPPING, busy=self._executor.busy, pending=self._executor.pending)
        self._health.stopping = True
        grace_s = self._settings.worker.shutdown_grace_seconds
        soon = self._loop.call_soon_threadsafe
        soon(self._heartbeat.stopping)
        soon(self._loop.call_later, grace_s, lambda: self._executor.abort_all("the worker stops"))
        soon(self._loop.call_later, grace_s + REPORT_S, self._batcher.give_up)

    def close(self) -> None:
        """Say goodbye and end the loop."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._server.stop()
        self._loop.call_soon_threadsafe(self._batcher.give_up)
        try:
            asyncio.run_coroutine_threadsafe(self._shut(), self._loop).result(CLOSE_S)
        except TimeoutError:
            log.warning(Event.STORE_UNREACHABLE, error="could not say goodbye in time")
        self._loop.call_soon_threadsafe(self._loop.stop)
        thread.join(CLOSE_S)

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()
        self._loop.close()

    def _busy(self) -> int:
        return 0 if self._thread is None else self._executor.busy

    def _pending(self) -> int:
        return 0 if self._thread is None else self._executor.pending

    def _on_subscribed(self, lanes: frozenset[str]) -> None:
        self._loop.call_soon_threadsafe(lambda: self._heartbeat.subscribed(lanes))

    async def _open(self) -> None:
        settings, clock = self._settings, SystemClock()
        keys = Keys(settings.redis.deployment)
        self._redis = _open_redis(settings.redis.url, settings.redis.deployment)
        batcher = self._batcher = MeasuredBatcher(self._redis, self._metrics)
        self._providers: dict[str, Provider] = {
            name: build_provider(
                name,
                connection,
                self._secrets.keys.get(name),
                proxy_credentials=self._secrets.proxies.get(name),
            )
            for name, connection in settings.connections.items()
        }
        if settings.worker.modules:
            roster = Roster(batcher, keys, self.worker)
            self._providers[FUNCTIONS] = FunctionProvider(
                self._catalog, slots=settings.worker.slots, clock=clock, elsewhere=roster.runs
            )
        self._executor = Executor(
            worker=self.worker,
            settings=settings,
            attempts=Attempts(keys),
            keys=keys,
            batcher=batcher,
            materials=Materials(batcher, keys),
            chunks=Chunks(self._redis, batcher, keys, clock),
            providers=self._providers,
            clock=clock,
            rng=random.Random(),
            watch=Watches([self._metrics, *self._traces]),
        )
        info = WorkerInfo(
            name=self.name,
            slots=settings.worker.slots,
            lanes=(),
            version=__version__,
            pid=os.getpid(),
            host=socket.gethostname(),
            started_ms=clock.now_ms(),
            modules=settings.worker.modules,
            messages=MESSAGE_VERSION,
        )
        self._heartbeat = Heartbeat(
            redis=self._redis,
            batcher=batcher,
            keys=keys,
            executor=self._executor,
            settings=settings,
            worker=self.worker,
            info=info,
            subscribe=self.queues.want,
            beaten=self._health.beaten,
            drain=Drain(self.queues, self._end),
        )
        self._background = [
            asyncio.create_task(self._beat(keys)),
            asyncio.create_task(self._heartbeat.listen()),
            asyncio.create_task(self._health.turn()),
        ]

    async def _beat(self, keys: Keys) -> None:
        """Beat from now on. The first beat already tells which credentials are held."""
        try:
            self._heartbeat.holding(await fingerprints(self._batcher, keys, self._secrets))
        except RedisError as error:
            log.warning("credentials_untold", error=str(error))
        await self._heartbeat.run()

    async def _shut(self) -> None:
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        with suppress(RedisError):
            await self._heartbeat.leave()
        for provider in self._providers.values():
            await provider.aclose()
        await self._redis.aclose()
        for traces in self._traces:
            await asyncio.to_thread(traces.close)


def _open_redis(url: str, deployment: str) -> Redis:
    """A client that repeats nothing: the batcher does, and it knows what may be repeated."""
    how: dict[str, Any] = {
        **({} if url.startswith("unix://") else {"socket_keepalive": True}),
        "socket_timeout": ANSWER_TIMEOUT_S,
        "socket_connect_timeout": ANSWER_TIMEOUT_S,
        "retry": Retry(NoBackoff(), 0),
    }
    topology = topology_of(url)
    if topology is not None:
        return Redis.from_pool(async_primary_pool(topology, deployment, **how))
    return Redis.from_url(url, **how, **options_of(url))
