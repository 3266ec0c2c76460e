"""Jobs, attempts and outcomes: the smallest unit of work, the right to try it once, and how that ended."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal, TypeAlias

from fairlane.hints import Hints

MESSAGE_VERSION = 1


class JobState(StrEnum):
    """Where a job is. The last six are terminal; `TRANSITIONS` is the whole graph."""

    WAITING = "waiting"
    LEASED = "leased"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    INVALID = "invalid"
    SKIPPED = "skipped"
    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"


TERMINAL = frozenset(
    {
        JobState.SUCCEEDED,
        JobState.FAILED,
        JobState.INVALID,
        JobState.SKIPPED,
        JobState.CANCELLED,
        JobState.TIMED_OUT,
    }
)

TRANSITIONS: dict[JobState, frozenset[JobState]] = {
    JobState.WAITING: TERMINAL | {JobState.LEASED},
    JobState.LEASED: TERMINAL - {JobState.INVALID, JobState.SKIPPED} | {JobState.WAITING},
    **{state: frozenset[JobState]() for state in TERMINAL},
}


@dataclass(frozen=True, slots=True)
class Attempt:
    """One dispatch of a job. ``number`` counts dispatches of the job and fences out every earlier one.

    A job number is ``item × steps + step``: step 0 is the item's task, the others its evaluations. Those of
    sessions follow all items'. ``version`` is that of the message it came in.
    """

    run: str
    team: str
    job: int
    number: int
    lane: str
    version: int = field(default=MESSAGE_VERSION, compare=False)

    @property
    def id(self) -> str:
        return f"{self.team}/{self.run}/{self.job}/{self.number}"

    def to_message(self) -> dict[str, Any]:
        """The task message: names and numbers only, harmless wherever it is shown."""
        return {
            "v": MESSAGE_VERSION,
            "run": self.run,
            "team": self.team,
            "job": self.job,
            "number": self.number,
            "lane": self.lane,
        }

    @classmethod
    def from_message(cls, message: dict[str, Any]) -> Attempt:
        """Read a task message of any version: what names an attempt is in all of them, by these names.

        Unknown fields are passed over. Whoever may not execute a later ``version`` can so give it back.
        """
        return cls(
            run=str(message["run"]),
            team=str(message["team"]),
            job=int(message["job"]),
            number=int(message["number"]),
            lane=str(message["lane"]),
            version=int(message.get("v", 1)),
        )


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one call, as the provider counted them; ``None`` where it did not say.

    ``input_tokens`` is the whole prompt, whatever the protocol calls it. ``cached_tokens`` of them were read
    from the provider's cache; what was written to it is part of the prompt like the rest.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None

    @property
    def total(self) -> int | None:
        if self.input_tokens is None and self.output_tokens is None:
            return None
        return (self.input_tokens or 0) + (self.output_tokens or 0)


@dataclass(frozen=True, slots=True)
class Success:
    """A valid answer. A 200 may carry Retry-After too; it binds."""

    output: str
    usage: Usage = field(default_factory=Usage)
    finish_reason: str | None = None
    status: int = 200
    retry_after_ms: int | None = None
    hints: Hints | None = None


@dataclass(frozen=True, slots=True)
class RateLimited:
    """The provider said "too fast" (429 and its dialects). Costs no attempt."""

    message: str
    status: int = 429
    retry_after_ms: int | None = None
    hints: Hints | None = None


@dataclass(frozen=True, slots=True)
class Overloaded:
    """The provider has no capacity for anybody (503, 529, other 5xx). Costs an attempt."""

    message: str
    status: int
    retry_after_ms: int | None = None
    hints: Hints | None = None


@dataclass(frozen=True, slots=True)
class NetworkFailure:
    """No answer was had: connect, reset, DNS, TLS, protocol error. Counts towards the circuit."""

    message: str
    status: int | None = None
    retry_after_ms: int | None = None
    hints: Hints | None = None


@dataclass(frozen=True, slots=True)
class TimedOut:
    """The call's total deadline passed, or the provider said so (408, 504). Counts towards the circuit."""

    message: str
    status: int | None = None
    retry_after_ms: int | None = None
    hints: Hints | None = None


@dataclass(frozen=True, slots=True)
class InvalidResponse:
    """An answer that cannot be used: not JSON, schema violated, stream cut."""

    message: str
    status: int | None = None
    retry_after_ms: int | None = None
    hints: Hints | None = None


@dataclass(frozen=True, slots=True)
class PermanentFailure:
    """The request itself is refused (400, 404, 413, 422, content filter): trying again cannot help."""

    message: str
    status: int | None = None
    retry_after_ms: int | None = None
    hints: Hints | None = None


@dataclass(frozen=True, slots=True)
class AccessRefused:
    """Hard quota or bad credentials (401, 402, 403, ``insufficient_quota``): parks the lane."""

    message: str
    status: int | None = None
    reason: Literal["quota", "auth"] = "auth"
    retry_after_ms: int | None = None
    hints: Hints | None = None


@dataclass(frozen=True, slots=True)
class Aborted:
    """We broke the call off ourselves: the run was cancelled, the lease was lost, or the worker stops."""

    message: str
    status: int | None = None
    retry_after_ms: int | None = None
    hints: Hints | None = None


Outcome: TypeAlias = (
    Success
    | RateLimited
    | Overloaded
    | NetworkFailure
    | TimedOut
    | InvalidResponse
    | PermanentFailure
    | AccessRefused
    | Aborted
)
