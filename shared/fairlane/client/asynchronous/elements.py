"""Async iterators over a blocking handle's steps: threads take the steps and fetch elements ahead."""

from collections import deque
from collections.abc import AsyncIterator, Iterator
from threading import Event, Lock
from typing import Generic, Literal, TypeAlias, TypeVar

from fairlane.client.asynchronous.threads import Threads
from fairlane.client.deployment import Wait

AT_ONCE = 256
"""Most elements that one visit to a thread fetches: as many as one round trip to Redis reads."""

T = TypeVar("T")

_Next: TypeAlias = Exception | Wait | Literal["more", "end"]


class Elements(AsyncIterator[T], Generic[T]):
    """An async iterator that goes on after a timeout or an error: nothing that was fetched is lost.

    No thread is held during a pause. Tasks may share it; each gets other elements.
    """

    def __init__(
        self, threads: Threads, steps: Iterator[T | Wait], *, at_once: int = AT_ONCE, owned: bool = False
    ) -> None:
        """Made by `AsyncRun`. ``owned`` threads and their steps are closed with the iterator."""
        self._threads, self._steps, self._at_once, self._owned = threads, steps, at_once, owned
        self._pulling, self._closed = Lock(), False
        self._fetched: deque[T] = deque()
        self._next: _Next = "more"

    async def __anext__(self) -> T:
        while not self._closed:
            if self._fetched:
                return self._fetched.popleft()
            match self._take_next():
                case Exception() as error:
                    raise error
                case Wait(seconds) if seconds:
                    await self._threads.pause(seconds)
                case "end":
                    await self.aclose()
                case _:
                    await self._threads.stoppable(self._pull)
        raise StopAsyncIteration

    async def aclose(self) -> None:
        """End the iteration; an iterator of chunks unsubscribes."""
        if self._closed:
            return
        self._closed = True
        if self._owned:
            try:
                await self._threads.call(self._close_steps)
            finally:
                self._threads.close()

    def _take_next(self) -> _Next:
        """What follows the elements: an error, a pause, or more, each once; or the end."""
        then = self._next
        if then != "end":
            self._next = "more"
        return then

    def _pull(self, stop: Event) -> None:
        """Fetch elements; once ``stop`` is set, at most one more. Never loses one."""
        with self._pulling:
            for _ in range(self._at_once):
                if self._next != "more":
                    return
                self._step()
                if stop.is_set():
                    return

    def _step(self) -> None:
        try:
            step = next(self._steps)
        except StopIteration:
            self._next = "end"
        except Exception as error:  # noqa: BLE001 - raised in the event loop, after the elements before it
            self._next = error
        else:
            if isinstance(step, Wait):
                self._next = step
            else:
                self._fetched.append(step)

    def _close_steps(self) -> None:
        """Close the steps, if they can be closed."""
        with self._pulling:
            close = getattr(self._steps, "close", None)
            if close is not None:
                close()
