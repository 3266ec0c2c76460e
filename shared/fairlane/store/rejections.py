"""Rejections of a run's first calls to a model, as its state has them (``lib/run/model_refusals.lua``)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from fairlane.model.run_status import Rejection

REJECTED = "rejected:"
"""Prefix of the fields that hold them: hardly any run has one."""

ENOUGH_REFUSALS = 5
"""As in ``lib/run/first_constants.lua``: equal rejections that hold the jobs for a model."""


def rejections_in(state: Mapping[str, str]) -> tuple[Rejection, ...]:
    """Models that rejected a run's first calls alike, from its state (``lib/run/model_refusals.lua``).

    Leaves out models with a witness in flight: its answer may release the run.
    """
    return tuple(each for each, awaited in _rejections(state) if not awaited)


def awaited_in(state: Mapping[str, str], lane: str, kind: int) -> int:
    """How many witnesses decide whether the held calls of a kind fail."""
    return sum(awaited for each, awaited in _rejections(state) if (each.lane, each.kind) == (lane, kind))


def _rejections(state: Mapping[str, str]) -> Iterator[tuple[Rejection, int]]:
    for name, text in sorted(state.items()):
        if name.startswith(REJECTED):
            _, kind, lane = name.split(":", 2)
            rejected = json.loads(text)
            first = FirstCalls.read(state, lane, int(kind))
            if rejected["count"] >= ENOUGH_REFUSALS:
                yield Rejection(lane, int(kind), rejected["words"]), len(first.awaited) if first else 0


class FirstCalls(NamedTuple):
    """A run's first calls to a model, while none is answered (``lib/run/first_state.lua``)."""

    started: int
    most: int
    """How many may start until ``until_ms``."""
    until_ms: int
    awaited: tuple[int, ...]
    """Witnesses: jobs from elsewhere in the run that are awaited before the others fail."""

    @classmethod
    def read(cls, state: Mapping[str, str], lane: str, kind: int) -> FirstCalls | None:
        """Read those of a call kind from a run's state; ``None`` if there are none."""
        text = state.get(f"first:{kind}:{lane}")
        if text is None:
            return None
        started, most, until_ms, *others = map(int, text.split(":"))
        return cls(started, most, until_ms, tuple(others[1:]))
