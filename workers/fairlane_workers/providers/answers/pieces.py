"""Pieces of streamed answers on their way to listeners, without the connection's credentials."""

from collections.abc import Callable

from fairlane.core.redaction import MASK, RUN, Secrets, cut_escape, stretches
from fairlane.model.outcome import Outcome, Success
from fairlane_workers.providers.contract import OnChunk


class MaskedPieces:
    """An `OnChunk` that passes pieces on as the record will have them: joined, they are the record's text.

    They may also have the reasoning that `conclude` takes out of it.
    """

    def __init__(self, on_chunk: OnChunk, secrets: Callable[[], Secrets]) -> None:
        """``secrets`` is called for each piece: a token may be renewed while the answer arrives."""
        self._on_chunk, self._secrets = on_chunk, secrets
        self._stream = MaskedStream(secrets)

    async def __call__(self, text: str) -> None:
        """Pass on the text that cannot be part of a credential."""
        await self._pass_on(self._stream.feed(text))

    async def whole(self, text: str) -> None:
        """Pass on a whole answer, as one chunk."""
        await self._pass_on(self._secrets().masked(text))

    async def finish(self, outcome: Outcome) -> Outcome:
        """Pass on the buffered text, if the call has succeeded; otherwise its pieces are void."""
        if isinstance(outcome, Success):
            await self._pass_on(self._stream.finish())
        return outcome

    async def _pass_on(self, text: str) -> None:
        if text:
            await self._on_chunk(text)


class MaskedStream:
    """Masks a text piece by piece: joined, its results equal `Secrets.masked` of the whole text.

    It buffers what may be the beginning of a credential, less than `RUN` characters, and backslashes before
    it. Its work is linear in the text, however small the pieces are.
    """

    def __init__(self, secrets: Callable[[], Secrets]) -> None:
        """``secrets`` should also return earlier secrets later on, as some text may still be buffered."""
        self._secrets = secrets
        self._text = ""
        """Text that is not passed on yet, after the ``_covered`` characters that the latest mask replaces."""
        self._covered = 0
        self._slashes = 0
        """Buffered backslashes: dropped if a mask follows, so that no half of an escape sequence stays."""

    def feed(self, piece: str) -> str:
        """The text that can be passed on after ``piece``; empty if all of it is buffered."""
        return self._passed_on(piece, ended=False)

    def finish(self) -> str:
        """The rest, once no more text comes."""
        return self._passed_on("", ended=True)

    def _passed_on(self, piece: str, *, ended: bool) -> str:
        text = self._text + piece
        open_at = len(text) if ended else self._secrets().opening(text)
        parts, done, last = list[str](), 0, 0
        for first, last in self._stretches(text):
            if first or not self._covered:
                parts += [self._plain(text[done:first]), MASK]
                self._slashes = 0
            done = last + cut_escape(text[first:last])
        if last and last >= open_at:  # the next characters may continue it
            kept = max(0, last - RUN)
            self._text, self._covered = text[kept:], last - kept
        else:
            parts.append(self._plain(text[done:open_at]))
            self._text, self._covered = text[open_at:], 0
        if ended:
            parts.append("\\" * self._slashes)
            self._text, self._covered, self._slashes = "", 0, 0
        return "".join(parts)

    def _stretches(self, text: str) -> list[tuple[int, int]]:
        """The stretches to be masked; the first is the one that is passed on already, if there is one."""
        found = list(stretches(starts)) if (starts := self._secrets().starts(text)) else []
        if not self._covered:
            return found
        last = self._covered
        while found and found[0][0] <= last:
            last = max(last, found.pop(0)[1])
        return [(0, last), *found]

    def _plain(self, text: str) -> str:
        """Text without a credential; backslashes at its end are buffered."""
        shown = text.rstrip("\\")
        before = "\\" * self._slashes if shown else ""
        self._slashes = len(text) - len(shown) + (0 if shown else self._slashes)
        return before + shown
