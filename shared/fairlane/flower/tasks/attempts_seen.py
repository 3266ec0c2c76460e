"""The attempts at a job that Flower has heard of: it remembers the latest ten thousand of all runs."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from fairlane.model.job import Attempt
from fairlane.model.run import RunRef

LOOKED_FOR = 300
"""A job's attempts that are looked for, from the first on."""

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
