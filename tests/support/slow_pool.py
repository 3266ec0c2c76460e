"""A pool of child processes that works when a test says so, in the test's own process."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

from fairlane.core.errors import TemplateError
from fairlane.model.run import Plan
from fairlane.pipeline.rendering import Rendering
from fairlane.sandbox.pieces import Piece


class SlowPool:
    """Stands in for a pool whose children have done nothing until the test says so."""

    def __init__(self) -> None:
        self.waiting: list[tuple[str, Piece, Plan | None, Future[Any]]] = []
        self.works = False

    def submit(self, team: str, piece: Piece, plan: Plan | None = None) -> Future[Any]:
        future: Future[Any] = Future()
        self.waiting.append((team, piece, plan, future))
        return future

    def do_all(self, error: Exception | None = None) -> int:
        """Do what waits; ``error``: all of it ends so instead."""
        done, self.waiting = self.waiting, []
        for _, piece, plan, future in done:
            if not future.set_running_or_notify_cancel():
                continue
            if error is not None:
                future.set_exception(error)
                continue
            self.works = True
            try:
                future.set_result(piece.read(piece.work(None if plan is None else Rendering(plan))))
            except TemplateError as broken:
                future.set_exception(broken)
            self.works = False
        return len(done)
