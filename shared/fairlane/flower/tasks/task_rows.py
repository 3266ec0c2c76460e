"""Formats Flower's tasks as attempts: rows of its table, and the attempts of a job."""

import re
from collections.abc import Callable, Iterable, Mapping
from itertools import pairwise
from threading import Lock
from typing import Any

from fairlane.broker.app import TASK_NAME
from fairlane.core.errors import FairlaneError
from fairlane.core.lru import Lru
from fairlane.model.job import Attempt
from fairlane.model.run import RunRef, RunSpec, cell_of

LOOKED_FOR = 300
"""Most attempts of a job that are searched for, from the first on."""

_LANE = re.compile(r"\blane=(.*)$")
_ENDS = ("succeeded", "failed", "retried", "rejected", "revoked")


def attempts_seen(tasks: Mapping[str, Any], ref: RunRef, job: int) -> list[dict[str, Any]]:
    """Attempts in order; times are seconds since the epoch, by the workers' clocks."""
    found: list[dict[str, Any]] = []
    for number in range(1, LOOKED_FOR + 1):
        task = tasks.get(Attempt(ref.run, ref.team, job, number, "").id)
        if task is not None:
            found.append(_seen(number, task))
    for before, after in pairwise(found):
        if before["ended"] is not None and after["received"] is not None:
            after["waited_s"] = max(0.0, after["received"] - before["ended"])
    return found


def lane_of(task: Any) -> str:
    """The lane in an attempt's message."""
    found = _LANE.search(task.kwargs or "")
    return found[1].strip("'\"") if found else ""


def _seen(number: int, task: Any) -> dict[str, Any]:
    ended = [moment for name in _ENDS if (moment := getattr(task, name, None)) is not None]
    return {
        "number": number,
        "task": task.uuid,
        "state": task.state,
        "outcome": (task.result or "").strip("'\""),
        "lane": lane_of(task),
        "worker": task.worker.hostname if task.worker else None,
        "received": task.received,
        "started": task.started,
        "ended": max(ended, default=None),
        "runtime_s": task.runtime,
        "waited_s": None,
    }


COLUMNS = {"run": "Run", "item": "Item", "team": "Team", "lane": "Lane", "model": "Model"}
DEFAULT_COLUMNS = "run,item,team,lane,model,state,result,received,runtime,worker"

KEPT = 500
"""Most runs whose spec is cached; others are read again."""

_ID = re.compile(r"([^/]+)/([^/]+)/(\d+)/(\d+)")


def is_attempt(task: str) -> bool:
    """Whether a task's id is that of an attempt."""
    return _ID.fullmatch(task) is not None


def item_of(spec: RunSpec, job: int) -> str:
    """``"17"``, ``"17 (accuracy)"`` for an evaluation of it, or a session's job."""
    if _is_of_session(spec, job):
        return f"session job {job - spec.items * spec.steps}"
    item, step = divmod(job, spec.steps)
    return str(item) if step == 0 else f"{item} ({spec.evals[step - 1].name})"


def model_of(spec: RunSpec, job: int) -> str:
    """The model as the run names it, which may be a template over the row."""
    if _is_of_session(spec, job):
        return ""
    item, step = divmod(job, spec.steps)
    if step:
        return spec.evals[step - 1].model
    return spec.models[cell_of(spec, item).model] if spec.models else ""


def _is_of_session(spec: RunSpec, job: int) -> bool:
    return job >= spec.items * spec.steps and bool(spec.session_evals)


class TaskRows:
    """Formats tasks on Flower's event loop without waiting; `learn` reads the specs before, in a thread."""

    def __init__(self, spec_of: Callable[[RunRef], RunSpec | None]) -> None:
        self._spec_of, self._lock = spec_of, Lock()
        self._specs = Lru[RunRef, RunSpec](KEPT)

    def learn(self, refs: Iterable[RunRef]) -> None:
        """Read and cache the specs of unknown runs, which blocks; skips those that cannot be read."""
        for ref in refs:
            if ref in self._specs:
                continue
            try:
                spec = self._spec_of(ref)
            except FairlaneError:
                continue
            if spec is not None:
                with self._lock:
                    self._specs.put(ref, spec)

    def format(self, task: Any) -> Any:
        """Add Fairlane's columns to a task; any other Celery task shows its name in the first of them."""
        match = _ID.fullmatch(str(task.uuid))
        if match is None or task.name not in (None, TASK_NAME):
            return _with(task, dict.fromkeys(COLUMNS, "") | {"run": task.name or ""})
        ref, job = RunRef(match[1], match[2]), int(match[3])
        with self._lock:
            spec = self._specs.get(ref)
        shown = {
            "run": ref.run,
            "item": item_of(spec, job) if spec else f"job {job}",
            "team": ref.team,
            "lane": lane_of(task),
            "model": model_of(spec, job) if spec else "",
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
