"""One worker's parts on an imitated Redis, with a provider that does what a test tells it."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import fakeredis

from fairlane.admission.lanes import Offer
from fairlane.clock import ManualClock
from fairlane.job import Attempt, Outcome, Success, Usage
from fairlane.results import JudgeResult, TaskResult
from fairlane.store.keys import RunRef
from fairlane.store.script import load_all
from fairlane.store.workers import WorkerInfo
from fairlane_workers.batcher import Batcher, Command
from fairlane_workers.chunks import Chunks
from fairlane_workers.drain import Drain
from fairlane_workers.executor import Executor
from fairlane_workers.heartbeat import Heartbeat
from fairlane_workers.material import Materials
from fairlane_workers.providers.contract import OnChunk, Request
from tests.support.scheduler_parts import Parts

WORKER = "w1"
ANSWER = Success("yes", Usage(12, 3), status=200)


class ScriptedProvider:
    """Answers as told; while ``gate`` is shut a call lasts until it is opened, or broken off."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.answer: Outcome | Callable[[Request], Outcome] = ANSWER
        self.pieces: Sequence[str] = ()
        self.started, self.gate = asyncio.Event(), asyncio.Event()
        self.gate.set()
        self.broken_off = 0
        self.heard: list[OnChunk | None] = []

    async def call(self, request: Request, on_chunk: OnChunk | None = None) -> Outcome:
        self.requests.append(request)
        self.heard.append(on_chunk)
        self.started.set()
        try:
            for piece in self.pieces:
                if on_chunk is not None:
                    await on_chunk(piece)
            await self.gate.wait()
        except asyncio.CancelledError:
            self.broken_off += 1
            raise
        return self.answer(request) if callable(self.answer) else self.answer

    async def aclose(self) -> None:
        pass


class GatedBatcher(Batcher):
    """A batcher whose round trips can be held up: before Redis is asked, or after it has answered."""

    def __init__(self, redis: Any, pause: Callable[[float], Coroutine[Any, Any, None]]) -> None:
        super().__init__(redis, pause)
        self.ask, self.hear = asyncio.Event(), asyncio.Event()
        self.ask.set()
        self.hear.set()
        self.asking, self.answered = asyncio.Event(), asyncio.Event()
        self.batches: list[int] = []

    async def _round_trip(self, commands: Sequence[Command]) -> list[Any]:
        self.batches.append(len(commands))
        self.asking.set()
        await self.ask.wait()
        replies = await super()._round_trip(commands)
        self.answered.set()
        await self.hear.wait()
        return replies


