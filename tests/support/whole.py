"""A whole deployment in one process and in virtual time: real schedulers, workers, clients and commands."""

from __future__ import annotations

import asyncio
import math
import random
import selectors
from collections import defaultdict, deque
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError

from fairlane.client.client import Client
from fairlane.client.deployment import SystemWaiter
from fairlane.config.connections.lane_identity import server_digests
from fairlane.config.settings import Settings
from fairlane.core.clock import ManualClock
from fairlane.lab.rehearsal.virtual.simulated import CollectingPublisher
from fairlane.model.job import Attempt
from fairlane.model.outcome import Outcome
from fairlane.store.functions import keep_functions
from fairlane.store.keys import Keys
from fairlane.store.script import Script
from fairlane.store.verbs import load_all
from fairlane.store.write.attempts import Attempts
from fairlane.store.write.workers import WorkerInfo
from fairlane_scheduler.runner import QUANTUM_MS
from fairlane_scheduler.service import Scheduler
from fairlane_workers.execution.batcher import Absence, Batcher
from fairlane_workers.execution.calls import Calls, Chunks
from fairlane_workers.execution.denied_lanes import DeniedLanes
from fairlane_workers.execution.executor import Executor
from fairlane_workers.execution.held import HeldAttempt
from fairlane_workers.execution.inputs import InputReader, JobInputs
from fairlane_workers.providers.contract import OnChunk, Request
from fairlane_workers.transport.pause import sleep
from fairlane_workers.upkeep.heartbeat import Drain, Heartbeat, OtherWorkers, ServedLanes
from tests.support.direct import DirectRedis

Answer = Callable[["WorkerProcess", Request], tuple[float, Outcome]]
"""A provider: the seconds that a call takes, and its outcome."""


SETTINGS: dict[str, Any] = {
    "connections": {"sim": {"protocol": "openai", "base_url": "http://sim.invalid/v1"}},
    "lanes": {"sim:fast": {"requests_per_minute": 0}},
}


class _Idle(selectors.DefaultSelector):
    """Advances the clock where an event loop would wait."""

    clock: ManualClock

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None:
            raise AssertionError("nothing is due: the loop would wait for ever")
        self.clock.advance(math.ceil(timeout * 1000 - 0.01) / 1000 if timeout > 0 else 0)
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop whose time is a manual clock."""

    def __init__(self, clock: ManualClock) -> None:
        selector = _Idle()
        selector.clock = self._virtual = clock
        super().__init__(selector)
        self._clock_resolution = 0.0005  # s: by default less than a float of this size can show

    def time(self) -> float:
        return self._virtual.now_ms() / 1000


class _Line:
    """The connection of a `DirectRedis` whose TIME is the deployment's virtual one."""

    def __init__(self, whole: Whole, line: Any) -> None:
        self._whole, self._line = whole, line

    def ask(self, commands: Sequence[Any]) -> list[Any]:
        replies: list[Any] = self._line.ask(commands)
        for place, command in enumerate(commands):
            if command[0] == "TIME":
                replies[place] = [self._whole.redis_ms // 1000, self._whole.redis_ms % 1000 * 1000]
        return replies

    def close(self) -> None:
        self._line.close()


class _Pipeline:
    """An asynchronous pipeline of a worker, which a fault of its connection may hit."""

    def __init__(self, process: WorkerProcess) -> None:
        self._process, self._pipeline = process, process.whole.redis.pipeline(transaction=False)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pipeline, name)

    async def execute(self, raise_on_error: bool = True) -> Any:
        process = self._process
        await sleep(0)
        if process.dead:
            await asyncio.Future[None]()
        if process.whole.now_ms < process.whole.away_ms:
            raise RedisConnectionError("Redis is away")
        replies = self._pipeline.execute(raise_on_error)
        process.whole.hear()
        if process.loses_replies:
            process.loses_replies -= 1
            raise RedisConnectionError("the reply is lost")
        return replies


class _AsyncRedis:
    def __init__(self, process: WorkerProcess) -> None:
        self._process = process

    def pipeline(self, transaction: bool = False) -> Any:
        return _Pipeline(self._process)


class _Calls(Calls):
    """Counts the calls that are made in place of a job's own."""

    controls = 0

    async def make(
        self, held: HeldAttempt, inputs: JobInputs, on_pending: Callable[[str], Coroutine[Any, Any, None]]
    ) -> Outcome:
        self.controls += inputs is not held.inputs
        return await super().make(held, inputs, on_pending)


