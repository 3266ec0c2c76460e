"""Sends this worker's heartbeats, which keep its leases, and receives cancellations, lanes and drains."""

import asyncio
from collections.abc import Callable, Collection, Iterable, Mapping, Set
from contextlib import suppress
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

from redis.exceptions import RedisError

from fairlane.config.connections.connection import Connection
from fairlane.config.sections import WorkerSettings
from fairlane.core.events import Event
from fairlane.model.lane import FUNCTIONS
from fairlane.model.run import RunRef
from fairlane.store.connection.server_states import refusing_state
from fairlane.store.connection.tls_errors import in_words
from fairlane.store.keys import Keys
from fairlane.store.read.reading import LaneDirectory
from fairlane.store.redis_client import AsyncRedisClient
from fairlane.store.write.workers import WorkerInfo, WorkerRequest, Workers, read_beats
from fairlane.telemetry.logs import get_logger
from fairlane_workers.execution.batcher import Batcher
from fairlane_workers.execution.denied_lanes import DeniedLanes
from fairlane_workers.execution.executor import Executor
from fairlane_workers.execution.held import Abort
from fairlane_workers.functions.catalog import claims
from fairlane_workers.transport.pause import Pause, sleep
from fairlane_workers.upkeep.capacity import Capacity

log = get_logger("heartbeat")

CANCEL = "cancel:"
LISTEN_S = 30.0  # one wait for a message; the connection's keep-alive notices a dead server
PAUSE_S = 1.0
STOPPING_BEAT_S = 0.2  # while it stops, the scheduler needs each slot that becomes free


class ServedLanes:
    """Chooses among the deployment's lanes: those that the worker is bound to and can serve.

    Lanes of functions need ``worker.modules``. Other lanes need a connection whose calls go on them: one that
    the lane is named after, one that shares its limit, or one to its endpoint.
    """

    def __init__(self, settings: WorkerSettings, connections: Mapping[str, Connection]) -> None:
        self._settings, self._connections = settings, connections
        self._catalog: bytes | None = None
        self._named = self._read_names()

    def of(self, lanes: Iterable[str], catalog: bytes | None) -> list[str]:
        """Those of ``lanes`` that this worker serves, sorted; ``catalog`` as a scheduler published it."""
        if catalog != self._catalog:
            self._catalog, self._named = catalog, self._read_names(catalog)
        return sorted(lane for lane in lanes if self._is_bound(lane) and self._is_named(lane))

    def _read_names(self, catalog: bytes | None = None) -> set[str]:
        """First parts of names of lanes that it can serve: connections, or the lane of an endpoint."""
        directory = LaneDirectory.parse(catalog, self._connections)
        functions = {FUNCTIONS} if self._settings.modules else set[str]()
        return functions.union(*map(directory.lanes_of, self._connections))

    def _is_bound(self, lane: str) -> bool:
        bound = self._settings.lanes
        return not bound or any(fnmatchcase(lane, pattern) for pattern in bound)

    def _is_named(self, lane: str) -> bool:
        return lane in self._named or lane.partition(":")[0] in self._named


class Drain:
    """Remembers the last request, also when Redis has forgotten it."""

    def __init__(
        self, hold: Callable[[bool], None] = lambda held: None, end: Callable[[], None] = lambda: None
    ) -> None:
        """``hold`` stops the intake, or starts it again; ``end`` stops the process warmly."""
        self._hold, self._end = hold, end
        self._stop = self._ended = False

    def obey(self, wish: str) -> bool:
        """Act on a request; true if the worker takes no new calls, also after an unknown request."""
        draining = wish != WorkerRequest.WORK
        self._stop = wish == WorkerRequest.STOP
        self._hold(draining)
        return draining

    def finish(self) -> None:
        """End the process if that was requested: the worker holds no attempt any more."""
        if self._stop and not self._ended:
            self._ended = True
            self._end()


