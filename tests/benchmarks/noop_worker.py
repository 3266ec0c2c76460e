"""A Fairlane worker whose provider answers at once: what is left is the path itself."""

from __future__ import annotations

from fairlane.model.outcome import Outcome, Success
from fairlane.model.tokens import Usage
from fairlane_workers.command import main
from fairlane_workers.providers import registry
from fairlane_workers.providers.contract import OnChunk, Request

ANSWER = Success("ok", Usage(1, 1))


class NoopProvider:
    """Makes no call."""

    async def call(self, request: Request, on_chunk: OnChunk | None = None) -> Outcome:
        return ANSWER

    async def prepare(self) -> None:
        pass

    async def aclose(self) -> None:
        return None


if __name__ == "__main__":
    registry.build_provider = lambda *_, **__: NoopProvider()  # type: ignore[assignment]
    raise SystemExit(main())
