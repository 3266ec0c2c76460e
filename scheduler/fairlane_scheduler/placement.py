"""Where items go: rendered, each is queued on its lane, or recorded at once because it can never run."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass, field

from fairlane.errors import TemplateError
from fairlane.job import JobState
from fairlane.prompts import Prompt, Template
from fairlane.results import SKIPPED_JUDGE, TaskResult
from fairlane.run import Plan, cell_of
from fairlane.store.attempts import Over
from fairlane.store.entry import Entry
from fairlane.store.keys import RunRef
from fairlane.store.runs import Runs
from fairlane.tokens import estimate_call
from fairlane_scheduler.backlog import ActiveRun
from fairlane_scheduler.lane_registry import LaneRegistry, UnknownModel
from fairlane_scheduler.row_pages import RowPages, UnreadableRow

RUNS_KEPT = 256


@dataclass(slots=True)
class Stretch:
    """What a stretch of items came to: entries by lane, and jobs that are over."""

    entries: dict[str, list[Entry]] = field(default_factory=dict)
    over: list[Over] = field(default_factory=list)


class Placement:
    """Renders items just far enough to know their lane and their size."""

    def __init__(self, runs: Runs, lanes: LaneRegistry) -> None:
        self._lanes = lanes
        self._pages = RowPages(runs)
        self._templates: OrderedDict[RunRef, tuple[list[Prompt], list[Template]]] = OrderedDict()

    def place(self, run: ActiveRun, item: int, stretch: Stretch) -> None:
        """Add one item to ``stretch``."""
        spec, model = run.plan.spec, None
        cell = cell_of(spec, item)
        prompts, models = self._compiled(run)
        try:
            row = self._pages.row(run.ref, spec, cell.row)
            model = models[cell.model].render(row).strip()
            lane = self._lanes.lane_of(model)
            tokens = estimate_call(prompts[cell.prompt].render(row), spec.params)
        except (TemplateError, UnknownModel, UnreadableRow) as error:
            self._record_invalid(run.plan, item, str(error), model, stretch)
        else:
            stretch.entries.setdefault(lane, []).append(Entry(item * spec.steps, tokens, cell.model))

    def forget(self, ref: RunRef) -> None:
        """A run has ended."""
        self._templates.pop(ref, None)
        self._pages.forget(ref)

    @staticmethod
    def _record_invalid(plan: Plan, item: int, error: str, model: str | None, stretch: Stretch) -> None:
        first = item * plan.spec.steps
        invalid = TaskResult(JobState.INVALID, error=error, model=model)
        stretch.over.append(Over(first, JobState.INVALID, invalid.to_json(), ""))
        for step, lane in enumerate(plan.judge_lanes, start=1):
            stretch.over.append(Over(first + step, JobState.SKIPPED, SKIPPED_JUDGE, lane))

    def _compiled(self, run: ActiveRun) -> tuple[list[Prompt], list[Template]]:
        found = self._templates.get(run.ref)
        if found is None:
            spec = run.plan.spec
            found = self._templates[run.ref] = (
                [Prompt(messages, f"prompts[{i}]") for i, messages in enumerate(spec.prompts)],
                [Template(f"models[{i}]", text) for i, text in enumerate(spec.models)],
            )
            while len(self._templates) > RUNS_KEPT:
                self._templates.popitem(last=False)
        self._templates.move_to_end(run.ref)
        return found