class WorkerProcess:
    """A worker as `fairlane_workers.engine` wires it, without children and HTTP."""

    def __init__(self, whole: Whole, name: str, slots: int) -> None:
        self.whole, self.name, self.slots = whole, name, slots
        self.dead, self.loses_replies, self.lanes = False, 0, frozenset[str]()
        self.stopping, self.key_denied = False, False
        redis, settings, keys, clock = _AsyncRedis(self), whole.settings, whole.keys, whole.clock
        absence = Absence()
        batcher, reports = (Batcher(redis, absence=absence) for _ in range(2))  # type: ignore[arg-type]
        denied = DeniedLanes(clock, OtherWorkers(batcher, keys, name).lanes)
        lease_ms = round(settings.scheduler.lease_seconds * 1000)
        self.calls = _Calls(settings, dict.fromkeys(settings.connections, self), Chunks(reports, keys, clock))
        self.executor = Executor(
            worker=name,
            attempts=Attempts(keys),
            batcher=batcher,
            reports=reports,
            keys=keys,
            inputs=InputReader(batcher, keys, None),
            calls=self.calls,
            lease_ms=lease_ms,
            clock=clock,
            rng=random.Random(name),
            servers=server_digests(settings.connections),
            denied=denied,
        )
        self.held = False
        self.heartbeat = Heartbeat(
            redis=redis,  # type: ignore[arg-type]
            batcher=batcher,
            keys=keys,
            executor=self.executor,
            settings=settings.worker,
            served=ServedLanes(settings.worker, settings.connections),
            lease_ms=lease_ms,
            worker=name,
            info=WorkerInfo(name, slots, (), "0", 1, "host", 0, connections=tuple(settings.connections)),
            subscribe=self._subscribe,
            drain=Drain(self._hold, self.stop),
            denied=denied,
        )
        self.tasks: set[asyncio.Task[Any]] = {whole.loop.create_task(self.heartbeat.run())}

    @property
    def takes(self) -> bool:
        return not (self.dead or self.stopping or self.held) and len(self.running) < self.slots

    @property
    def running(self) -> set[asyncio.Task[Any]]:
        return {task for task in self.tasks if task.get_name() == "attempt"}

    def start(self, attempt: Attempt) -> None:
        task = self.whole.loop.create_task(self.executor.execute(attempt), name="attempt")
        self.tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self.tasks.discard(task)
        self.whole.pump()

    def _subscribe(self, lanes: list[str]) -> None:
        if frozenset(lanes) != self.lanes:
            self.lanes = frozenset(lanes)
            self.heartbeat.subscribed(frozenset() if self.held else self.lanes)
            self.whole.pump()

    def _hold(self, held: bool) -> None:
        if held != self.held:
            self.held = held
            self.heartbeat.subscribed(frozenset() if held else self.lanes)

    async def call(self, request: Request, on_chunk: OnChunk | None = None) -> Outcome:
        request.leave()
        seconds, outcome = self.whole.answer(self, request)
        await sleep(seconds)
        self.whole.called(self, request, outcome)
        return outcome

    async def prepare(self) -> None: ...

    async def aclose(self) -> None: ...

    def stop(self, grace_s: float = 5.0) -> None:
        """SIGTERM."""
        if not self.stopping and not self.dead:
            self.stopping = True
            self.heartbeat.stopping()
            self.tasks.add(self.whole.loop.create_task(self._end(grace_s)))

    async def _end(self, grace_s: float) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(grace_s):
                while self.running:
                    await sleep(0.05)
        self.executor.abort_all("the worker stops")
        while self.running:
            await sleep(0.05)
        await self.heartbeat.leave()
        self.dead = True

    def kill(self) -> None:
        """SIGKILL."""
        self.dead = True
        for task in list(self.tasks):
            task.cancel()


class SchedulerProcess:
    def __init__(self, whole: Whole, name: str) -> None:
        self.whole, self.hangs_ms, self.dead = whole, 0, False
        self.mailbox, self.wake = CollectingPublisher(), asyncio.Event()
        self.scheduler = Scheduler(whole.redis, whole.settings, whole.clock, name, self.mailbox)
        self.teams: set[str] | None = None
        self.task = whole.loop.create_task(self._run())

    async def _run(self) -> None:
        whole = self.whole
        while not self.dead:
            if (hangs := self.hangs_ms - whole.now_ms) > 0:
                await sleep(hangs / 1000)
                continue
            self.wake.clear()
            teams, self.teams = self.teams, set()
            try:
                if whole.now_ms < whole.away_ms:
                    raise RedisConnectionError("Redis is away")
                wait_ms = self.scheduler.tick(teams)
            except RedisError as error:
                if not isinstance(error, RedisConnectionError):
                    whole.defects.append(error)
                self.scheduler.store_came_back()
                self.teams, wait_ms = None, 200
            whole.hear()
            whole.take(self.mailbox.collect())
            await sleep(QUANTUM_MS / 1000)
            with suppress(TimeoutError):
                async with asyncio.timeout(max(0, wait_ms - QUANTUM_MS) / 1000):
                    await self.wake.wait()


