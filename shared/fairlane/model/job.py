"""Jobs, attempts and outcomes: the unit of work, one try of it, the result of that try, and its report."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Literal, TypeAlias
from urllib.parse import unquote

from fairlane.model.hints import Hints

MESSAGE_VERSION = 1


class JobState(StrEnum):
    """The state of a job. The last six are terminal; `TRANSITIONS` is the whole graph."""

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

    A job number is ``item × steps + step``: step 0 is the item's task, the others its evaluations. The jobs
    of sessions follow those of all items. ``version`` is the version of the message that carried it.
    """

    run: str
    team: str
    job: int
    number: int
    lane: str
    version: int = field(default=MESSAGE_VERSION, compare=False)

    @property
    def id(self) -> str:
        """``team/run/job/number``, unique in a deployment."""
        return f"{self.team}/{self.run}/{self.job}/{self.number}"

    @property
    def labels(self) -> dict[str, Any]:
        """Its names in log lines. `RunSpec.labels` or `Step.labels` add those of an agent's evaluation."""
        return {
            "run": self.run,
            "job": self.job,
            "lane": self.lane,
            "team": self.team,
            "attempt": self.number,
        }

    def to_message(self) -> dict[str, Any]:
        """The task message: names and numbers only, so that any tool may show it."""
        return {
            "v": self.version,
            "run": self.run,
            "team": self.team,
            "job": self.job,
            "number": self.number,
            "lane": self.lane,
        }

    @classmethod
    def from_message(cls, message: dict[str, Any]) -> Attempt:
        """Read a task message of any version: all versions name an attempt by these fields.

        Unknown fields are ignored. So a worker that cannot execute a newer ``version`` can still requeue it.
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
    """Tokens of one call, as the provider counted them; ``None`` for a count that it did not report.

    ``input_tokens`` is the whole prompt in every protocol. The provider read ``cached_tokens`` of them from
    its cache; tokens that it wrote to the cache count as ordinary input.
    """

    input_tokens: int | None = None
    output_tokens: int | None = None
    cached_tokens: int | None = None

    @property
    def total(self) -> int | None:
        """Input and output together; ``None`` if the provider reported neither."""
        if self.input_tokens is None and self.output_tokens is None:
            return None
        return (self.input_tokens or 0) + (self.output_tokens or 0)


@dataclass(frozen=True, slots=True)
class Success:
    """A valid answer. A 200 may carry Retry-After; the lane obeys it.

    ``left_out`` names parameters that were not sent, since the model does not support them.
    ``model`` is the one that answered, as the provider names it: it may be a version of the requested one.
    """

    output: str
    usage: Usage = field(default_factory=Usage)
    finish_reason: str | None = None
    status: int = 200
    retry_after_ms: int | None = None
    hints: Hints | None = None
    left_out: tuple[str, ...] = ()
    model: str | None = None


@dataclass(frozen=True, slots=True)
class RateLimited:
    """The provider said "too fast" (429 and its dialects). Costs no attempt."""

    message: str
    status: int = 429
    retry_after_ms: int | None = None
    hints: Hints | None = None


@dataclass(frozen=True, slots=True)
class Overloaded:
    """The provider has no capacity for anybody (503, 529). Costs no attempt, counts towards the circuit."""

    message: str
    status: int
    retry_after_ms: int | None = None
    hints: Hints | None = None


@dataclass(frozen=True, slots=True)
class ServerError:
    """The provider failed (500, 502, other 5xx), altogether or at one request that it cannot serve."""

    message: str
    status: int
    retry_after_ms: int | None = None
    hints: Hints | None = None


@dataclass(frozen=True, slots=True)
class NetworkFailure:
    """No answer arrived: connect, reset, DNS, TLS or protocol error. Counts towards the circuit."""

    message: str
    status: int | None = None
    retry_after_ms: int | None = None
    hints: Hints | None = None


@dataclass(frozen=True, slots=True)
class TimedOut:
    """The call's total deadline passed, or the provider said so (408, 504). Counts towards the circuit.

    ``deadline_ms`` is the run's own deadline, if that ended the call: one that is too short for the lane says
    nothing about it.
    """

    message: str
    status: int | None = None
    retry_after_ms: int | None = None
    hints: Hints | None = None
    deadline_ms: int | None = None


@dataclass(frozen=True, slots=True)
class InvalidResponse:
    """An answer that violates its protocol: not JSON, empty, stream cut. Counts towards the circuit."""

    message: str
    status: int | None = None
    retry_after_ms: int | None = None
    hints: Hints | None = None


@dataclass(frozen=True, slots=True)
class FlawedAnswer:
    """A valid answer whose text lacks the requested form, or a function that asks to be called again.

    The lane has answered, so this always costs its job an attempt.
    """

    message: str
    status: int | None = None
    retry_after_ms: int | None = None
    hints: Hints | None = None
    usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True, slots=True)
class PermanentFailure:
    """The provider rejects the request itself (400, 404, 413, 422, content filter): a retry cannot help.

    ``content``: because of this row's text, so it says nothing about other requests.
    """

    message: str
    status: int | None = None
    retry_after_ms: int | None = None
    hints: Hints | None = None
    content: bool = False


@dataclass(frozen=True, slots=True)
class UnsupportedParameter:
    """The model does not support ``parameter``: the worker leaves it out of later calls. Costs no attempt."""

    message: str
    status: int | None = None
    retry_after_ms: int | None = None
    hints: Hints | None = None
    parameter: str = ""


@dataclass(frozen=True, slots=True)
class AccessDenied:
    """Hard quota or bad credentials (401, 402, 403, ``insufficient_quota``): parks the lane.

    A 403 on a lane that several models share is a `PermanentFailure`: others may be served.
    """

    message: str
    status: int | None = None
    reason: Literal["quota", "auth"] = "auth"
    retry_after_ms: int | None = None
    hints: Hints | None = None


@dataclass(frozen=True, slots=True)
class Aborted:
    """Fairlane broke the call off: its run was cancelled, its lease was lost, or the worker stops."""

    message: str
    status: int | None = None
    retry_after_ms: int | None = None
    hints: Hints | None = None


Outcome: TypeAlias = (
    Success
    | RateLimited
    | Overloaded
    | ServerError
    | NetworkFailure
    | TimedOut
    | InvalidResponse
    | FlawedAnswer
    | PermanentFailure
    | UnsupportedParameter
    | AccessDenied
    | Aborted
)


Signal = Literal[
    "ok", "answered", "limited", "overloaded", "server_error", "broken", "refused", "none", "unsent"
]


@dataclass(frozen=True, slots=True)
class Lesson:
    """What a finished attempt teaches its lane.

    ``deadline_ms`` is the run's deadline, if only that ended the call. ``refusal`` names what the provider
    rejected of the request itself: equal for calls that it rejects alike.
    """

    signal: Signal
    usage: Usage = field(default_factory=Usage)
    retry_after_ms: int | None = None
    reason: str = ""
    hints: Hints | None = None
    deadline_ms: int | None = None
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class Claim:
    """A granted claim: the attempts that the job has used, and how long its permit waited.

    ``attempts`` may exceed what the job has, since several failures may become attempts at once.

    ``unproven`` counts further calls that failed, and cost an attempt once the lane answers a later one.
    ``sendable``: whether the lane's rate and burst still allow the call, and ``good_ms`` for how long after
    the claim; 0 is for ever. ``paused``: it is not sendable since its run or its lane is paused.
    ``handle`` is the id of an asynchronous provider call that an earlier attempt started.
    """

    attempts: int
    rate_limits: int
    waited_ms: int
    handle: str | None = None
    sendable: bool = True
    good_ms: int = 0
    unproven: int = 0
    paused: bool = False

    def with_one_left(self, max_attempts: int) -> Claim:
        """The same claim with one of the job's ``max_attempts`` left at least: it is being called."""
        return replace(self, attempts=min(self.attempts, max_attempts - 1))

    @classmethod
    def of(cls, reply: bytes | None) -> Claim | None:
        """Parse the reply of ``attempt_claim``; ``None`` if the attempt is stale."""
        if reply is None:
            return None
        claim = json.loads(reply)
        handle = claim.get("handle")
        return cls(
            claim["attempts"],
            claim["rate_limits"],
            claim["waited_ms"],
            handle and unquote(handle),
            claim["sendable"],
            claim["good_ms"],
            claim["unproven"],
            claim.get("paused", False),
        )


@dataclass(frozen=True, slots=True)
class Reported:
    """An applied report: calls now in flight on the lane, news of the lane, whether the run has ended.

    ``exhausted``: the report was not applied, since the job has used all its attempts, which are so many. The
    attempt keeps its lease, so that its worker can finish the job.

    ``unawaited``: what the report freed was awaited by nobody, since the lane's next call waits for its rate.
    """

    in_flight: int
    news: str
    finished: bool
    exhausted: int = 0
    unawaited: bool = False

    @classmethod
    def of(cls, reply: bytes | None) -> Reported | None:
        """Parse the reply of ``attempt_finish`` or ``attempt_defer``; ``None`` if the report was late."""
        return None if reply is None else cls(**json.loads(reply))
