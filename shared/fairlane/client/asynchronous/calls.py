"""Calls of functions under a lane, for an event loop."""

from typing import Any, Generic, TypeVar

from fairlane.client.asynchronous.elements import Elements
from fairlane.client.asynchronous.run import AsyncRun
from fairlane.client.asynchronous.threads import Threads
from fairlane.client.calls import CallHandle, CallMap
from fairlane.client.deployment import each_step
from fairlane.client.handles import Unsent
from fairlane.why.waiting import Waiting

H = TypeVar("H", bound=CallHandle | CallMap)


class _AsyncCalls(Unsent, Generic[H]):
    """Calls that are the items of a run. They run without this object."""

    def __init__(self, handle: H, threads: Threads) -> None:
        self._handle, self._threads = handle, threads

    @property
    def id(self) -> str:
        """The id of the run whose items the calls are."""
        return self._handle.id

    @property
    def run(self) -> AsyncRun:
        """The run whose items the calls are: look, wait, cancel."""
        return AsyncRun(self._handle.run, self._threads)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id}: {self._handle.run.name}>"

    async def cancel(self) -> None:
        """Ask the scheduler to cancel the unfinished calls, and return at once."""
        await self._threads.call(self._handle.cancel)


class AsyncCallHandle(_AsyncCalls[CallHandle]):
    """One call."""

    async def done(self) -> bool:
        """Whether the call has ended, successfully or not. Raises `StoreUnavailable`."""
        return await self._threads.call(self._handle.done)

    async def result(self, timeout: float | None = None) -> Any:
        """Wait for the call and return its value, like `CallHandle.result`."""
        await self.run.wait(timeout=timeout)
        return await self._threads.call(self._handle.result)

    async def why(self) -> Waiting:
        """Why the call waits, and about when it starts."""
        return await self._threads.call(self._handle.why)


class AsyncCallMap(_AsyncCalls[CallMap]):
    """Many calls of one function: one run, whose items they are."""

    async def results(self, timeout: float | None = None, *, return_exceptions: bool = False) -> list[Any]:
        """Wait for all calls, and return their values in order. Raises what `CallMap.results` does."""
        await self.run.wait(timeout=timeout)
        return await self._threads.call(lambda: self._handle.results(return_exceptions=return_exceptions))

    def stream(self) -> Elements[tuple[int, Any]]:
        """``(number, result)`` of each call as it ends, a `CallFailed` in place of a missing result."""
        return Elements(self._threads, each_step(self._handle.numbered, self._handle.run._stream()))
