"""Looks up results that already exist: from the run that this one continues, or from the team's cache."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from fairlane.core.json_answers import json_or
from fairlane.core.lru import Lru
from fairlane.model.choices import Continuation
from fairlane.model.job import JobState
from fairlane.model.outcome import Success
from fairlane.model.results import JudgeResult, TaskResult, stored_state
from fairlane.model.run import Cell, RunRef
from fairlane.pipeline.conversation import changed_field
from fairlane.pipeline.evaluations import FinishedJob, KnownResult
from fairlane.pipeline.rendering import RunItem
from fairlane.store.write.answer_cache import Answers
from fairlane.store.write.runs.runs import Runs
from fairlane_scheduler.feed.feed_batch import PlacedItem
from fairlane_scheduler.state.backlog import ActiveRun

PAGES_KEPT = 32

MOST_ROW = 1_000_000_000
"""Larger row numbers are wrong: no run has so many rows."""


@dataclass(frozen=True, slots=True)
class KnownTasks:
    """``finished``: tasks that need no call. ``memory``: marks of tasks that differ from the continued run,
    so that later turns are called. Both by item number.
    """

    finished: dict[int, FinishedJob] = field(default_factory=dict)
    memory: dict[int, dict[str, str]] = field(default_factory=dict)


class KnownResults:
    """Finds results by item, for a batch of items at a time."""

    def __init__(self, runs: Runs, servers: Mapping[str, str]) -> None:
        """``servers``: by connection, the server that it calls; only that server's answers are taken."""
        self._continued = _ContinuedRun(runs)
        self._answers, self._servers = Answers(runs.redis, runs.keys), servers

    def tasks(
        self, run: ActiveRun, placed: Sequence[PlacedItem], memory: Mapping[bytes, bytes]
    ) -> KnownTasks:
        """Known tasks of ``placed`` items; an item without a call can never run.

        A turn of a conversation is taken over only if all earlier turns were.
        """
        known, spec = KnownTasks(), run.plan.spec
        failed: set[int] = set()
        if spec.continues is not None:
            failed = self._take_over(run, placed, memory, known)
        if spec.cache.reads:
            excluded = known.finished.keys() | failed
            calls = ((each.item, each.call) for each in placed if each.item.number not in excluded)
            keys = ((item.number, call.digest(item.sample(0), self._servers)) for item, call in calls if call)
            asked = {number: key for number, key in keys if key is not None}
            known.finished.update(self._cached(run.ref.team, asked))
        return known

    def _take_over(
        self, run: ActiveRun, placed: Sequence[PlacedItem], memory: Mapping[bytes, bytes], known: KnownTasks
    ) -> set[int]:
        """Add the tasks that the continued run has; returns those that failed there."""
        failed: set[int] = set()
        changed = {name.decode() for name in memory}
        for each in placed:
            item, remembers = each.item, run.plan.spec.order.remembers
            mark = changed_field(item) if remembers else None
            found = None if mark in changed else self._continued.task(run, item)
            if found is not None and each.call is not None:
                known.finished[item.number] = found
            elif 0 in self._continued.failed(run, item):
                failed.add(item.number)
            alike = found is not None if each.call is not None else found is None or found.answer is None
            if mark is not None and not alike:
                changed.add(mark)
                known.memory[item.number] = {mark: "1"}
        return failed

    def evaluations(
        self, run: ActiveRun, item: RunItem, output: str, digests: Mapping[int, str]
    ) -> dict[int, KnownResult]:
        """Finished evaluations of an item's ``output``, by step; ``digests`` are the keys of the cache."""
        known: dict[int, KnownResult] = {**self._continued.evaluations(run, item, output)}
        failed = self._continued.failed(run, item)
        asked = {step: key for step, key in digests.items() if step not in known and step not in failed}
        return known | self._cached(run.ref.team, asked)

    def forget(self, ref: RunRef) -> None:
        """Drop the state of a run that has ended."""
        self._continued.forget(ref)

    def _cached(self, team: str, digests: Mapping[int, str]) -> dict[int, FinishedJob]:
        found: Mapping[int, Success] = self._answers.find(team, digests)
        return {number: FinishedJob(answer, cached=True) for number, answer in found.items()}


