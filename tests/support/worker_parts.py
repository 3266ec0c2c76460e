"""The parts of one worker on fakeredis, with a provider whose answers a test sets."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any

import fakeredis

from fairlane.config.connections.lane_identity import server_digests
from fairlane.config.settings import Settings
from fairlane.core.clock import ManualClock
from fairlane.model.job import Attempt
from fairlane.model.lane import FUNCTIONS
from fairlane.model.outcome import Outcome, Success
from fairlane.model.results import JudgeResult, TaskResult
from fairlane.model.run import RunRef
from fairlane.model.tokens import Usage
from fairlane.sandbox.pool import Pool
from fairlane.store.verbs import load_all
from fairlane.store.write.workers import WorkerInfo
from fairlane_workers.execution.batcher import Batcher, Command
from fairlane_workers.execution.calls import Calls, Chunks
from fairlane_workers.execution.child_work import ChildWork
from fairlane_workers.execution.denied_lanes import DeniedLanes
from fairlane_workers.execution.executor import Executor
from fairlane_workers.execution.inputs import InputReader
from fairlane_workers.providers.contract import OnChunk, Request
from fairlane_workers.telemetry.metrics import WorkerMetrics
from fairlane_workers.upkeep.heartbeat import Drain, Heartbeat, OtherWorkers, ServedLanes
from tests.support.scheduler_parts import LEASE_MS, Parts

WORKER = "w1"
ANSWER = Success("yes", Usage(12, 3), status=200)


class ScriptedProvider:
    """Gives the answers that a test sets. Calls wait while ``gate`` is closed, unless they are cancelled."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.answer: Outcome | Callable[[Request], Outcome] = ANSWER
        self.pieces: Sequence[str] = ()
        self.started, self.gate = asyncio.Event(), asyncio.Event()
        self.gate.set()
        self.broken_off = 0
        self.leaves = True
        self.heard: list[OnChunk | None] = []

    async def call(self, request: Request, on_chunk: OnChunk | None = None) -> Outcome:
        self.requests.append(request)
        if self.leaves:
            request.leave()
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

    async def prepare(self) -> None:
        pass

    async def aclose(self) -> None:
        pass


class GatedBatcher(Batcher):
    """A batcher whose round trips a test can delay: before Redis gets the commands, or after it answered."""

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
    """A worker, and the scheduler parts that feed it. Create it on the event loop that uses it."""

    def __init__(self, server: fakeredis.FakeServer, pool: Pool | None = None, **settings: Any) -> None:
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
        self.providers: dict[str, Any] = {"sim": self.provider, FUNCTIONS: ScriptedProvider()}
        self.servers = server_digests(self.settings.connections)
        sandbox = self.settings.sandbox.model_copy(update={"hold_after": 2})
        held = self.settings.model_copy(update={"sandbox": sandbox})
        self.children = ChildWork(self.batcher, self.keys, pool, held) if pool else None
        self.inputs = InputReader(self.batcher, self.keys, self.children)
        self.chunks = Chunks(self.batcher, self.keys, self.clock)
        self.denied = DeniedLanes(self.clock, OtherWorkers(self.batcher, self.keys, WORKER).lanes)
        self.executor = Executor(
            worker=WORKER,
            attempts=self.scheduler.attempts,
            batcher=self.batcher,
            reports=self.batcher,
            keys=self.keys,
            inputs=self.inputs,
            calls=Calls(self.settings, self.providers, self.chunks),
            lease_ms=LEASE_MS,
            clock=self.clock,
            rng=random.Random(1),
            children=self.children,
            servers=self.servers,
            denied=self.denied,
        )
        self.wanted: list[list[str]] = []
        self.intake: list[bool] = []  # for each request, whether the worker had paused its queues
        self.ended: list[str] = []
        self.heartbeat = Heartbeat(
            redis=self.redis,
            batcher=self.batcher,
            keys=self.keys,
            executor=self.executor,
            settings=self.settings.worker,
            served=ServedLanes(self.settings.worker, self.settings.connections),
            lease_ms=LEASE_MS,
            worker=WORKER,
            info=WorkerInfo("worker-1", 10, (), "0", 1, "host", 0),
            subscribe=self.wanted.append,
            drain=Drain(self.intake.append, lambda: self.ended.append("end")),
            pause=self._pause,
            denied=self.denied,
        )

    def grant(
        self,
        rows: int | Sequence[Mapping[str, Any]] = 1,
        count: int | None = None,
        lane: str = "sim:fast",
        **spec: Any,
    ) -> list[Attempt]:
        """Permits for the first items of a new run."""
        run = self.scheduler.admit(rows, **spec)
        wanted, taken = count or run.plan.spec.items, list[Attempt]()
        while len(taken) < wanted:
            self.scheduler.feed_all()
            queued = self.scheduler.backlog.count(lane, run.ref)
            taken += self.permits(run.ref, min(queued, wanted - len(taken)), lane)
            self.scheduler.backlog.set_queued(lane, run.ref, 0)
        return taken

    def permits(self, ref: RunRef, count: int, lane: str = "sim:fast") -> list[Attempt]:
        """Permits for jobs that a run has queued on a lane."""
        return self.scheduler.permits(ref, count, lane)

    def start(self, attempt: Attempt) -> asyncio.Task[None]:
        return asyncio.create_task(self.executor.execute(attempt))

    async def calling(self, attempt: Attempt) -> asyncio.Task[None]:
        """An attempt whose call is in flight until the test opens the provider's gate."""
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
        """The jobs that wait for a retry on the attempt's lane."""
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
    """Run a scene with a worker on a new event loop. Fails if tasks still run at its end."""

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


def metrics_of(settings: Settings, **read: Callable[[], int]) -> WorkerMetrics:
    """A worker's metrics; all that ``read`` does not give are zero."""
    return WorkerMetrics(
        slots=lambda: settings.worker.slots,
        lanes=settings.lanes,
        most_lanes=settings.metrics.lanes,
        **{"busy": lambda: 0, "consumed": lambda: 0, **read},
    )


def lines(logs: Iterable[Mapping[str, Any]], event: str) -> list[dict[str, Any]]:
    """The captured log lines of one event."""
    return [dict(line) for line in logs if line["event"] == event]
