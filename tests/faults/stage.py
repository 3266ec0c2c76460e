"""What a fault acts on, and the registry of faults by name."""

from __future__ import annotations

import queue
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field
from typing import TypeAlias

from redis.exceptions import RedisError

from fairlane.core.errors import FairlaneError
from tests.faults.deployment import Deployment
from tests.faults.kinds import ANY, KINDS, LEADER, SCHEDULERS, WORKERS
from tests.faults.runs import Workload
from tests.faults.schedule import Timed

Act: TypeAlias = Callable[[], object]
INSIST_S, AGAIN_S = 40.0, 0.3


@dataclass(slots=True)
class Stage:
    """One schedule being played: ``since`` is its start on the monotonic clock."""

    deployment: Deployment
    workload: Workload
    rng: random.Random
    since: float
    errands: queue.SimpleQueue[Act | None] = field(default_factory=queue.SimpleQueue)
    operator: threading.Thread | None = None
    helpers: list[threading.Thread] = field(default_factory=list)

    @property
    def now(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self.since

    def hit(self, fault: Timed) -> tuple[str, ...]:
        """The processes that a fault's target means now."""
        if fault.target == LEADER:
            return (self.deployment.leader(),)
        if fault.target != ANY:
            return (fault.target,)
        return (*SCHEDULERS, *WORKERS)

    def insist(self, act: Act) -> None:
        """Do something in the background, again and again until Redis takes it, as an operator does.

        What is asked for later is done later.
        """
        if self.operator is None:
            self.operator = threading.Thread(target=self._operate, name="operator", daemon=True)
            self.operator.start()
        self.errands.put(act)

    def beside(self, act: Act) -> None:
        """Do something that may wait for Redis, which another fault may have stopped, in a thread."""
        self.helpers.append(threading.Thread(target=act, name="helper", daemon=True))
        self.helpers[-1].start()

    def finish(self) -> None:
        """Return once all that was insisted on is done, or was tried for too long. Redis must run."""
        for helper in self.helpers:
            helper.join()
        if self.operator is not None:
            self.errands.put(None)
            self.operator.join()

    def _operate(self) -> None:
        while (act := self.errands.get()) is not None:
            deadline = time.monotonic() + INSIST_S
            while time.monotonic() < deadline and not _done(act):
                threading.Event().wait(AGAIN_S)


def _done(act: Act) -> bool:
    with suppress(FairlaneError, RedisError):
        act()
        return True
    return False


Play: TypeAlias = Callable[[Stage, Timed], Iterator[tuple[str, ...]]]
FAULTS: dict[str, Callable[[Stage, Timed], AbstractContextManager[tuple[str, ...]]]] = {}
"""By name: entering begins the fault and yields the processes that it hits, leaving ends it."""


def fault(*names: str) -> Callable[[Play], Play]:
    """Register a generator, which is a context manager's, as these kinds of fault."""

    def register(play: Play) -> Play:
        for name in names:
            assert name in KINDS, name
            FAULTS[name] = contextmanager(play)
        return play

    return register
