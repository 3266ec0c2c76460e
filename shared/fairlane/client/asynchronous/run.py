"""A handle on a submitted run for an event loop: `Run`'s methods as coroutines and async iterators."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from os import PathLike
from typing import Any, TypeVar

from fairlane.client.asynchronous.elements import Elements
from fairlane.client.asynchronous.threads import Threads, off_loop
from fairlane.client.deployment import each_step
from fairlane.client.following.chunks import Chunk
from fairlane.client.handles import Unsent, require_handle
from fairlane.client.outputs import Run
from fairlane.client.views.comparison import Comparison
from fairlane.client.views.summary import Summary
from fairlane.evaluators.client_side import ClientScorer
from fairlane.export.formats import Format
from fairlane.export.parsed import Parsed, output_parser
from fairlane.export.trackers.exported import Exported
from fairlane.model.record import Record
from fairlane.model.run import RunSpec
from fairlane.model.run_status import RunStatus
from fairlane.model.sessions import SessionRecord

T = TypeVar("T")
Value = TypeVar("Value")


class AsyncRun(Unsent):
    """A submitted run. It runs without this object, and `AsyncClient.run` finds it again.

    Cancelling a task that waits here does not cancel the run: `cancel` does.
    """

    def __init__(self, run: Run, threads: Threads) -> None:
        """Made by `AsyncClient`."""
        self._run, self._threads = run, threads

    @property
    def id(self) -> str:
        """The run's id within its team; later runs have greater ids."""
        return self._run.id

    @property
    def team(self) -> str:
        """The team that submitted the run."""
        return self._run.team

    @property
    def name(self) -> str:
        """The name it was given, else its id."""
        return self._run.name

    @property
    def serial(self) -> bool:
        """Whether its items go one at a time, as they must where a prompt reads what came before."""
        return self._run.serial

    @property
    def params(self) -> Mapping[str, Any]:
        """The parameters of its calls; empty where they cannot be read."""
        return self._run.params

    @property
    def spec(self) -> RunSpec | None:
        """The submitted spec, without its rows; ``None`` where it cannot be read."""
        return self._run.spec

    def __repr__(self) -> str:
        return f"<AsyncRun {self.id} of team {self.team}: {self.name}>"

    status = off_loop(Run.status)
    cancel = off_loop(Run.cancel)
    pause = off_loop(Run.pause)
    resume = off_loop(Run.resume)
    why = off_loop(Run.why)
    is_held = off_loop(Run.is_held)

    async def wait(
        self, timeout: float | None = None, *, progress: bool = False, until_held: bool = False
    ) -> RunStatus:
        """Wait until the run has finished, and return its status: see `Run.wait`.

        It holds no thread between two polls, so thousands of tasks may wait.
        """
        return await self._threads.finish(self._run._waiting(progress, timeout, until_held=until_held))

    def results(self) -> Elements[Record]:
        """Every item's record, in item order. Waits for the run to be over first: see `Run.results`."""
        return Elements(self._threads, self._run._results())

    def sessions(self) -> Elements[SessionRecord]:
        """Every session's record. Waits for the run to be over first: see `Run.sessions`."""
        return Elements(self._threads, self._run._sessions())

    def stream(self) -> Elements[Record]:
        """Every item's record once, in the order in which they end: see `Run.stream`."""
        return Elements(self._threads, self._run._stream())

    def chunks(self) -> Elements[Chunk]:
        """Pieces of streamed output until the run is over: see `Run.chunks`.

        Each iterator listens on a connection and in a thread of its own, from its first step on.
        """
        return Elements(self._threads.dedicated(), self._run._subscription(), at_once=1, owned=True)

    async def summary(self, *, so_far: bool = False) -> Summary:
        """Scores, failures, tokens, cost and time, once the run is over or ``so_far``: see `Run.summary`."""
        if so_far:
            return await self.in_thread(partial(Run.summary, so_far=True))
        return await self._after_end(Run.summary)

    async def export(
        self, path: str | PathLike[str], format: Format | None = None, *, raw: bool = False
    ) -> int:
        """Write every record to a file, once the run is over: see `Run.export`."""
        return await self._after_end(partial(Run.export, path=path, format=format, raw=raw))

    async def export_to(self, exporter: str, target: str = "") -> Exported:
        """Send every record to another tool, once the run is over: see `Run.export_to`."""
        return await self._after_end(partial(Run.export_to, exporter=exporter, target=target))

    def parsed(self, kind: type[Value]) -> Elements[Parsed[Value]]:
        """Every record with its output as a value of ``kind``, in item order: see `Run.parsed`."""
        return Elements(self._threads, each_step(output_parser(kind), self._run._results()))

    async def to_polars(self) -> Any:
        """Every record as a row of a ``polars.DataFrame``, once the run is over: see `Run.to_polars`."""
        return await self._after_end(Run.to_polars)

    async def to_pandas(self) -> Any:
        """Every record as a row of a ``pandas.DataFrame``, once the run is over: see `Run.to_pandas`."""
        return await self._after_end(Run.to_pandas)

    async def report(
        self, path: str | PathLike[str], *, examples: int = 0, against: AsyncRun | None = None
    ) -> int:
        """Write a page of HTML, once the run is over, and so is ``against``: see `Run.report`."""
        if against is not None:
            await against.wait()
        other = against._run if against is not None else None
        return await self._after_end(partial(Run.report, path=path, examples=examples, against=other))

    async def compare(self, other: AsyncRun, *, by: str | Sequence[str] | None = None) -> Comparison:
        """Compare the scores of two runs, once both are over, item by item: see `Run.compare`."""
        require_handle(other, AsyncRun)
        await other.wait()
        return await self._after_end(partial(Run.compare, other=other._run, by=by))

    def with_scorers(self, *scorers: ClientScorer) -> AsyncRun:
        """The same run, whose records this handle also scores by these: see `Run.with_scorers`."""
        return AsyncRun(self._run.with_scorers(*scorers), self._threads)

    async def in_thread(self, work: Callable[[Run], T]) -> T:
        """The result of ``work`` on the blocking handle, done in a thread."""
        return await self._threads.call(partial(work, self._run))

    async def _after_end(self, work: Callable[[Run], T]) -> T:
        """Wait for the run's end without holding a thread, and then do ``work`` in one."""
        await self.wait()
        return await self.in_thread(work)
