"""How many project files one job crosses, from `Client.submit` to `Run.results`, and which of them decide."""

from __future__ import annotations

import asyncio
import random
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from redis import Redis
from redis.asyncio import Redis as AsyncRedis

from fairlane import Client
from fairlane.config.settings import Settings
from fairlane.core.clock import ManualClock
from fairlane.model.job import Attempt
from fairlane.store.keys import Keys
from fairlane.store.verbs import load_all
from fairlane.store.write.attempts import Attempts
from fairlane.store.write.workers import WorkerInfo, Workers
from fairlane_scheduler.service import Scheduler
from fairlane_workers.execution.batcher import Batcher
from fairlane_workers.execution.calls import Calls, Chunks
from fairlane_workers.execution.executor import Executor
from fairlane_workers.execution.inputs import InputReader
from tests.support.stand_ins import CollectingPublisher, VirtualTime
from tests.support.worker_parts import ScriptedProvider

ROOT = Path(__file__).parents[2]
SOURCES = ("shared/fairlane", "scheduler/fairlane_scheduler", "workers/fairlane_workers")
STAND_INS = "shared/fairlane/lab"  # the stand-ins for broker and clock
ARCHITECTURE = ROOT / "docs" / "architecture.md"

MOST_FILES = 45  # lower it when a merge takes a file off the way
MOST_THAT_DECIDE = 16

LANE, WORKER = "sim:fast", "w1"
LEASE_MS = 15_000


class _Trace:
    """The project's files whose functions run; importing a module does not count."""

    def __init__(self) -> None:
        self.files: set[str] = set()

    @contextmanager
    def phase(self) -> Iterator[None]:
        before = sys.getprofile()
        sys.setprofile(self._hear)
        try:
            yield
        finally:
            sys.setprofile(before)

    def _hear(self, frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        if event != "call" or code.co_name in ("<module>", "<lambda>"):
            return
        path = Path(code.co_filename)
        if path.is_relative_to(ROOT):
            name = str(path.relative_to(ROOT))
            if name.startswith(SOURCES) and not name.startswith(STAND_INS):
                self.files.add(name)


class _Waiter:
    def wait(self, seconds: float) -> None:
        raise AssertionError(f"the client waits {seconds} s for a run that has finished")


class _Way:
    """A client, a scheduler and a worker of one deployment, in this process."""

    def __init__(self, redis: Redis, aredis: Any) -> None:
        self.clock, self.trace = ManualClock(), _Trace()
        keys, attempts = Keys("test"), Attempts(Keys("test"))
        self.settings = Settings.model_validate(
            {
                "redis": {"deployment": "test"},
                "team": "search",
                "connections": {"sim": {"protocol": "openai", "base_url": "http://sim.invalid/v1"}},
                "lanes": {LANE: {"requests_per_minute": 600}},
            }
        )
        load_all(redis)
        self.mailbox = CollectingPublisher()
        self.scheduler = Scheduler(
            redis, self.settings, self.clock, "s1", self.mailbox, VirtualTime(self.clock)
        )
        self.scheduler.tick()
        info = WorkerInfo(WORKER, 10, (LANE,), "0", 1, "host", 0)
        Workers(keys).beat(WORKER, info, [], LEASE_MS, changed=True, now_ms=self.clock.now_ms()).run(redis)
        self.scheduler.tick()
        self.client = Client(settings=self.settings, redis=redis, clock=self.clock, waiter=_Waiter())
        batcher = Batcher(aredis, _no_pause)
        self.executor = Executor(
            worker=WORKER,
            attempts=attempts,
            batcher=batcher,
            reports=batcher,
            keys=keys,
            inputs=InputReader(batcher, keys),
            calls=Calls(self.settings, {"sim": ScriptedProvider()}, Chunks(batcher, keys, self.clock)),
            lease_ms=LEASE_MS,
            clock=self.clock,
            rng=random.Random(1),
        )

    async def go(self) -> list[Any]:
        with self.trace.phase():
            run = self.client.submit([{"q": "2 + 2"}], prompt="{{ q }}", model=LANE)
        granted: list[Attempt] = []
        for _ in range(10):
            with self.trace.phase():
                self.scheduler.tick({"search"})
            granted += self.mailbox.collect()
            if granted:
                break
            self.clock.advance(0.05)
        (attempt,) = granted
        with self.trace.phase():
            await self.executor.execute(attempt)
            self.scheduler.tick(set())
        with self.trace.phase():
            return list(run.results())


async def _no_pause(_seconds: float) -> None:
    """The batcher pauses only while Redis is away."""


async def _go(redis: Redis) -> tuple[list[Any], set[str]]:
    aredis: Any = AsyncRedis(unix_socket_path=redis.connection_pool.connection_kwargs["path"])
    way = _Way(redis, aredis)
    records = await way.go()
    await aredis.aclose()
    return records, way.trace.files


def test_a_job_crosses_no_more_files_than_the_ratchet_allows(real_redis: Redis) -> None:
    records, files = asyncio.run(_go(real_redis))

    assert [record.output for record in records] == ["yes"]
    listed = "\n".join(sorted(files))
    assert len(files) <= MOST_FILES, f"{len(files)} files, at most {MOST_FILES} are allowed:\n{listed}"


def test_the_files_that_decide_are_those_of_the_architecture_page_and_each_is_on_the_way(
    real_redis: Redis,
) -> None:
    _, files = asyncio.run(_go(real_redis))

    table = re.findall(r"^\| \d+ \| \[`[^`]+`\]\(\.\./([^)]+)\)", ARCHITECTURE.read_text(), re.MULTILINE)
    assert table == list(THAT_DECIDE)
    assert len(THAT_DECIDE) <= MOST_THAT_DECIDE
    assert [name for name in THAT_DECIDE if not (ROOT / name).is_file()] == []
    traced_elsewhere = {"scheduler/fairlane_scheduler/dispatch/publisher.py"}  # a mailbox stands in for it
    assert set(THAT_DECIDE) - files == traced_elsewhere


THAT_DECIDE = (
    "shared/fairlane/client/client.py",
    "shared/fairlane/client/submitting/submission.py",
    "scheduler/fairlane_scheduler/intake/admission.py",
    "scheduler/fairlane_scheduler/feed/feeder.py",
    "scheduler/fairlane_scheduler/feed/placement.py",
    "scheduler/fairlane_scheduler/dispatch/dispatcher.py",
    "scheduler/fairlane_scheduler/dispatch/fairness.py",
    "scheduler/fairlane_scheduler/dispatch/slots.py",
    "scheduler/fairlane_scheduler/dispatch/publisher.py",
    "workers/fairlane_workers/execution/executor.py",
    "shared/fairlane/pipeline/rendering.py",
    "workers/fairlane_workers/transport/departure.py",
    "shared/fairlane/model/decision.py",
    "shared/fairlane/pipeline/completion.py",
    "shared/fairlane/client/handle.py",
    "shared/fairlane/store/read/reading.py",
)
