"""Tells the scheduler that this worker lives, keeps its leases, and hears what it must drop or listen to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

from redis.exceptions import RedisError

from fairlane.events import Event
from fairlane.lane import FUNCTIONS
from fairlane.logs import get_logger
from fairlane.settings import Settings
from fairlane.store.connect import RedisClient
from fairlane.store.keys import Keys, RunRef
from fairlane.store.workers import WorkerInfo, Workers
from fairlane_workers.batcher import Batcher
from fairlane_workers.drain import Drain
from fairlane_workers.executor import Executor
from fairlane_workers.pause import Pause, sleep

log = get_logger("heartbeat")

CANCEL = "cancel:"
LISTEN_S = 1.0
STOPPING_BEAT_S = 0.2  # while it stops, the slots that become free are news


class Heartbeat:
    """Beats on an interval, and at once when lanes or subscriptions have changed."""

    def __init__(
        self,
        *,
        redis: RedisClient,
        batcher: Batcher,
        keys: Keys,
        executor: Executor,
        settings: Settings,
        worker: str,
        info: WorkerInfo,
        subscribe: Callable[[list[str]], None],
        drain: Drain | None = None,
        pause: Pause = sleep,
        beaten: Callable[[], None] = lambda: None,
    ) -> None:
        self._redis, self._batcher, self._keys = redis, batcher, keys
        self._executor, self._settings, self._worker = executor, settings, worker
        self._workers, self._info, self._subscribe = Workers(keys), info, subscribe
        self._lease_ms = round(settings.scheduler.lease_seconds * 1000)
        self._drain, self._pause = drain or Drain(), pause
        self._beaten = beaten
        self._ending = self._drained = False
        self._serving: frozenset[str] = frozenset()
        self._sent: WorkerInfo | None = None
        self._hurry = asyncio.Event()

    async def run(self) -> None:
        """Beat until cancelled. A beat that fails is told, and the next one comes in time."""
        while True:
            self._hurry.clear()
            try:
                await self.beat()
            except Exception:
                log.exception("beat_failed", worker=self._worker)
            with suppress(TimeoutError):
                async with asyncio.timeout(self._interval_s):
                    await self._hurry.wait()

    async def beat(self) -> None:
        """One beat: keep what is held, drop what was lost, serve the lanes that are there now.

        Before all that, hear what an operator asks.
        """
        lanes, wish = await asyncio.gather(
            self._batcher.send(("SMEMBERS", self._keys.lanes)),
            self._batcher.send(("HGET", self._keys.drains, self._worker)),
        )
        self._obey(wish)
        self._subscribe([lane for lane in sorted(lane.decode() for lane in lanes) if self._serves(lane)])
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
            self._executor.abort(attempt_id.decode(), "its lease is gone")
        if self._drained:
            self._drain.finish()

    async def listen(self) -> None:
        """Hear cancellations and new lanes until cancelled."""
        while True:
            try:
                async with self._redis.pubsub(ignore_subscribe_messages=True) as control:
                    await control.subscribe(self._keys.control)
                    self._hurry.set()
                    while True:
                        self._hear(await control.get_message(timeout=LISTEN_S))
            except (RedisError, OSError) as error:
                log.debug(Event.STORE_UNREACHABLE, error=str(error))
                await self._pause(LISTEN_S / 4)
            except Exception:
                log.exception("listening_failed", worker=self._worker)
                await self._pause(LISTEN_S)

    def subscribed(self, lanes: frozenset[str]) -> None:
        """The queues of these lanes are now being consumed; called on the event loop.

        One that is drained goes on naming the lanes of what it has in hand: its slots count there. One that
        ends may give back what it has at any moment, so that none of its slots may count.
        """
        self._serving = lanes
        if self._ending or not self._info.stopping:
            self._info = replace(self._info, lanes=tuple(sorted(lanes)))
        self._hurry.set()

    def holding(self, credentials: Mapping[str, str]) -> None:
        """The fingerprints of this worker's keys, by connection, are told from now on."""
        self._info = replace(self._info, credentials=credentials)

    def stopping(self) -> None:
        """No new work: tell the scheduler at once."""
        self._info = replace(self._info, stopping=True, draining=False)
        self._ending = True
        self._hurry.set()

    async def leave(self) -> None:
        """Say goodbye."""
        await self._batcher.send(self._workers.leave(self._worker))

    @property
    def _interval_s(self) -> float:
        interval_s = self._settings.worker.beat_seconds
        ends = self._info.stopping and not self._drained
        return min(interval_s, STOPPING_BEAT_S) if ends else interval_s

    def _hear(self, message: dict[str, Any] | None) -> None:
        if message is None:
            return
        text = message["data"].decode(errors="replace")
        if text.startswith(CANCEL):
            self._executor.abort_run(RunRef.parse(text.removeprefix(CANCEL)), "its run was cancelled")
        elif text in ("lanes", "drain"):
            self._hurry.set()

    def _obey(self, wish: bytes | None) -> None:
        """A process that ends cannot be asked for anything; a worker of which nothing is asked goes on."""
        if wish is None or self._ending:
            return
        draining = self._drain.obey(wish.decode(errors="replace"))
        if draining != self._info.draining:
            self._info = replace(self._info, draining=draining, stopping=draining)
            if not draining:
                self._info = replace(self._info, lanes=tuple(sorted(self._serving)))
            log.info(Event.WORKER_DRAINING if draining else Event.WORKER_RESUMED, busy=self._executor.busy)

    def _serves(self, lane: str) -> bool:
        """Whether this worker takes a lane's calls: those of functions, only where some may run here."""
        bound, modules = self._settings.worker.lanes, self._settings.worker.modules
        if lane.startswith(f"{FUNCTIONS}:") and not modules:
            return False
        return not bound or any(fnmatchcase(lane, pattern) for pattern in bound)
