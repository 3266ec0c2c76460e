"""Pieces of streamed answers on their way to listeners, without the connection's credentials."""

from __future__ import annotations

from collections.abc import Callable

from fairlane.core.masked_stream import MaskedStream
from fairlane.core.redaction import Secrets
from fairlane.model.outcome import Outcome, Success
from fairlane_workers.providers.contract import OnChunk


class MaskedPieces:
    """An `OnChunk` that passes pieces on as the record will have them: joined, they are the record's text.

    They may also have the reasoning that `conclude` takes out of it.
    """

    def __init__(self, on_chunk: OnChunk, secrets: Callable[[], Secrets]) -> None:
        """``secrets`` are asked for with each piece: a token may be renewed while the answer arrives."""
        self._on_chunk, self._secrets = on_chunk, secrets
        self._stream: MaskedStream | None = None

    async def __call__(self, text: str) -> None:
        """Pass on what cannot be part of a credential any more."""
        if self._stream is None:
            self._stream = MaskedStream(self._secrets())
        self._stream.learn(self._secrets())
        await self._pass_on(self._stream.feed(text))

    async def whole(self, text: str) -> None:
        """Pass on a whole answer, as one chunk."""
        await self._pass_on(self._secrets().masked(text))

    async def finish(self, outcome: Outcome) -> Outcome:
        """Pass on what was held back, if the call has succeeded; otherwise its pieces are void."""
        if isinstance(outcome, Success) and self._stream is not None:
            self._stream.learn(self._secrets())
            await self._pass_on(self._stream.finish())
        return outcome

    async def _pass_on(self, text: str) -> None:
        if text:
            await self._on_chunk(text)