class Heartbeat:
    """Sends a heartbeat at intervals, and at once when lanes or subscriptions have changed."""

    def __init__(
        self,
        *,
        redis: AsyncRedisClient,
        batcher: Batcher,
        keys: Keys,
        executor: Executor,
        settings: WorkerSettings,
        served: ServedLanes,
        lease_ms: int,
        worker: str,
        info: WorkerInfo,
        subscribe: Callable[[list[str]], None],
        drain: Drain | None = None,
        pause: Pause = sleep,
        beaten: Callable[[], None] = lambda: None,
        capacity: Capacity | None = None,
        denied: DeniedLanes | None = None,
    ) -> None:
        """``capacity`` decides how many slots are reported; left out, those of ``info``."""
        self._denied = denied
        if denied is not None:
            denied.changed = lambda: self._hurry.set()
        self._capacity, self._served = capacity, served
        self._redis, self._batcher, self._keys = redis, batcher, keys
        self._executor, self._settings, self._worker = executor, settings, worker
        self._workers, self._info, self._subscribe = Workers(keys), info, subscribe
        self._lease_ms, self._drain, self._pause = lease_ms, drain or Drain(), pause
        self._beaten = beaten
        self._ending = self._drained = False
        self._serving: frozenset[str] = frozenset()
        self._sent: WorkerInfo | None = None
        self._hurry = asyncio.Event()

    async def run(self) -> None:
        """Send heartbeats until cancelled. One that fails is logged, and the next one is sent in time."""
        while True:
            self._hurry.clear()
            try:
                await self.beat()
            except Exception as error:
                if refusing_state(error) or (self._ending and isinstance(error, (RedisError, OSError))):
                    log.warning(Event.STORE_UNREACHABLE, error=in_words(error))
                else:
                    log.exception(Event.HEARTBEAT_FAILED, worker=self._worker)
            with suppress(TimeoutError):
                async with asyncio.timeout(self._interval_s):
                    await self._hurry.wait()

    async def beat(self) -> None:
        """Send one heartbeat: renew the leases, abort what lost its lease, subscribe to the current lanes.

        An operator's request to drain is read first.
        """
        lanes, catalog, wish = await asyncio.gather(
            self._batcher.send(("SMEMBERS", self._keys.lanes)),
            self._batcher.send(("GET", self._keys.catalog)),
            self._batcher.send(("HGET", self._keys.drains, self._worker)),
        )
        self._follow_request(wish)
        served = self._served.of((lane.decode() for lane in lanes), catalog)
        if self._denied is not None:
            await self._denied.look()
            left = self._denied.left
            served = [lane for lane in served if lane not in left]
            self._info = replace(self._info, denied=self._denied.reasons)
        self._subscribe(served)
        if self._capacity is not None:
            self._info = replace(self._info, slots=self._capacity.update(self._executor.busy))
        info = replace(self._info, busy=self._executor.busy, pending=self._executor.pending)
        self._drained = info.draining and not (info.busy or info.pending or self._serving)
        info = replace(info, drained=self._drained)
        news = info if info.stopping else self._info
        beat = self._workers.beat(
            self._worker, info, self._executor.held, self._lease_ms, changed=news != self._sent
        )
        lost = await self._batcher.send(beat)
        self._sent = news
        self._beaten()
        for attempt_id in lost:
            self._executor.abort(attempt_id.decode(), Abort("its lease is gone"))
        if self._drained:
            self._drain.finish()

    async def listen(self) -> None:
        """Receive cancellations and new lanes until cancelled."""
        while True:
            try:
                async with self._redis.pubsub(ignore_subscribe_messages=True) as control:
                    await control.subscribe(self._keys.control)
                    self._hurry.set()
                    while True:
                        self._receive(await control.get_message(timeout=LISTEN_S))
            except (RedisError, OSError) as error:
                log.debug(Event.STORE_UNREACHABLE, error=str(error))
                await self._pause(PAUSE_S / 4)
            except Exception:
                log.exception(Event.LISTENING_FAILED, worker=self._worker)
                await self._pause(PAUSE_S)

    def subscribed(self, lanes: frozenset[str]) -> None:
        """Report the lanes whose queues are being consumed; called on the event loop.

        A worker that drains still reports the lanes of the attempts it holds, since its slots count there. A
        worker that stops may requeue its attempts at any moment, so none of its slots may count.
        """
        self._serving = lanes
        if self._ending or not self._info.stopping:
            self._info = replace(self._info, lanes=tuple(sorted(lanes)))
        self._hurry.set()

    def holding(self, credentials: Mapping[str, str]) -> None:
        """Report the fingerprints of this worker's keys, by connection, from now on."""
        before, self._info = self._info.credentials, replace(self._info, credentials=credentials)
        self._renew({name for name, each in credentials.items() if before.get(name) != each})

    def renewed(self, counts: Mapping[str, int]) -> None:
        """Report at once how many keys of a connection have replaced one that was denied."""
        before, self._info = self._info.renewals, replace(self._info, renewals=counts)
        self._renew({name for name, count in counts.items() if before.get(name) != count})
        self._hurry.set()

    def _renew(self, connections: Collection[str]) -> None:
        if self._denied is not None:
            self._denied.renewed(connections)

    def stopping(self) -> None:
        """Report at once that this worker takes no new calls and ends."""
        self._info = replace(self._info, stopping=True, draining=False)
        self._ending = True
        self._hurry.set()

    async def leave(self) -> None:
        """Remove this worker from the deployment's list."""
        await self._batcher.send(self._workers.leave(self._worker))

    @property
    def _interval_s(self) -> float:
        interval_s = self._settings.beat_seconds
        ends = self._info.stopping and not self._drained
        return min(interval_s, STOPPING_BEAT_S) if ends else interval_s

    def _receive(self, message: dict[str, Any] | None) -> None:
        if message is None:
            return
        text = message["data"].decode(errors="replace")
        if text.startswith(CANCEL):
            self._executor.abort_run(RunRef.parse(text.removeprefix(CANCEL)), "its run was cancelled")
        elif text in ("lanes", "drain"):
            self._hurry.set()

    def _follow_request(self, wish: bytes | None) -> None:
        """Drain or work again as requested; a process that stops ignores requests."""
        if wish is None or self._ending:
            return
        draining = self._drain.obey(wish.decode(errors="replace"))
        if draining != self._info.draining:
            self._info = replace(self._info, draining=draining, stopping=draining)
            if not draining:
                self._info = replace(self._info, lanes=tuple(sorted(self._serving)))
            log.info(Event.WORKER_DRAINING if draining else Event.WORKER_RESUMED, busy=self._executor.busy)


class OtherWorkers:
    """Other workers' heartbeats: a function that this worker lacks may run on one of them."""

    def __init__(self, batcher: Batcher, keys: Keys, worker: str) -> None:
        self._batcher, self._keys, self._worker = batcher, keys, worker

    async def runs(self, function: str, lane: str) -> bool:
        """Whether another worker serves ``lane`` and claims that function. Raises `RedisError`."""
        return any(lane in info.lanes and claims(info.modules, function) for info in await self._infos())

    async def lanes(self) -> Set[str]:
        """Lanes that another worker serves and is not denied on. Raises `RedisError`."""
        return {lane for info in await self._infos() for lane in info.lanes if lane not in info.denied}

    async def _infos(self) -> list[WorkerInfo]:
        found = await self._batcher.send(("HGETALL", self._keys.workers))
        stored = found if isinstance(found, dict) else dict(zip(found[::2], found[1::2], strict=True))
        beats = read_beats(stored)
        return [beat.info for beat in beats if beat.worker != self._worker and not beat.info.stopping]