class Whole:
    """``away_ms``: until when Redis is away. ``defects``: errors that no user should cause."""

    def __init__(self, redis: DirectRedis, answer: Answer, settings: Mapping[str, Any]) -> None:
        self.clock, self.step_ms, self.away_ms = ManualClock(2_000_000_000_000), 0, 0
        redis._line = _Line(self, redis._line)  # type: ignore[assignment]
        self.redis, self.answer, self.keys = redis, answer, Keys("test")
        self.settings = Settings.model_validate({"redis": {"deployment": "test"}, **settings})
        self.loop = VirtualLoop(self.clock)
        self.queues: dict[str, deque[Attempt]] = defaultdict(deque)
        self.defects = list[BaseException]()
        self.calls = list[tuple[str, str, Outcome]]()
        self._ids = 0
        load_all(redis)
        keep_functions(redis)
        self._ear: Any = redis.pubsub(ignore_subscribe_messages=True)  # type: ignore[no-untyped-call]
        self._ear.subscribe(self.keys.wake, self.keys.control)
        self.workers, self.schedulers = list[WorkerProcess](), list[SchedulerProcess]()
        self.loop.set_exception_handler(
            lambda _, context: self.defects.append(context.get("exception") or AssertionError(str(context)))
        )

    @property
    def now_ms(self) -> int:
        return self.clock.now_ms()

    @property
    def redis_ms(self) -> int:
        return self.clock.now_ms() + self.step_ms

    def hear(self) -> None:
        """Deliver what was published by now."""
        self._ear.ping()
        while True:
            message = self._ear.get_message(timeout=1)
            if message is None:
                continue
            if message["type"] == "pong":
                return
            text = message["data"].decode(errors="replace")
            if message["channel"] == self.keys.control.encode():
                for worker in self.workers:
                    if not worker.dead:
                        self.loop.call_soon(worker.heartbeat._receive, message)
                continue
            for each in self.schedulers:
                if text.startswith("inbox:") and each.teams is not None:
                    each.teams.add(text.removeprefix("inbox:"))
                each.wake.set()

    def take(self, attempts: Sequence[Attempt]) -> None:
        for attempt in attempts:
            self.queues[attempt.lane].append(attempt)
        self.pump()

    def pump(self) -> None:
        for lane, queue in self.queues.items():
            while queue:
                free = [w for w in self.workers if w.takes and lane in w.lanes]
                if not free:
                    break
                min(free, key=lambda w: len(w.running) / w.slots).start(queue.popleft())

    def called(self, worker: WorkerProcess, request: Request, outcome: Outcome) -> None:
        if not worker.dead:
            text = str(request.messages[-1]["content"])
            self.calls.append((f"{request.model}", text, outcome))

    def add_worker(self, slots: int = 4) -> WorkerProcess:
        self._ids += 1
        self.workers.append(WorkerProcess(self, f"w{self._ids}", slots))
        return self.workers[-1]

    def add_scheduler(self) -> SchedulerProcess:
        self._ids += 1
        self.schedulers.append(SchedulerProcess(self, f"s{self._ids}"))
        return self.schedulers[-1]

    def client(self, team: str) -> Client:
        return Client(
            settings=self.settings.model_copy(update={"team": team}),
            redis=self.redis,
            clock=self.clock,
            waiter=self,
        )

    def wait(self, seconds: float) -> None:
        """As the client's waiter."""
        self.run_for(seconds)

    def run_for(self, seconds: float) -> None:
        self.hear()
        self.loop.run_until_complete(sleep(seconds))

    def close(self) -> None:
        for worker in self.workers:
            worker.kill()
        self.loop.run_until_complete(sleep(0))
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self.loop.run_until_complete(sleep(0.001))
        self.loop.close()
        self._ear.close()
        self.redis._line = self.redis._line._line  # type: ignore[attr-defined]


@contextmanager
def deployed(redis: DirectRedis, answer: Answer, settings: Mapping[str, Any] = SETTINGS) -> Iterator[Whole]:
    """A deployment with one scheduler and one worker. All scripts of this process are at its time."""
    whole, real = Whole(redis, answer, settings), Script.bind

    def bound(script: Script, keys: Any, args: Any) -> Any:
        return real(script, keys, {**args, "now_ms": whole.redis_ms} if args.get("now_ms") == "" else args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Script, "bind", bound)
        patch.setattr(SystemWaiter, "wait", lambda _, seconds: whole.run_for(seconds))
        whole.add_scheduler()
        whole.add_worker()
        whole.run_for(1.5)
        try:
            yield whole
        finally:
            whole.close()
