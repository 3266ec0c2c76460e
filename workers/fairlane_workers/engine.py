"""Runs a worker's event loop in a thread of its own, with its executor, heartbeat and providers."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import threading
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from fairlane.broker.bundle import READS_BUNDLES
from fairlane.config.connections.connection import Connection
from fairlane.config.connections.lane_identity import server_digests
from fairlane.config.environment import process_environment
from fairlane.config.sections import TracingSettings
from fairlane.config.settings import Settings, WorkerSecrets
from fairlane.core.clock import SystemClock
from fairlane.core.errors import ConfigurationError
from fairlane.core.events import Event
from fairlane.core.version import __version__
from fairlane.model.job import Attempt
from fairlane.model.lane import FUNCTIONS
from fairlane.sandbox.pool import Pool, open_pool
from fairlane.store.connection.primary_pool import async_primary_pool
from fairlane.store.keys import Keys
from fairlane.store.write.attempts import Attempts
from fairlane.store.write.workers import WorkerInfo
from fairlane.telemetry.logs import get_logger
from fairlane.telemetry.metrics_server import MetricsServer
from fairlane.telemetry.watchdog import Watchdog
from fairlane_workers.execution.batcher import Absence, Batcher
from fairlane_workers.execution.calls import Calls, Chunks
from fairlane_workers.execution.child_work import ChildWork
from fairlane_workers.execution.denied_lanes import DeniedLanes
from fairlane_workers.execution.executor import Executor
from fairlane_workers.execution.inputs import InputReader
from fairlane_workers.functions.catalog import Catalog, ImportedFunctions
from fairlane_workers.intake.lane_queues import LaneQueues
from fairlane_workers.intake.loop_pool import Starter
from fairlane_workers.providers.auth.rotating_key import rotating_key
from fairlane_workers.providers.contract import Provider
from fairlane_workers.providers.functions import FunctionProvider
from fairlane_workers.providers.registry import UnusableProvider, open_provider
from fairlane_workers.telemetry.metrics import WorkerMetrics
from fairlane_workers.upkeep.capacity import STARTS_PER_S, Capacity, fit_slots
from fairlane_workers.upkeep.credentials import CredentialReports
from fairlane_workers.upkeep.health import WorkerHealth
from fairlane_workers.upkeep.heartbeat import Drain, Heartbeat, OtherWorkers, ServedLanes

if TYPE_CHECKING:
    from fairlane_workers.telemetry.spans import Spans

log = get_logger("engine")

READY_S, CLOSE_S, CANCEL_AGAIN_S = 30.0, 10.0, 0.1
FIRST_LOOK_S = 5.0  # the time for commands that print keys, before the first heartbeat
REPORT_S = 5.0  # the time for last reports once the grace period has passed


class Engine:
    """Started once per process, before its first task; the pool calls `start_attempt`."""

    def __init__(
        self,
        settings: Settings,
        secrets: WorkerSecrets,
        name: str | None = None,
        catalog: Catalog | None = None,
        end: Callable[[], None] = lambda: None,
    ) -> None:
        """``catalog`` has the functions of ``settings.worker.modules``; left out, they are imported.

        ``end`` stops the process warmly. The engine calls it on its loop once an operator's drain with
        ``--stop`` is complete. ``reported`` is done once Redis has accepted the first heartbeat.
        """
        self._end = end
        self._settings, self._secrets = settings, secrets
        self._catalog = catalog or ImportedFunctions(settings.worker.modules)
        self.worker = uuid.uuid4().hex[:12]
        self.name = name or f"worker@{socket.gethostname()}-{os.getpid()}"
        self.queues = LaneQueues(self._on_subscribed, self)
        self.reported: Future[None] = Future()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop
        self._starter: Starter
        self._batchers: tuple[Batcher, Batcher]  # of claims, and of reports
        self._executor: Executor
        self._pool: Pool
        self._heartbeat: Heartbeat
        self._background: list[asyncio.Task[None]] = []
        self._spans = open_spans(settings.tracing, settings.connections)
        self._fit = fit_slots(settings.worker.slots)
        self._capacity = Capacity(self._fit.slots, fixed=bool(settings.worker.modules))
        self._metrics = WorkerMetrics(
            slots=lambda: self._capacity.slots,
            lanes=settings.lanes,
            most_lanes=settings.metrics.lanes,
            busy=self._busy,
            consumed=lambda: len(self.queues.consumed),
            pending=self._pending,
        )
        timeout_s = settings.scheduler.worker_timeout_seconds
        self._health = WorkerHealth(
            SystemClock(),
            timeout_s,
            lambda: self.queues.listening,
            self._on_loop_delay,
            trouble=lambda: self._batchers[0].trouble,
            drained=lambda: self.queues.drained,
        )
        self._watchdog = Watchdog(
            self._health.silent_s, lambda: None if self._thread is None else self._thread.ident
        )
        port, registry = settings.metrics.worker_port, self._metrics.registry
        self._server = MetricsServer(settings.metrics, port, registry, self._health)

    @property
    def metrics_url(self) -> str | None:
        """The URL of the metrics server; ``None`` if it does not listen."""
        return self._server.url

    def start(self) -> None:
        """Build everything on the loop, and begin to send heartbeats. If that fails, nothing is left."""
        self._loop = asyncio.new_event_loop()
        self._starter = Starter(self._loop)
        self._thread = threading.Thread(target=self._serve, name="fairlane-engine", daemon=True)
        self._thread.start()
        try:
            asyncio.run_coroutine_threadsafe(self._open(), self._loop).result(READY_S)
        except BaseException:
            self._end_loop()
            raise
        self._server.start()
        self._watchdog.start()
        log.info(Event.WORKER_STARTED, worker=self.worker, slots=self._capacity.slots)
        if self._fit.shortage:
            log.warning(Event.SLOTS_LOWERED, slots=self._fit.slots, reason=self._fit.shortage)

    def start_attempt(self, attempt: Attempt, free_slot: Callable[[], None] = lambda: None) -> Future[str]:
        """Start one attempt; the future holds its result, see `Executor.execute`, once it is reported.

        ``free_slot`` is called on the engine's thread if the attempt needs its slot no longer before that.
        """
        return self._starter.start(partial(self._executor.execute, attempt, free_slot))

    def stands_still(self) -> bool:
        """Whether the event loop has not turned for `worker_timeout_seconds`."""
        return self._thread is not None and self._health.lost

    def put_back(self) -> None:
        """Requeue the attempts that the loop has not started; for the consumer's thread."""
        self._starter.put_back()

    def begin_stop(self) -> None:
        """Stop warmly, once: take no new calls, requeue those that have not finished within the grace period.

        If Redis is unreachable then, the engine waits a little longer; after that the leases lapse.
        """
        if self._thread is None or self._health.stopping:
            return
        log.info(Event.WORKER_STOPPING, busy=self._executor.busy, pending=self._executor.pending)
        self._health.stopping = True
        grace_s = self._settings.worker.shutdown_grace_seconds
        soon = self._loop.call_soon_threadsafe
        soon(self._heartbeat.stopping)
        soon(self._loop.call_later, grace_s, lambda: self._executor.abort_all("the worker stops"))
        soon(self._loop.call_later, grace_s + REPORT_S, self._give_up)

    def close(self) -> None:
        """Remove the worker from the deployment's list and end the loop."""
        if self._thread is None:
            return
        self._server.stop()
        self._watchdog.stop()
        self._loop.call_soon_threadsafe(self._give_up)
        try:
            asyncio.run_coroutine_threadsafe(self._shut(), self._loop).result(CLOSE_S)
        except TimeoutError:
            log.warning(Event.STORE_UNREACHABLE, error="the worker could not sign off in time")
        self._end_loop()

    def _end_loop(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            thread.join(CLOSE_S)

    def _give_up(self) -> None:
        for batcher in self._batchers:
            batcher.give_up()

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        while not self._loop.is_closed():
            try:
                self._loop.run_forever()
                self._loop.close()
            except (KeyboardInterrupt, SystemExit):  # raised by a task that a user's function started
                log.warning(Event.FUNCTION_RAISED, exc_info=True)

    def _busy(self) -> int:
        return 0 if self._thread is None else self._executor.busy

    def _pending(self) -> int:
        return 0 if self._thread is None else self._executor.pending

    def _on_loop_delay(self, delay_s: float) -> None:
        """The loop was late by ``delay_s``."""
        self._metrics.loop_delay.observe(delay_s)
        self._capacity.note(delay_s)

    def _on_heartbeat(self) -> None:
        self._health.beaten()
        if not self.reported.done():
            self.reported.set_result(None)

    def _on_subscribed(self, lanes: frozenset[str]) -> None:
        self._loop.call_soon_threadsafe(lambda: self._heartbeat.subscribed(lanes))

    async def _open(self) -> None:
        settings, clock = self._settings, SystemClock()
        keys, lease_ms = Keys(settings.redis.deployment), round(settings.scheduler.lease_seconds * 1000)
        self._redis = _open_redis(settings)
        new_batcher = partial(
            Batcher,
            self._redis,
            # A worker that beats often is missed soon, so it also looks often whether Redis is back.
            away_most_s=settings.worker.beat_seconds,
            absence=Absence(),
            observe=self._metrics.redis_seconds.observe,
        )
        batcher, reports = self._batchers = new_batcher(), new_batcher()
        rotating = {
            name: key
            for name, connection in settings.connections.items()
            if (key := rotating_key(name, connection, clock)) is not None
        }
        self._providers: dict[str, Provider] = {
            name: await open_provider(name, connection, self._secrets, clock, rotating.get(name))
            for name, connection in settings.connections.items()
        }
        others = OtherWorkers(batcher, keys, self.worker)
        denied = DeniedLanes(clock, others.lanes)
        if settings.worker.modules:
            self._providers[FUNCTIONS] = FunctionProvider(
                self._catalog, slots=self._capacity.slots, clock=clock, elsewhere=others.runs
            )
        self._pool = open_pool(settings.sandbox, process_environment())
        children = ChildWork(reports, keys, self._pool, settings)
        self._executor = Executor(
            worker=self.worker,
            attempts=Attempts(keys),
            batcher=batcher,
            reports=reports,
            keys=keys,
            inputs=InputReader(batcher, keys, children),
            calls=Calls(settings, self._providers, Chunks(reports, keys, clock)),
            lease_ms=lease_ms,
            clock=clock,
            rng=random.Random(),
            observers=(self._metrics, *self._spans),
            children=children,
            servers=server_digests(settings.connections),
            denied=denied,
        )
        unusable = {
            name: provider.reason
            for name, provider in self._providers.items()
            if isinstance(provider, UnusableProvider)
        }
        usable = {name: each for name, each in settings.connections.items() if name not in unusable}
        info = WorkerInfo(
            name=self.name,
            slots=self._capacity.slots,
            lanes=(),
            version=__version__,
            pid=os.getpid(),
            host=socket.gethostname(),
            started_ms=clock.now_ms(),
            modules=settings.worker.modules,
            connections=tuple(settings.connections),
            messages=READS_BUNDLES,
            starts_per_s=STARTS_PER_S,
            shortage=self._fit.shortage,
            unusable=unusable,
        )
        self._heartbeat = Heartbeat(
            redis=self._redis,
            batcher=batcher,
            keys=keys,
            executor=self._executor,
            settings=settings.worker,
            served=ServedLanes(settings.worker, usable),
            lease_ms=lease_ms,
            worker=self.worker,
            info=info,
            subscribe=self.queues.want_only,
            beaten=self._on_heartbeat,
            drain=Drain(self.queues.hold, self._end),
            capacity=self._capacity,
            denied=denied,
        )
        self._credentials = CredentialReports(
            batcher,
            keys,
            self._secrets,
            rotating,
            self._heartbeat.holding,
            renewed=self._heartbeat.renewed,
        )
        self._background = [
            asyncio.create_task(self._beat()),
            asyncio.create_task(self._heartbeat.listen()),
            asyncio.create_task(self._health.turn()),
        ]

    async def _beat(self) -> None:
        """Send heartbeats from now on. The first one already reports the credentials that are soon there."""
        await self._credentials.look(FIRST_LOOK_S)
        self._background.append(asyncio.create_task(self._credentials.run()))
        await self._heartbeat.run()

    async def _shut(self) -> None:
        await end_all(self._background)
        with suppress(RedisError):
            await self._heartbeat.leave()
        await self._credentials.aclose()
        closing = (provider.aclose() for provider in self._providers.values())
        await asyncio.gather(*closing, return_exceptions=True)  # a defect of one keeps nothing else open
        await self._redis.aclose()
        await asyncio.to_thread(self._pool.close)
        for spans in self._spans:
            await asyncio.to_thread(spans.close)


async def end_all(tasks: Iterable[asyncio.Task[None]]) -> None:
    """Cancel tasks until they have ended: `asyncio.wait_for` of Python 3.11, by which redis-py sends, may
    swallow a cancellation.
    """
    left = set(tasks)
    while left:
        for task in left:
            task.cancel()
        _, left = await asyncio.wait(left, timeout=CANCEL_AGAIN_S)


def open_spans(settings: TracingSettings, connections: Mapping[str, Connection]) -> Sequence[Spans]:
    """The observer that makes spans, or none. Raises `ConfigurationError` if the extra is not installed."""
    if not settings.enabled:
        return ()
    try:
        from fairlane_workers.telemetry.spans import Spans
    except ImportError as error:
        problem = f"OpenTelemetry is not installed ({error.name})"
        raise ConfigurationError(
            "tracing.enabled", True, problem, "Do: pip install 'fairlane[otel]'."
        ) from None
    return (Spans(settings, connections),)


def _open_redis(settings: Settings) -> Redis:
    """A client without retries of its own: the batcher retries, and knows which calls may be repeated."""
    url, answer_s = settings.redis.url, settings.scheduler.worker_answer_s
    network = {"socket_connect_timeout": answer_s, "socket_keepalive": True}
    how: dict[str, Any] = {
        **({} if url.startswith("unix://") else network),
        "socket_timeout": answer_s,
        "retry": Retry(NoBackoff(), 0),
    }
    return Redis.from_pool(async_primary_pool(url, settings.redis.deployment, **how))
