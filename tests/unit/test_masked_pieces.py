"""Pieces of a streamed answer whose connection's token is renewed while they arrive."""

from __future__ import annotations

import asyncio

import pytest

from fairlane.core.redaction import Secrets
from fairlane.model.outcome import Success
from fairlane.model.tokens import Usage
from fairlane_workers.providers.answers.pieces import MaskedPieces

OLD, NEW = "ya29.old-K3v9QxT7mZp2LwR8", "ya29.new-B6hYcN4sJd1GfU5e"


@pytest.mark.parametrize("size", [1, 3, 7, 100])
def test_a_token_that_is_renewed_in_a_call_is_masked_as_it_was_and_as_it_is(size: int) -> None:
    held = [OLD]
    heard = list[str]()

    async def listen(text: str) -> None:
        heard.append(text)

    async def scenario() -> None:
        pieces = MaskedPieces(listen, lambda: Secrets(held))
        text = f"first {OLD}, then {NEW} and {OLD} again"
        renewed = text.index(NEW)
        for at in range(0, len(text), size):
            if at + size > renewed:
                held[:] = [NEW, OLD]
            await pieces(text[at : at + size])
        await pieces.finish(Success("", Usage(0, 0)))

    asyncio.run(scenario())
    shown = "".join(heard)
    assert OLD not in shown
    assert NEW not in shown
    assert shown.startswith("first ")
    assert shown.endswith(" again")
