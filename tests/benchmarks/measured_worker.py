"""A Fairlane worker that writes down when each call left and how old its permit was then.

With ``--noop`` its provider answers at once: what is left is the path itself. The file is written when the
worker stops, so that nothing is logged while it works.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import fairlane_workers.engine as engine_module
from fairlane.model.outcome import Outcome
from fairlane_workers.command import main
from fairlane_workers.execution.reporter import FinishedCall
from fairlane_workers.providers import registry
from fairlane_workers.providers.contract import OnChunk, Request
from tests.benchmarks.noop_worker import ANSWER, NoopProvider


class LeavingProvider(NoopProvider):
    """Makes no call; notes where its first byte would leave."""

    async def call(self, request: Request, on_chunk: OnChunk | None = None) -> Outcome:
        request.leave()
        return ANSWER


class CallLog:
    """An observer beside the worker's metrics."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._calls: list[tuple[float, str, int]] = []

    def called(self, call: FinishedCall) -> None:
        self._calls.append((time.time() - call.took_ms / 1000, call.attempt.lane, call.wire_ms))

    def recorded(self, state: Any) -> None:
        """The calls are enough."""

    def close(self) -> None:
        self._path.write_text(json.dumps(self._calls))


def run(argv: list[str]) -> int:
    """``[--noop] CALLS_FILE``, then the arguments of a worker."""
    if argv[0] == "--noop":
        argv = argv[1:]
        registry.build_provider = lambda *_, **__: LeavingProvider()  # type: ignore[assignment]
    log = CallLog(Path(argv[0]))
    engine_module.open_spans = lambda *_: (log,)  # type: ignore[assignment]
    return main(argv[1:])


if __name__ == "__main__":
    raise SystemExit(run(sys.argv[1:]))
