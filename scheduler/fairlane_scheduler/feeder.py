"""Turns runs into candidates, a stretch of items at a time: renders, finds the lane, queues or records."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Any

from fairlane.datasets import decode_page

from fairlane.errors import FairlaneError, TemplateError
from fairlane.events import Event
from fairlane.job import JobState
from fairlane.logs import get_logger
from fairlane.prompts import Prompt, Template
from fairlane.results import SKIPPED_JUDGE, TaskResult
from fairlane.run import Plan, cell_of
from fairlane.store.attempts import Over
from fairlane.store.keys import RunRef
from fairlane.store.runs import Runs
from fairlane.tokens import estimate_call
from fairlane_scheduler.backlog import ActiveRun, Backlog
from fairlane_scheduler.lane_registry import LaneRegistry, UnknownModel

STRETCH = 128  # items handed out at once: a few milliseconds of rendering
DEEP = 5_000  # a run with this many queued jobs is read ahead of at leisure
LEISURE_MS = 50
PAGES_KEPT = 32

log = get_logger("feeder")


class MissingRows(FairlaneError):
    """A run's rows are gone from Redis."""


@dataclass(slots=True)
class _Stretch:
    """What a stretch of items came to."""

    entries: dict[str, list[str]] = field(default_factory=dict)
    over: list[Over] = field(default_factory=list)


class Feeder:
    """Keeps every lane of every run supplied, and no more than that."""

    def __init__(self, runs: Runs, backlog: Backlog, lanes: LaneRegistry) -> None:
        self._runs, self._backlog, self._lanes = runs, backlog, lanes
        self._pages: OrderedDict[tuple[RunRef, int], list[dict[str, Any]]] = OrderedDict()
        self._templates: OrderedDict[RunRef, tuple[list[Prompt], list[Template]]] = OrderedDict()
        self._last_ms: dict[RunRef, int] = {}

    def tick(self, epoch: int, monotonic_ms: int, server_now: str | int = "") -> int | None:
        """Feed each run that wants it one stretch. Milliseconds until the next look, ``None``: when woken."""
        soonest: int | None = None
        for run in self._backlog.runs():
            if run.fed:
                continue
            wait = self._wait_ms(run, monotonic_ms)
            if wait == 0:
                self._last_ms[run.ref] = monotonic_ms
                self._feed(run, epoch, server_now)
                wait = 0 if self._wants(run) and not run.fed else None
            if wait is not None:
                soonest = wait if soonest is None else min(soonest, wait)
        return soonest

    def forget(self, ref: RunRef) -> None:
        """A run has ended."""
        self._templates.pop(ref, None)
        self._last_ms.pop(ref, None)
        for key in [key for key in self._pages if key[0] == ref]:
            del self._pages[key]

    def _wants(self, run: ActiveRun) -> bool:
        low = any(self._backlog.count(lane, run.ref) < STRETCH for lane in run.task_lanes)
        return low or not run.task_lanes

    def _wait_ms(self, run: ActiveRun, monotonic_ms: int) -> int | None:
        if not self._wants(run):
            return None
        queued = sum(self._backlog.count(lane, run.ref) for lane in run.task_lanes)
        if queued < DEEP:
            return 0
        return max(0, self._last_ms.get(run.ref, -LEISURE_MS) + LEISURE_MS - monotonic_ms)

    def _feed(self, run: ActiveRun, epoch: int, server_now: str | int) -> None:
        start = run.cursor
        upto = min(start + STRETCH, run.plan.spec.items)
        stretch = _Stretch()
        for item in range(start, upto):
            self._place(run, item, stretch)
        for lane in stretch.entries:
            self._lanes.ensure(lane)
        fed = self._runs.feed(run.ref, epoch, start, upto, stretch.entries, stretch.over, server_now)
        if fed == 0:
            run.cursor = self._runs.cursor(run.ref)
            return
        run.cursor = upto
        for lane, entries in stretch.entries.items():
            run.task_lanes.add(lane)
            self._backlog.add(lane, run.ref, len(entries))
            depth = self._backlog.depth(lane)
            for entry in entries:
                job = int(entry.partition(":")[0])
                log.info(
                    Event.QUEUEING, run=run.ref.run, job=job, lane=lane, team=run.ref.team, queue_depth=depth
                )
        if fed == 2:
            log.info(Event.RUN_FINISHED, run=run.ref.run, team=run.ref.team)
            self._backlog.drop_run(run.ref)
            self.forget(run.ref)

    def _place(self, run: ActiveRun, item: int, stretch: _Stretch) -> None:
        spec = run.plan.spec
        cell = cell_of(spec, item)
        row = self._row(run, cell.row)
        prompts, models = self._compiled(run)
        model: str | None = None
        try:
            model = models[cell.model].render(row).strip()
            lane = self._lanes.lane_of(model)
            tokens = estimate_call(prompts[cell.prompt].render(row), spec.params)
        except TemplateError as error:
            self._record_invalid(run.plan, item, str(error), model, stretch)
        except UnknownModel as error:
            self._record_invalid(run.plan, item, str(error), model, stretch)
        else:
            stretch.entries.setdefault(lane, []).append(f"{item * spec.steps}:{tokens}")

    @staticmethod
    def _record_invalid(plan: Plan, item: int, error: str, model: str | None, stretch: _Stretch) -> None:
        first = item * plan.spec.steps
        invalid = TaskResult(JobState.INVALID, error=error, model=model)
        stretch.over.append(Over(first, JobState.INVALID, invalid.to_json(), ""))
        for step, lane in enumerate(plan.judge_lanes, start=1):
            stretch.over.append(Over(first + step, JobState.SKIPPED, SKIPPED_JUDGE, lane))

    def _row(self, run: ActiveRun, index: int) -> dict[str, Any]:
        number, offset = divmod(index, run.plan.spec.page_rows)
        key = (run.ref, number)
        page = self._pages.get(key)
        if page is None:
            blob = self._runs.page(run.ref, number)
            if blob is None:
                raise MissingRows(f"run {run.ref.run}: page {number} of its rows is gone from Redis")
            page = self._pages[key] = decode_page(blob)
            while len(self._pages) > PAGES_KEPT:
                self._pages.popitem(last=False)
        self._pages.move_to_end(key)
        return page[offset]

    def _compiled(self, run: ActiveRun) -> tuple[list[Prompt], list[Template]]:
        found = self._templates.get(run.ref)
        if found is None:
            spec = run.plan.spec
            found = (
                [Prompt(messages, f"prompts[{i}]") for i, messages in enumerate(spec.prompts)],
                [Template(f"models[{i}]", text) for i, text in enumerate(spec.models)],
            )
            self._templates[run.ref] = found
        return found
