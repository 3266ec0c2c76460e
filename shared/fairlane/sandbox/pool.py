"""A pool of child processes that teams share fairly: a team waits for its own work, never for another's."""

import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Mapping
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import Any, Final

from fairlane.config.sections import SandboxSettings
from fairlane.core.errors import NoChild
from fairlane.model.run import Plan, RunRef
from fairlane.sandbox.pieces import Piece
from fairlane.sandbox.process import Child, Limits, QueuedPiece

MOST_QUEUED: Final = 5_000
"""Most waiting pieces of a team: as many as a worker has slots, each of which waits for one at a time."""

MOST_BATCH: Final = 32
"""Most pieces of a batch."""

QUICK_S: Final = 0.05
"""After a batch of at most so many seconds, the team's next batch is twice as large; after a slower one it is
one piece."""

Waiting = tuple[QueuedPiece, Future[Any]]


class Pool:
    """Child processes, which start with the first work. Any thread may submit. Teams take turns. A team uses
    at most half of the children, so that a slow team delays no other.
    """

    def __init__(self, processes: int, limits: Limits, environ: Mapping[str, str]) -> None:
        self._children = [Child(limits, environ) for _ in range(max(1, processes))]
        self._most_busy = max(1, len(self._children) // 2)
        self._threads: list[threading.Thread] = []
        self._queues: OrderedDict[str, deque[Waiting]] = OrderedDict()
        self._busy: Counter[str] = Counter()
        self._batches: dict[str, int] = {}
        self._changed = threading.Condition()
        self._idle = 0  # children that run and have nothing to do
        self._closed = False

    @property
    def pids(self) -> list[int]:
        """The process ids of the running children."""
        return [child.pid for child in self._children if child.pid is not None]

    def submit(self, team: str, piece: Piece, plan: Plan | None = None) -> Future[Any]:
        """Queue a piece of a team's work; ``plan`` is its run's, if it needs that. The future raises
        `TemplateError` and other errors of the work, `CutOff` beyond a limit, `WorkRaised`, and `NoChild`.
        """
        key = None if plan is None else str(RunRef(plan.spec.team, plan.spec.run))
        future: Future[Any] = Future()
        with self._changed:
            queue = self._queues.setdefault(team, deque())
            if self._closed or len(queue) >= MOST_QUEUED:
                why = (
                    "the process ends" if self._closed else f"{MOST_QUEUED:,} pieces of the team wait already"
                )
                future.set_exception(NoChild(f"no more of what teams wrote is done: {why}"))
                return future
            queue.append((QueuedPiece(piece, key, plan), future))
            try:
                self._start()
            except RuntimeError as error:  # this machine lets the process start no more threads
                if not self._threads:
                    queue.pop()
                    future.set_exception(NoChild(f"no thread for what teams wrote can be started: {error}"))
            self._changed.notify_all()
        return future

    def close(self) -> None:
        """End all children; unfinished pieces fail with `NoChild`."""
        with self._changed:
            self._closed = True
            left = [future for queue in self._queues.values() for _, future in queue]
            self._queues.clear()
            self._changed.notify_all()
        for child in self._children:
            child.kill()
        for future in left:
            _resolve(future, NoChild("no more of what teams wrote is done: the process ends"))
        for thread in self._threads:
            thread.join()

    def _start(self) -> None:
        """Start the threads that do not run yet; raises ``RuntimeError`` if one cannot start."""
        for child in self._children[len(self._threads) :]:
            thread = threading.Thread(target=self._serve, args=(child,), name="fairlane-sandbox", daemon=True)
            thread.start()
            self._threads.append(thread)

    def _serve(self, child: Child) -> None:
        while True:
            with self._changed:
                taken = self._next(child)
            if taken is None:
                child.close(last=True)
                return
            team, batch = taken
            began_s, left = time.monotonic(), self._do(child, batch)
            with self._changed:
                self._end(team, left, quick=not left and time.monotonic() - began_s <= QUICK_S)

    def _next(self, child: Child) -> tuple[str, list[Waiting]] | None:
        """Wait for the next batch; ``None`` when the pool is closed. No child starts while one is idle."""
        runs = child.pid is not None
        while not self._closed:
            if (runs or not self._idle) and (taken := self._take()) is not None:
                self._changed.notify_all()  # a child that waited for this one may find more
                return taken
            self._idle += runs
            self._changed.wait()
            self._idle -= runs
        return None

    def _take(self) -> tuple[str, list[Waiting]] | None:
        """The next batch, of the team whose turn it is; ``None`` if no team may start one."""
        for team, queue in self._queues.items():
            if not queue or self._busy[team] >= self._most_busy:
                continue
            self._queues.move_to_end(team)
            self._busy[team] += 1
            size = min(len(queue), self._batches.get(team, 1))
            return team, [queue.popleft() for _ in range(size)]
        return None

    def _do(self, child: Child, batch: list[Waiting]) -> list[Waiting]:
        """Do a batch; returns the pieces after one that exceeded a limit, to be done again."""
        live = [each for each in batch if each[1].running() or each[1].set_running_or_notify_cancel()]
        try:
            done = child.do([piece for piece, _ in live], lambda n, found: _resolve(live[n][1], found))
        except Exception as error:  # noqa: BLE001  the futures of the pieces raise it
            for _, future in live:
                _resolve(future, error)
            return []
        return live[done:]

    def _end(self, team: str, left: list[Waiting], *, quick: bool) -> None:
        self._busy[team] -= 1
        self._batches[team] = min(MOST_BATCH, 2 * self._batches.get(team, 1)) if quick else 1
        if self._closed:
            for _, future in left:
                _resolve(future, NoChild("no more of what teams wrote is done: the process ends"))
            return
        queue = self._queues.setdefault(team, deque())
        queue.extendleft(reversed(left))
        if not queue and not self._busy[team]:
            del self._queues[team], self._busy[team]
            self._batches.pop(team, None)
        self._changed.notify_all()


def _resolve(future: Future[Any], found: Any) -> None:
    with suppress(InvalidStateError):  # it was cancelled
        if isinstance(found, BaseException):
            future.set_exception(found)
        else:
            future.set_result(found)


def open_pool(settings: SandboxSettings, environ: Mapping[str, str]) -> Pool:
    """The pool of a process; it starts no child yet."""
    limits = Limits(settings.cpu_seconds, settings.wall_seconds, settings.memory_mb << 20)
    return Pool(settings.processes, limits, environ)
