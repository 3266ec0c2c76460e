"""Counts the requests of each model, in enough detail to prove how a client behaved."""

import hashlib
from collections import deque
from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, Field

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

    requests: int = 0
    admitted: int = 0
    rejected: int = 0
    rejected_by: Rejections = Field(default_factory=Rejections)
    completed: int = 0
    abandoned: int = 0
    errors: dict[str, int] = Field(default_factory=dict)
    in_flight: int = 0
    peak_in_flight: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    duplicates: int = 0
    duplicates_after: Duplicates = Field(default_factory=Duplicates)
    admissions_per_second: list[tuple[int, int]] = Field(default_factory=list)
    first_admitted_s: float | None = None
    first_admitted_at: float | None = None
    last_completed_s: float | None = None
    last_completed_at: float | None = None


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
        self._stats = ModelStats()
        self._paid: dict[bytes, str] = {}

    @property
    def admitted_count(self) -> int:
        """Requests admitted so far."""
        return self._stats.admitted

    def arrived(self) -> None:
        """A request for this model arrived."""
        self._stats.requests += 1

    def errored(self, kind: str) -> None:
        """A configured outage or status answered a request before the limits did."""
        self._stats.errors[kind] = self._stats.errors.get(kind, 0) + 1

    def rejected(self, by: RejectedBy) -> None:
        """A limit rejected a request."""
        self._stats.rejected += 1
        _count(self._stats.rejected_by, by)

    def admitted(self, now_ms: int) -> None:
        """All limits admitted a request, which is in flight now."""
        stats = self._stats
        stats.admitted += 1
        stats.in_flight += 1
        stats.peak_in_flight = max(stats.peak_in_flight, stats.in_flight)
        second, seconds = (now_ms - self._started_ms) // 1000, stats.admissions_per_second
        if seconds and seconds[-1][0] == second:
            seconds[-1] = (second, seconds[-1][1] + 1)
        else:
            seconds.append((second, 1))
            del seconds[:-REMEMBERED_SECONDS]
        if stats.first_admitted_s is None:
            stats.first_admitted_s, stats.first_admitted_at = self._moment(now_ms)

    def abandoned(self) -> None:
        """The client went away before its answer was ready."""
        self._stats.in_flight -= 1
        self._stats.abandoned += 1

    def failed(self, fault: Fault) -> None:
        """An admitted request ended with ``fault``."""
        self._stats.in_flight -= 1
        self.errored(str(fault))

    def completed(self, now_ms: int) -> None:
        """An admitted request got its whole answer."""
        self._stats.in_flight -= 1
        self._stats.completed += 1
        self._stats.last_completed_s, self._stats.last_completed_at = self._moment(now_ms)

    def paid(self, prompt: str, prompt_tokens: int, completion_tokens: int, ending: Fault | None) -> None:
        """The model did the work for ``prompt``, whether or not the client got the answer."""
        self._stats.prompt_tokens += prompt_tokens
        self._stats.completion_tokens += completion_tokens
        key = hashlib.blake2b(prompt.encode(errors="surrogatepass"), digest_size=8).digest()
        earlier = self._paid.get(key)
        if earlier is not None:
            self._stats.duplicates += 1
            _count(self._stats.duplicates_after, earlier)
        self._paid[key] = str(ending) if ending in PAID else "completed"

    def snapshot(self) -> ModelStats:
        """The current counts."""
        return self._stats.model_copy(deep=True)

    def _moment(self, at_ms: int) -> tuple[float, float]:
        """A time as seconds since the start, and as epoch seconds."""
        return (at_ms - self._started_ms) / 1000, (at_ms + self._wall_offset_ms) / 1000


def _count(counts: Rejections | Duplicates, name: str) -> None:
    setattr(counts, name, getattr(counts, name) + 1)


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
