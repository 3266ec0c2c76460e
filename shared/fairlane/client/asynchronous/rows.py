"""Adds rows to an open run from an event loop."""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable, Coroutine, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from fairlane.client.asynchronous.run import AsyncRun
from fairlane.client.asynchronous.threads import Threads
from fairlane.core.errors import FairlaneError

if TYPE_CHECKING:
    from fairlane.client.submitting.row_writer import RowWriter


class AsyncRowWriter:
    """`RowWriter` as an async context manager: entering submits the run, leaving ends its rows.

    Where the block raises, or is cancelled, the run is cancelled.
    """

    def __init__(
        self,
        submit: Callable[[], Coroutine[Any, Any, RowWriter]],
        threads: Threads,
    ) -> None:
        """Made by `AsyncClient.open`."""
        self._submit, self._threads = submit, threads
        self._writer: RowWriter | None = None

    @property
    def run(self) -> AsyncRun:
        """The run, once the block has been entered."""
        return AsyncRun(self._opened().run, self._threads)

    async def write(self, *rows: Mapping[str, Any]) -> None:
        """Add rows; a page of them is sent together. Waits while many are still to be handed out."""
        await self._threads.finish(self._opened().extending(rows))

    async def extend(self, rows: Iterable[Mapping[str, Any]] | AsyncIterable[Mapping[str, Any]]) -> None:
        """`write` for all of ``rows``, however many; they may come from an async iterator."""
        if isinstance(rows, AsyncIterable):
            async for row in rows:
                await self.write(row)
        else:
            await self._threads.finish(self._opened().extending(rows))

    async def close(self) -> AsyncRun:
        """End the rows and return the run, which continues."""
        return AsyncRun(await self._threads.finish(self._opened().closing()), self._threads)

    async def __aenter__(self) -> Self:
        self._writer = await self._submit()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            await self.close()
        else:
            await self._threads.call(self._opened().run.cancel)

    def _opened(self) -> RowWriter:
        if self._writer is None:
            raise FairlaneError(
                "the run is not open yet: write its rows inside `async with client.open(…) as rows:`"
            )
        return self._writer
