"""The fields of a run's state in Redis, and what they say together."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from fairlane.model.job import JobState
from fairlane.model.run import RunRef, RunState
from fairlane.model.run_status import LaneProgress, Pause, Rejection, RoleTime, RunStatus

ENOUGH_REFUSALS = 5
"""As in ``lib/run/first_constants.lua``: equal rejections that hold the jobs for a model."""


ROLE_TIME_FIELDS = (
    "finished_ms",
    *(f"{part}:{role}" for role in ("task", "eval") for part in ("calls", "calling_ms", "open", "open_ms")),
)
"""Fields of a run's state that `role_times` reads."""


def role_times(values: Sequence[bytes | None]) -> dict[str, float]:
    """Values of `ROLE_TIME_FIELDS` in seconds, named as in a log line: predict_waiting_s, …."""
    stored = {
        name.encode(): value
        for name, value in zip(ROLE_TIME_FIELDS, values, strict=True)
        if value is not None
    }
    fields, found = RunFields(stored), dict[str, float]()
    for name, role in (("predict", "task"), ("score", "eval")):
        if (time := fields.role_time(role)) is not None:
            found |= {f"{name}_waiting_s": time.waiting_s, f"{name}_calling_s": time.calling_s}
    return found


def rejections_in(state: Mapping[str, str]) -> tuple[Rejection, ...]:
    """Models that rejected a run's first calls alike, from its state (``lib/run/model_refusals.lua``).

    Not those of which the answer to a call from elsewhere in the run is awaited: it may release the run.
    """
    return tuple(each for each, awaited in _rejections(state) if not awaited)


def awaited_in(state: Mapping[str, str], lane: str, kind: int) -> int:
    """How many answers from elsewhere in the run decide whether the calls of a kind that are held fail."""
    return sum(awaited for each, awaited in _rejections(state) if (each.lane, each.kind) == (lane, kind))


def _rejections(state: Mapping[str, str]) -> Iterator[tuple[Rejection, int]]:
    for name, text in sorted(state.items()):
        if name.startswith("rejected:"):
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
    """Jobs from elsewhere in the run whose answers are awaited before the others fail."""

    @classmethod
    def read(cls, state: Mapping[str, str], lane: str, kind: int) -> FirstCalls | None:
        """Read those of a call kind from a run's state; ``None`` where there are none."""
        text = state.get(f"first:{kind}:{lane}")
        if text is None:
            return None
        started, most, until_ms, *others = map(int, text.split(":"))
        return cls(started, most, until_ms, tuple(others[1:]))


class RunFields:
    """Fields of one run's state hash, all or some; without any, the run is not admitted or has expired."""

    def __init__(self, fields: Mapping[bytes, bytes]) -> None:
        self.texts = {name.decode(): value.decode(errors="replace") for name, value in fields.items()}

    def __bool__(self) -> bool:
        return bool(self.texts)

    @property
    def state(self) -> RunState | None:
        """The run's state; ``None`` where the field was not read or is not there."""
        return RunState(self.texts["state"]) if "state" in self.texts else None

    @property
    def archived(self) -> bool:
        """Whether only a stub of the run is left here."""
        return "archived" in self.texts

    @property
    def open(self) -> bool:
        """Whether the run may get more rows."""
        return self.texts.get("open") == "1"

    @property
    def paused(self) -> bool:
        """Whether the run was paused, even if it has ended since."""
        return "paused_ms" in self.texts

    @property
    def pause(self) -> Pause | None:
        """Since when a run that has not ended is paused, and by whom."""
        if not self.paused or self.state is None or self.state.finished:
            return None
        return Pause(self.count("paused_ms"), self.texts.get("paused_by", ""))

    @property
    def pauses(self) -> tuple[tuple[int, int], ...]:
        """Its latest pauses that have ended: from and until when, in server milliseconds."""
        pairs = (each.split("-") for each in self.texts.get("pauses", "").split(",") if each)
        return tuple((int(since), int(until)) for since, until in pairs)

    def count(self, name: str) -> int:
        """A counter; 0 where it is not there."""
        return int(self.texts.get(name, 0))

    def counts(self, prefix: str) -> dict[str, int]:
        """Counters by what follows ``prefix`` in their names."""
        return {
            name.removeprefix(prefix): int(value)
            for name, value in self.texts.items()
            if name.startswith(prefix)
        }

    def status(self, ref: RunRef, name: str) -> RunStatus:
        """The status of an admitted run; needs all fields."""
        known, ended = self.counts("known:"), self.counts("over:")
        return RunStatus(
            run=ref.run,
            team=ref.team,
            name=name,
            state=RunState(self.texts["state"]),
            items=self.count("items"),
            items_done=self.count("items_done"),
            jobs=self.count("jobs"),
            jobs_done=self.count("jobs_done"),
            by_state={JobState(state): count for state, count in self.counts("n:").items()},
            in_flight=self.count("in_flight"),
            retries=self.count("retries"),
            rate_limits=self.count("rate_limits"),
            late_reports=self.count("late"),
            lanes=tuple(LaneProgress(lane, known[lane], ended.get(lane, 0)) for lane in sorted(known)),
            submitted_ms=self.count("submitted_ms"),
            started_ms=self.count("started_ms") or None,
            finished_ms=self.count("finished_ms") or None,
            reason=self.texts.get("reason"),
            paused=self.pause,
            predict=self.role_time("task"),
            score=self.role_time("eval"),
            rejections=rejections_in(self.texts),
        )

    def role_time(self, role: str) -> RoleTime | None:
        """How long jobs of a role (``task``, ``eval``) of a finished run waited and were called.

        ``lib/run/role_times.lua`` counts it. Jobs that the end of the run cut off waited until then.
        """
        calls, finished_ms = self.count(f"calls:{role}"), self.count("finished_ms")
        if not calls or not finished_ms:
            return None
        calling_ms = self.count(f"calling_ms:{role}")
        waiting_ms = self.count(f"open_ms:{role}") + self.count(f"open:{role}") * finished_ms - calling_ms
        return RoleTime(calls, max(0, waiting_ms) / 1000, calling_ms / 1000)
