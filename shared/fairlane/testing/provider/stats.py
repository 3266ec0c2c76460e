"""What the simulated provider saw: counts a model, enough to prove what a client did and did not do."""

from __future__ import annotations

import hashlib
from collections import Counter, deque
from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel

from fairlane.testing.provider.behaviour import PAID, Fault
from fairlane.testing.provider.limits import Axis

REMEMBERED_SECONDS = 2 * 3600

Rejection = Axis | Literal["burst"]


class Rejections(BaseModel):
    """Refusals by what refused. ``burst`` are those of configured windows; the others a client's excess."""

    requests: int = 0
    tokens: int = 0
    input: int = 0
    output: int = 0
    day: int = 0
    concurrency: int = 0
    burst: int = 0


class Duplicates(BaseModel):
    """Work done again for a prompt whose work was done before, by how that earlier work had ended.

    ``completed`` is the client's fault; the others were lost on the way back and could not be helped.
    """

    completed: int = 0
    reset_after_work: int = 0
    malformed: int = 0
    cut_stream: int = 0


class ModelStats(BaseModel):
    """One model since the start or the last reset.

    ``requests`` = ``admitted`` + ``rejected`` + errors told at the door (``outage``, ``status_always``), and
    ``admitted`` = ``completed`` + all other ``errors`` + ``abandoned`` + ``in_flight``, which counts those
    that wait in the provider's queue too. Times in ``_s`` are
    seconds since then, those in ``_at`` epoch seconds.
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
    """Requests about predictions, of all models: begun, looked at, and cancelled before they were over."""

    begun: int = 0
    looked: int = 0
    cancelled: int = 0


class StatsReport(BaseModel):
    """What ``GET /stats`` answers."""

    uptime_s: float
    bad_requests: int
    unauthorized: int
    unknown_model: int
    models: dict[str, ModelStats]
    predictions: PredictionStats = PredictionStats()


class Recorder:
    """Counts what happens to one model's requests; times are monotonic milliseconds."""

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
        return self._admitted

    def arrived(self) -> None:
        """A request for this model came in."""
        self._requests += 1

    def turned_away(self, kind: str) -> None:
        """A request failed at the door, without being judged by the limits."""
        self._errors[kind] += 1

    def rejected(self, by: Rejection) -> None:
        """A request was refused by a limit."""
        self._rejected[by] += 1

    def admitted(self, now_ms: int) -> None:
        """A request was admitted and is in flight."""
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
        """The caller went away before its answer was ready."""
        self._in_flight -= 1
        self._abandoned += 1

    def failed(self, fault: Fault) -> None:
        """An admitted request met ``fault``."""
        self._in_flight -= 1
        self._errors[fault] += 1

    def completed(self, now_ms: int) -> None:
        """An admitted request was answered in full."""
        self._in_flight -= 1
        self._completed += 1
        self._last_completed_ms = now_ms

    def paid(self, prompt: str, prompt_tokens: int, completion_tokens: int, ending: Fault | None) -> None:
        """The work for ``prompt`` was done, whether or not the caller got it."""
        self._prompt_tokens += prompt_tokens
        self._completion_tokens += completion_tokens
        key = hashlib.blake2b(prompt.encode(), digest_size=8).digest()
        earlier = self._paid.get(key)
        if earlier is not None:
            self._duplicates[earlier] += 1
        self._paid[key] = str(ending) if ending in PAID else "completed"

    def snapshot(self) -> ModelStats:
        """The counts as they stand."""
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
