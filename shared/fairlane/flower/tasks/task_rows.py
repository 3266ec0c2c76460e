"""Flower's own task rows, in our words: run, item, team, lane and model in place of raw arguments."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from threading import Lock
from typing import Any, NamedTuple

from fairlane.broker.app import TASK_NAME
from fairlane.core.errors import FairlaneError
from fairlane.core.lru import Lru
from fairlane.flower.tasks.attempts_seen import lane_of
from fairlane.model.run import RunRef, RunSpec, cell_of

COLUMNS = {"run": "Run", "item": "Item", "team": "Team", "lane": "Lane", "model": "Model"}
DEFAULT_COLUMNS = "run,item,team,lane,model,state,result,received,runtime,worker"

KEPT = 500
"""Runs whose shape is remembered; of any other that is shown, it is read again."""

_ID = re.compile(r"([^/]+)/([^/]+)/(\d+)/(\d+)")


def is_attempt(task: str) -> bool:
    """Whether a task's id is one of our attempts."""
    return _ID.fullmatch(task) is not None


class Shape(NamedTuple):
    """A run's shape, which gives a job's item and model, without any text."""

    steps: int
    items: int
    spec: RunSpec

    def item_of(self, job: int) -> str:
        """``"17"``, ``"17 (accuracy)"`` for what an evaluator makes of it, or a session's."""
        if job >= self.items * self.steps and self.spec.session_evals:
            return f"session job {job - self.items * self.steps}"
        item, step = divmod(job, self.steps)
        return str(item) if step == 0 else f"{item} ({self.spec.evals[step - 1].name})"

    def model_of(self, job: int) -> str:
        """The model as the run names it, which may be a template over the row."""
        if job >= self.items * self.steps and self.spec.session_evals:
            return ""
        item, step = divmod(job, self.steps)
        if step:
            return self.spec.evals[step - 1].model
        return self.spec.models[cell_of(self.spec, item).model] if self.spec.models else ""


class TaskRows:
    """Formats tasks on Flower's loop, and so never waits: what it needs is learned before, elsewhere."""

    def __init__(self, spec_of: Callable[[RunRef], RunSpec | None]) -> None:
        self._spec_of, self._lock = spec_of, Lock()
        self._shapes = Lru[RunRef, Shape](KEPT)

    def learn(self, refs: Iterable[RunRef]) -> None:
        """Read the shapes of runs that are not known, which blocks. One that cannot be read is left out."""
        for ref in refs:
            if ref in self._shapes:
                continue
            try:
                spec = self._spec_of(ref)
            except FairlaneError:
                continue
            if spec is not None:
                with self._lock:
                    self._shapes.put(ref, Shape(spec.steps, spec.items, spec))

    def format(self, task: Any) -> Any:
        """A task, changed so that it has our columns; another's has its name in the first of them."""
        match = _ID.fullmatch(str(task.uuid))
        if match is None or task.name not in (None, TASK_NAME):
            return _with(task, dict.fromkeys(COLUMNS, "") | {"run": task.name or ""})
        ref, job = RunRef(match[1], match[2]), int(match[3])
        with self._lock:
            shape = self._shapes.get(ref)
        shown = {
            "run": ref.run,
            "item": shape.item_of(job) if shape else f"job {job}",
            "team": ref.team,
            "lane": lane_of(task),
            "model": shape.model_of(job) if shape else "",
        }
        _with(task, shown)
        task.args, task.kwargs = f"attempt {match[4]} of job {job}", ""
        task.result = (task.result or "").strip("'\"") or None
        return task


def _with(task: Any, shown: Mapping[str, str]) -> Any:
    """A task with these fields: Flower's table needs each of its columns in each row."""
    task._fields = (*type(task)._fields, *shown)
    for name, value in shown.items():
        setattr(task, name, value)
    return task
