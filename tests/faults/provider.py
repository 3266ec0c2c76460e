"""The simulated provider with a journal: every request, when it arrived, whose it was, and how it ended."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import pairwise
from typing import Any, TypeVar

from aiohttp import web

from fairlane.lab.simulator.model.behaviour import Fault
from fairlane.lab.simulator.model.served_model import Decision, Outage, Rejection, ServedModel, Work
from fairlane.lab.simulator.wire.dialect import Call as Request
from fairlane.lab.simulator.wire.dialect import Dialect
from fairlane.testing import SimulatedModel, SimulatedProvider, SimulatorConfig
from tests.faults.history import COMPLETED, Call

T = TypeVar("T")
WORKER_HEADER = "worker"
BEAT_S = 0.01
"""The provider notes the time this often, so that the journal says how late it may have seen a request."""

STALL_S, CAUGHT_UP_S = 0.5, 0.5
"""A time without a beat that is a stall, and how long the provider then reads what came in it."""

_sender: ContextVar[str] = ContextVar("sender", default="")


class JournaledModel(ServedModel):
    """A simulated model that writes each request into ``journal``."""

    journal: Journal

    def arrive(self, call: Request) -> Decision:
        decision = super().arrive(call)
        entry = self.journal.begin(self.name, call.question, _sender.get())
        match decision:
            case Work() as work:
                self.journal.works[id(work)] = entry
            case Rejection():
                self.journal.end(entry, "rejected")
            case Outage():
                self.journal.end(entry, "outage")
        return decision

    def complete(self, work: Work) -> None:
        super().complete(work)
        self.journal.end(self.journal.works.pop(id(work)), COMPLETED, _tokens(work))

    def fail(self, work: Work, fault: Fault) -> None:
        super().fail(work, fault)
        self.journal.end(self.journal.works.pop(id(work)), str(fault), _tokens(work))

    def abandon(self, work: Work) -> None:
        super().abandon(work)
        if (entry := self.journal.works.pop(id(work), None)) is not None:
            self.journal.end(entry, "abandoned")


def _tokens(work: Work) -> int:
    return work.call.prompt_tokens + work.reply.completion_tokens


def waiting_since(beats: Sequence[float], now: float) -> float:
    """How long a request that is read now may have waited: since the last beat but one.

    After a stall it may have come in the stall, for what came then is read in several turns.
    """
    since = min(beats[-2], now) if len(beats) > 1 else now
    for last in range(len(beats) - 1, 0, -1):
        if beats[last] < now - CAUGHT_UP_S:
            break
        if beats[last] - beats[last - 1] > STALL_S:
            since = min(since, beats[last - 1])
    return since


class Journal:
    """All requests since `begin_again`. Times are monotonic seconds of this process."""

    def __init__(self) -> None:
        self.works: dict[int, int] = {}
        self._calls: list[Call] = []
        self._beats: list[float] = []

    def begin(self, model: str, question: str, worker: str) -> int:
        """Note an arrival; the entry's number."""
        now = time.monotonic()
        since = waiting_since(self._beats, now)
        self._calls.append(Call(model, question, worker, arrived=now, since=since))
        return len(self._calls) - 1

    def end(self, entry: int, ending: str, tokens: int = 0) -> None:
        """Note how a request ended, and for how many tokens."""
        self._calls[entry] = self._calls[entry].ended_as(ending, time.monotonic(), tokens)

    def beat(self) -> None:
        """Note that the provider is awake."""
        self._beats.append(time.monotonic())

    def calls_since(self, moment: float) -> tuple[tuple[Call, ...], float]:
        """The requests since then, and the longest time since then that the provider did not run."""
        calls = tuple(call for call in self._calls if call.arrived >= moment)
        beats = [moment, *(beat for beat in self._beats if beat >= moment)]
        stalls = [later - earlier for earlier, later in pairwise(beats)]
        return calls, max(stalls, default=0.0)


class JournaledProvider(SimulatedProvider):
    """The simulated provider, whose models write into one journal and may be added while it serves."""

    def __init__(self, config: SimulatorConfig) -> None:
        self.journal = Journal()
        super().__init__(config)

    def add_model(self, name: str, model: SimulatedModel) -> None:
        """Serve one more model from now on."""
        self._settings[name] = model
        self._composers[name] = self._composer(name, model)
        made = JournaledModel(name, model, self._composers[name], self._config.seed, self._clock)
        made.journal = self.journal
        self._models[name] = made

    async def _answer(self, request: web.Request, dialect: Dialect) -> web.StreamResponse:
        _sender.set(request.headers.get(WORKER_HEADER, ""))
        return await super()._answer(request, dialect)


class ServedJournal:
    """The provider in its thread; each method may be called from any thread."""

    def __init__(self, provider: JournaledProvider, loop: asyncio.AbstractEventLoop) -> None:
        self._provider, self._loop = provider, loop
        self.port = int(provider.url.rpartition(":")[2])

    def add_model(self, name: str, **behaviour: Any) -> None:
        """Serve a model; ``behaviour`` are fields of `SimulatedModel`."""
        self._call(lambda: self._provider.add_model(name, SimulatedModel(**behaviour)))

    def change_model(self, name: str, **changes: Any) -> None:
        """Change a model in service."""
        self._call(lambda: self._provider.change_model(name, **changes))

    def calls_since(self, moment: float) -> tuple[tuple[Call, ...], float]:
        """See `Journal.calls_since`."""
        return self._call(lambda: self._provider.journal.calls_since(moment))

    def _call(self, function: Callable[[], T]) -> T:
        async def call() -> T:
            return function()

        return asyncio.run_coroutine_threadsafe(call(), self._loop).result()


@contextmanager
def serve_journal() -> Iterator[ServedJournal]:
    """Serve from a background thread until the block ends."""
    started: Future[tuple[ServedJournal, Callable[[], None]]] = Future()
    thread = threading.Thread(target=lambda: asyncio.run(_serve(started)), name="provider", daemon=True)
    thread.start()
    served, stop = started.result()
    try:
        yield served
    finally:
        stop()
        thread.join()


async def _serve(started: Future[tuple[ServedJournal, Callable[[], None]]]) -> None:
    loop, stopping = asyncio.get_running_loop(), asyncio.Event()
    provider = JournaledProvider(SimulatorConfig(models={"none": SimulatedModel()}))
    await provider.start()

    def beat() -> None:
        provider.journal.beat()
        loop.call_later(BEAT_S, beat)

    beat()
    started.set_result((ServedJournal(provider, loop), lambda: loop.call_soon_threadsafe(stopping.set)))
    await stopping.wait()
    await provider.stop()
