"""What an earlier run found out, for the run that goes on from it."""

from __future__ import annotations

import json

from fairlane.choices import Resumption
from fairlane.job import JobState, Success
from fairlane.results import JudgeResult, TaskResult
from fairlane.run import Cell, RunSpec
from fairlane.store.keys import RunRef
from fairlane.store.runs import Runs
from fairlane.verdict import Ended, Place

PAGES_KEPT = 32


class Resumed:
    """Finds an item's results in the run before it, by where the client says that its row was there."""

    def __init__(self, runs: Runs) -> None:
        self._runs = runs
        self._origins: dict[tuple[RunRef, int], list[int]] = {}
        self._results: tuple[RunRef, int, list[bytes | None]] | None = None

    def task(self, ref: RunRef, spec: RunSpec, place: Place) -> Ended | None:
        """How the item's task ended; ``None`` where it is to be done, now or again."""
        stored = self._stored(ref, spec, place)
        if not stored or stored[0] is None:
            return None
        result = TaskResult.from_json(stored[0])
        if result.state is JobState.FAILED and spec.resumes is not None and not spec.resumes.retry_errors:
            return Ended(None, result.error, result.attempts, result.latency_ms)
        if result.state is not JobState.SUCCEEDED or result.output is None:
            return None
        answer = Success(result.output, result.usage)
        return Ended(answer, None, result.attempts, result.latency_ms, result.cached)

    def evaluations(self, ref: RunRef, spec: RunSpec, place: Place) -> dict[int, JudgeResult]:
        """Results of the item's evaluations that need not be done again, by step."""
        if spec.resumes is None:
            return {}
        again = set() if spec.resumes.retry_errors else {JobState.FAILED}
        stored = self._stored(ref, spec, place)
        known: dict[int, JudgeResult] = {}
        for number, old in enumerate(spec.resumes.steps, start=1):
            text = stored[old] if 0 < old < len(stored) else None
            result = JudgeResult.from_json(text) if text else None
            if result is not None and result.state in {JobState.SUCCEEDED, *again}:
                known[number] = result
        return known

    def forget(self, ref: RunRef) -> None:
        """A run has ended."""
        self._origins = {key: rows for key, rows in self._origins.items() if key[0] != ref}
        self._results = None

    def _stored(self, ref: RunRef, spec: RunSpec, place: Place) -> list[bytes | None]:
        """All results of the item in the run before, its task's first; empty where it was not in it."""
        if self._results and self._results[:2] == (ref, place.item):
            return self._results[2]
        stored: list[bytes | None] = []
        before = spec.resumes
        item = self._old_item(ref, spec, before, place.cell) if before is not None else None
        if before is not None and item is not None:
            old, steps = RunRef(ref.team, before.run), before.old_steps
            stored = self._runs.results(old, range(item * steps, (item + 1) * steps))
        self._results = (ref, place.item, stored)
        return stored

    def _old_item(self, ref: RunRef, spec: RunSpec, before: Resumption, cell: Cell) -> int | None:
        row = self._old_row(ref, spec, cell.row)
        prompt = before.prompts[cell.prompt] if before.prompts else 0
        model = before.models[cell.model] if before.models else 0
        if row < 0 or prompt < 0 or model < 0 or cell.repetition >= before.repetitions:
            return None
        cells = (row * before.old_prompts + prompt) * before.old_models + model
        return cells * before.repetitions + cell.repetition

    def _old_row(self, ref: RunRef, spec: RunSpec, row: int) -> int:
        number, offset = divmod(row, spec.page_rows)
        rows = self._origins.get((ref, number))
        if rows is None:
            text = self._runs.origins(ref, number)
            rows = self._origins[ref, number] = json.loads(text) if text else []
            while len(self._origins) > PAGES_KEPT:
                self._origins.pop(next(iter(self._origins)))
        return rows[offset] if offset < len(rows) else -1