class _ContinuedRun:
    """Reads an item's results in the continued run. The client stores each row's number there: its origin."""

    def __init__(self, runs: Runs) -> None:
        self._runs = runs
        self._origins = Lru[tuple[RunRef, int], list[int]](PAGES_KEPT)
        self._last: tuple[RunRef, int, list[bytes | None]] | None = None

    def task(self, run: ActiveRun, item: RunItem) -> FinishedJob | None:
        """The finished task of an item; ``None`` if the task must be called."""
        old, stored = run.plan.spec.continues, self._stored(run, item)
        if old is None or not stored or stored[0] is None:
            return None
        result = TaskResult.from_json(stored[0])
        if result.state is JobState.FAILED and not old.retry_errors:
            return FinishedJob(None, result.error, result.attempts, result.latency_ms, unkept=result.unkept)
        if result.state is not JobState.SUCCEEDED or result.output is None:
            return None
        return FinishedJob(
            result.as_success(), None, result.attempts, result.latency_ms, result.cached, result.unkept
        )

    def evaluations(self, run: ActiveRun, item: RunItem, output: str) -> dict[int, JudgeResult]:
        """The evaluations of an item's ``output`` that need no call, by step."""
        old, stored = run.plan.spec.continues, self._stored(run, item)
        if old is None or not stored or stored[0] is None or TaskResult.from_json(stored[0]).output != output:
            return {}
        kept = {JobState.SUCCEEDED} if old.retry_errors else {JobState.SUCCEEDED, JobState.FAILED}
        results = ((number, JudgeResult.from_json(text)) for number, text in _evaluations(old, stored))
        return {number: result for number, result in results if result.state in kept}

    def failed(self, run: ActiveRun, item: RunItem) -> set[int]:
        """Steps of an item (0: its task) that failed there, maybe for a cached answer: they are called."""
        old, stored = run.plan.spec.continues, self._stored(run, item)
        if old is None:
            return set()
        texts = [*((0, text) for text in stored[:1] if text), *_evaluations(old, stored)]
        return {number for number, text in texts if stored_state(text) == JobState.FAILED}

    def forget(self, ref: RunRef) -> None:
        """Drop the state of a run that has ended."""
        self._origins.drop_where(lambda key: key[0] == ref)
        self._last = None

    def _stored(self, run: ActiveRun, item: RunItem) -> list[bytes | None]:
        """All results of the item in the continued run, its task's first; empty if it was not part of it."""
        if self._last and self._last[:2] == (run.ref, item.number):
            return self._last[2]
        stored: list[bytes | None] = []
        old = run.plan.spec.continues
        if old is not None and (old_item := self._old_item(run, old, item.cell)) is not None:
            jobs = range(old_item * old.old_steps, (old_item + 1) * old.old_steps)
            stored = self._runs.results(RunRef(run.ref.team, old.run), jobs)
        self._last = (run.ref, item.number, stored)
        return stored

    def _old_item(self, run: ActiveRun, old: Continuation, cell: Cell) -> int | None:
        row = self._old_row(run, cell.row)
        prompt = _at(old.prompts, cell.prompt) if old.prompts else 0
        model = _at(old.models, cell.model) if old.models else 0
        if row < 0 or prompt < 0 or model < 0 or cell.repetition >= old.repetitions:
            return None
        cells = (row * old.old_prompts + prompt) * old.old_models + model
        return cells * old.repetitions + cell.repetition

    def _old_row(self, run: ActiveRun, row: int) -> int:
        number, offset = divmod(row, run.plan.spec.page_rows)
        rows = self._origins.get_or_make((run.ref, number), lambda: self._read_origins(run.ref, number))
        return rows[offset] if offset < len(rows) else -1

    def _read_origins(self, ref: RunRef, number: int) -> list[int]:
        """The origins of a page's rows; empty if the client has stored anything but a list of integers."""
        text = self._runs.origins(ref, number)
        origins = json_or(text or "")
        if not isinstance(origins, list) or not all(type(each) is int for each in origins):
            return []
        return [each if each <= MOST_ROW else -1 for each in origins]


def _evaluations(old: Continuation, stored: Sequence[bytes | None]) -> Iterator[tuple[int, bytes]]:
    """What is stored of an item's evaluations, by their steps in the new run."""
    for number, step in enumerate(old.steps, start=1):
        text = stored[step] if 0 < step < len(stored) else None
        if text:
            yield number, text


def _at(indices: Sequence[int], place: int) -> int:
    return indices[place] if place < len(indices) else -1
