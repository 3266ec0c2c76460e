"""Counts the requests of each model, in enough detail to prove how a client behaved."""

from __future__ import annotations

import hashlib
from collections import Counter, deque
from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel

from fairlane.lab.simulator.limits.admission import Axis
from fairlane.lab.simulator.model.behaviour import PAID, Fault

REMEMBERED_SECONDS = 2 * 3600
"""Seconds with admissions that ``admissions_per_second`` keeps, so that a long run fills no memory."""

RejectedBy = Axis | Literal["burst"]


class Rejections(BaseModel):
    """Rejections by axis. ``burst`` counts configured windows; all others are the client's excess."""

    requests: int = 0
    tokens: int = 0
    input: int = 0
    output: int = 0
    day: int = 0
    concurrency: int = 0
    burst: int = 0


class Duplicates(BaseModel):
    """Repeated work for the same prompt, by the end of the earlier work.

    ``completed`` is the client's error. The others lost their answer, so the client had to repeat them.
    """

    completed: int = 0
    reset_after_work: int = 0
    malformed: int = 0
    cut_stream: int = 0


class ModelStats(BaseModel):
    """One model since the start or the last reset.

    ``requests`` = ``admitted`` + ``rejected`` + the errors ``outage`` and ``status_always``.
    ``admitted`` = ``completed`` + all other ``errors`` + ``abandoned`` + ``in_flight``. Requests in the
    provider's queue are in flight too. Times in ``_s`` are seconds since the start or reset, those in ``_at``
    epoch seconds.
    """

    requests: int
    admitted: int
    rejected: int
    rejected_by: Rejections
    completed: int
    abandoned: int
    errors: dict[str, int]
    in_flight: int
    peak_in_flight: int
    prompt_tokens: int
    completion_tokens: int
    duplicates: int
    duplicates_after: Duplicates
    admissions_per_second: list[tuple[int, int]]
    first_admitted_s: float | None
    first_admitted_at: float | None
    last_completed_s: float | None
    last_completed_at: float | None


class PredictionStats(BaseModel):
    """Requests about predictions of all models; ``looked`` counts polls, ``cancelled`` effective ones."""

    begun: int = 0
    looked: int = 0
    cancelled: int = 0


class StatsReport(BaseModel):
    """The answer of ``GET /stats``."""

    uptime_s: float
    bad_requests: int
    unauthorized: int
    unknown_model: int
    models: dict[str, ModelStats]
    predictions: PredictionStats = PredictionStats()


class Recorder:
    """Counts the requests of one model; times are monotonic milliseconds."""

    def __init__(self, started_ms: int, wall_offset_ms: int) -> None:
        self._started_ms, self._wall_offset_ms = started_ms, wall_offset_ms
        self._requests = self._admitted = self._completed = self._abandoned = 0
        self._in_flight = self._peak = 0
        self._rejected: Counter[str] = Counter()
        self._errors: Counter[str] = Counter()
        self._prompt_tokens = self._completion_tokens = 0
        self._paid: dict[bytes, str] = {}
        self._duplicates: Counter[str] = Counter()
        self._admissions: deque[list[int]] = deque(maxlen=REMEMBERED_SECONDS)
        self._first_admitted_ms: int | None = None
        self._last_completed_ms: int | None = None

    @property
    def admitted_count(self) -> int:
        """Requests admitted so far."""
        return self._admitted

    def arrived(self) -> None:
        """A request for this model arrived."""
        self._requests += 1

    def errored(self, kind: str) -> None:
        """A configured outage or status answered a request before the limits did."""
        self._errors[kind] += 1

    def rejected(self, by: RejectedBy) -> None:
        """A limit rejected a request."""
        self._rejected[by] += 1

    def admitted(self, now_ms: int) -> None:
        """All limits admitted a request, which is in flight now."""
        self._admitted += 1
        self._in_flight += 1
        self._peak = max(self._peak, self._in_flight)
        second = (now_ms - self._started_ms) // 1000
        if self._admissions and self._admissions[-1][0] == second:
            self._admissions[-1][1] += 1
        else:
            self._admissions.append([second, 1])
        if self._first_admitted_ms is None:
            self._first_admitted_ms = now_ms

    def abandoned(self) -> None:
        """The client went away before its answer was ready."""
        self._in_flight -= 1
        self._abandoned += 1

    def failed(self, fault: Fault) -> None:
        """An admitted request ended with ``fault``."""
        self._in_flight -= 1
        self._errors[fault] += 1

    def completed(self, now_ms: int) -> None:
        """An admitted request got its whole answer."""
        self._in_flight -= 1
        self._completed += 1
        self._last_completed_ms = now_ms

    def paid(self, prompt: str, prompt_tokens: int, completion_tokens: int, ending: Fault | None) -> None:
        """The model did the work for ``prompt``, whether or not the client got the answer."""
        self._prompt_tokens += prompt_tokens
        self._completion_tokens += completion_tokens
        key = hashlib.blake2b(prompt.encode(), digest_size=8).digest()
        earlier = self._paid.get(key)
        if earlier is not None:
            self._duplicates[earlier] += 1
        self._paid[key] = str(ending) if ending in PAID else "completed"

    def snapshot(self) -> ModelStats:
        """The current counts."""
        return ModelStats(
            requests=self._requests,
            admitted=self._admitted,
            rejected=self._rejected.total(),
            rejected_by=Rejections(**self._rejected),
            completed=self._completed,
            abandoned=self._abandoned,
            errors=dict(self._errors),
            in_flight=self._in_flight,
            peak_in_flight=self._peak,
            prompt_tokens=self._prompt_tokens,
            completion_tokens=self._completion_tokens,
            duplicates=self._duplicates.total(),
            duplicates_after=Duplicates(**self._duplicates),
            admissions_per_second=[(second, count) for second, count in self._admissions],
            first_admitted_s=self._since_start(self._first_admitted_ms),
            first_admitted_at=self._wall(self._first_admitted_ms),
            last_completed_s=self._since_start(self._last_completed_ms),
            last_completed_at=self._wall(self._last_completed_ms),
        )

    def _since_start(self, at_ms: int | None) -> float | None:
        return None if at_ms is None else (at_ms - self._started_ms) / 1000

    def _wall(self, at_ms: int | None) -> float | None:
        return None if at_ms is None else (at_ms + self._wall_offset_ms) / 1000


def max_admitted_in_window(admissions: Sequence[tuple[int, int]], seconds: int) -> int:
    """The most admissions in any ``seconds`` consecutive whole seconds of ``admissions_per_second``."""
    window: deque[tuple[int, int]] = deque()
    total = most = 0
    for second, count in admissions:
        window.append((second, count))
        total += count
        while window[0][0] <= second - seconds:
            total -= window.popleft()[1]
        most = max(most, total)
    return most