class WorkerParts:
    """A worker, and a scheduler's parts to give it work. Make it on the loop it is used on."""

    def __init__(self, server: fakeredis.FakeServer, **settings: Any) -> None:
        self.server = server
        self.redis: Any = fakeredis.FakeAsyncRedis(server=server)
        self.scheduler = Parts(fakeredis.FakeRedis(server=server))
        load_all(self.scheduler.redis)
        self.keys, self.clock = self.scheduler.keys, ManualClock()
        self.settings = self.scheduler.settings.model_copy(
            update={"worker": self.scheduler.settings.worker.model_copy(update=settings)}
        )
        self.pauses: list[float] = []
        self.batcher = GatedBatcher(self.redis, self._pause)
        self.provider = ScriptedProvider()
        self.providers: dict[str, Any] = {"sim": self.provider}
        self.materials = Materials(self.batcher, self.keys)
        self.chunks = Chunks(self.redis, self.batcher, self.keys, self.clock)
        self.executor = Executor(
            worker=WORKER,
            settings=self.settings,
            attempts=self.scheduler.attempts,
            batcher=self.batcher,
            keys=self.keys,
            materials=self.materials,
            chunks=self.chunks,
            providers=self.providers,
            clock=self.clock,
            rng=random.Random(1),
        )
        self.wanted: list[list[str]] = []
        self.intake: list[str] = []  # what the worker was told to do with its queues
        self.ended: list[str] = []
        told = SimpleNamespace(
            hold=lambda: self.intake.append("hold"), release=lambda: self.intake.append("release")
        )
        self.heartbeat = Heartbeat(
            redis=self.redis,
            batcher=self.batcher,
            keys=self.keys,
            executor=self.executor,
            settings=self.settings,
            worker=WORKER,
            info=WorkerInfo("worker-1", 10, (), "0", 1, "host", 0),
            subscribe=self.wanted.append,
            drain=Drain(told, lambda: self.ended.append("end")),
            pause=self._pause,
        )

    def grant(
        self,
        rows: int | Sequence[Mapping[str, Any]] = 1,
        count: int | None = None,
        lane: str = "sim:fast",
        **spec: Any,
    ) -> list[Attempt]:
        """Permits of a new run's first items."""
        run = self.scheduler.admit(rows, **spec)
        wanted, taken = count or run.plan.spec.items, list[Attempt]()
        while len(taken) < wanted:
            self.scheduler.feed_all()
            queued = self.scheduler.backlog.count(lane, run.ref)
            taken += self.permits(run.ref, min(queued, wanted - len(taken)), lane)
            self.scheduler.backlog.settle(lane, run.ref, 0)
        return taken

    def permits(self, ref: RunRef, count: int, lane: str = "sim:fast") -> list[Attempt]:
        """Permits of what a run has queued on a lane."""
        parts = self.scheduler
        grant = parts.lanes.grant(
            lane,
            parts.leader.epoch,
            [Offer(ref, count)],
            room=count,
            max_in_flight=10**6,
            lease_ms=15_000,
            now_ms=parts.now_ms,
        )
        assert grant is not None
        attempts = [Attempt(ref.run, ref.team, p.job, p.number, lane) for p in grant.permits]
        assert len(attempts) == count
        return attempts

    def start(self, attempt: Attempt) -> asyncio.Task[None]:
        return asyncio.create_task(self.executor.execute(attempt))

    async def calling(self, attempt: Attempt) -> asyncio.Task[None]:
        """An attempt whose call is under way, and stays so until the provider's gate is opened."""
        self.provider.gate.clear()
        self.provider.started.clear()
        task = self.start(attempt)
        await self.provider.started.wait()
        return task

    def state(self, attempt: Attempt) -> dict[str, str]:
        return self.scheduler.state(RunRef(attempt.team, attempt.run))

    def task(self, attempt: Attempt) -> TaskResult:
        return TaskResult.from_json(self._stored(attempt))

    def judged(self, attempt: Attempt) -> JudgeResult:
        return JudgeResult.from_json(self._stored(attempt))

    def leased(self) -> int:
        return self.scheduler.leases.count()

    def hot(self, attempt: Attempt) -> list[bytes]:
        """What waits to be tried again on the attempt's lane."""
        ref = RunRef(attempt.team, attempt.run)
        waiting: list[bytes] = self.scheduler.redis.lrange(self.keys.hot(ref, attempt.lane), 0, -1)
        return waiting

    def _stored(self, attempt: Attempt) -> bytes:
        key = self.keys.results(RunRef(attempt.team, attempt.run))
        text: bytes | None = self.scheduler.redis.hget(key, str(attempt.job))
        assert text is not None, f"{attempt.id} has no record"
        return text

    async def _pause(self, seconds: float) -> None:
        self.pauses.append(seconds)


def on_loop(scene: Callable[[WorkerParts], Coroutine[Any, Any, None]], **settings: Any) -> None:
    """Play a scene with a worker on a loop of its own; nothing may be left running."""

    async def play() -> None:
        parts = WorkerParts(fakeredis.FakeServer(), **settings)
        await scene(parts)
        await parts.batcher.send(("PING",))
        if parts.batcher._flusher is not None:
            await asyncio.wait([parts.batcher._flusher])
        await parts.redis.aclose()
        parts.scheduler.redis.close()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, f"left running: {left}"

    asyncio.run(play())


def lines(logs: Iterable[Mapping[str, Any]], event: str) -> list[dict[str, Any]]:
    """Lines of one event among those that were captured."""
    return [dict(line) for line in logs if line["event"] == event]
