"""Adds rows to an open run from an event loop."""

from __future__ import annotations

from collections.abc import AsyncIterable, Callable, Coroutine, Iterable, Mapping
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from fairlane.client.asynchronous.run import AsyncRun
from fairlane.client.asynchronous.threads import Threads
from fairlane.core.errors import FairlaneError
from fairlane.datasets.row_json import take_row
from fairlane.datasets.rows import read_rows

if TYPE_CHECKING:
    from fairlane.client.submitting.row_writer import RowWriter


class AsyncRowWriter:
    """`RowWriter` as an async context manager: entering submits the run, leaving ends its rows.

    Tasks may share it. Where the block raises or is cancelled, or its rows cannot be ended, the run is
    cancelled.
    """

    def __init__(self, submit: Callable[[], Coroutine[Any, Any, RowWriter]], threads: Threads) -> None:
        """Made by `AsyncClient.open`."""
        self._submit, self._threads = submit, threads
        self._writer: RowWriter | None = None

    @property
    def run(self) -> AsyncRun:
        """The run, once the block has been entered."""
        return AsyncRun(self._opened().run, self._threads)

    @property
    def accepted(self) -> int:
        """Rows that were accepted so far, sent or not."""
        return self._opened().accepted

    async def write(self, *rows: Mapping[str, Any]) -> None:
        """Add rows; a page of them is sent together. Waits while many rows wait to be fed.

        It accepts each row before it first waits: see `RowWriter.write`.
        """
        for number, row in enumerate(read_rows(rows), start=self.accepted + 1):
            await self._accept(row, number)

    async def extend(self, rows: Iterable[Mapping[str, Any]] | AsyncIterable[Mapping[str, Any]]) -> None:
        """`write` for all of ``rows``, however many; they may come from an async iterator."""
        if isinstance(rows, AsyncIterable):
            number = 0
            async for given in rows:
                number += 1
                await self._accept(take_row(given, number), number)
        else:
            await self._threads.finish(self._opened().extending(rows))

    async def _accept(self, row: dict[str, Any], number: int) -> None:
        sender = self._opened().sender
        if sender.accept(row, number):
            await self._threads.finish(sender.sending())

    async def close(self) -> AsyncRun:
        """End the rows and return the run, which continues. Further calls do nothing."""
        writer = self._opened()
        await self._threads.finish(writer.sender.closing())
        return AsyncRun(writer.run, self._threads)

    async def __aenter__(self) -> Self:
        self._writer = await self._submit()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            await self._abandon(error)
            return
        try:
            await self.close()
        except BaseException as failed:
            await self._abandon(failed)
            raise

    async def _abandon(self, error: BaseException) -> None:
        await self._threads.call(partial(self._opened().sender.abandon, error))

    def _opened(self) -> RowWriter:
        if self._writer is None:
            raise FairlaneError(
                "the run is not open yet: write its rows inside `async with client.open(…) as rows:`"
            )
        return self._writer
