"""Jobs and attempts: the unit of work, one try of it, and its report."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Literal
from urllib.parse import unquote

from fairlane.model.hints import Hints
from fairlane.model.tokens import NO_UNKEPT, Unkept, Usage

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


TERMINAL = frozenset(JobState) - {JobState.WAITING, JobState.LEASED}

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


Signal = Literal[
    "ok", "answered", "limited", "overloaded", "server_error", "broken", "refused", "none", "unsent", "absent"
]


@dataclass(frozen=True, slots=True)
class Feedback:
    """What a finished attempt teaches its lane.

    ``sent``: whether the request left its worker, so that the provider may have charged for it.
    ``deadline_ms`` is the run's deadline, if that alone ended the call. ``proxy_ms`` is how long the call
    took until the provider or its proxy timed it out. ``refusal`` names what the provider rejected of the
    request itself: equal for calls that it rejects alike.
    """

    signal: Signal
    usage: Usage = field(default_factory=Usage)
    retry_after_ms: int | None = None
    reason: str = ""
    hints: Hints | None = None
    deadline_ms: int | None = None
    refusal: str = ""
    sent: bool = True
    proxy_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Claim:
    """A granted claim: the attempts that the job has used, and how long its permit waited.

    ``attempts`` may exceed what the job has, since several failures may become attempts at once.

    ``unproven`` counts further calls that failed, and cost an attempt once the lane answers a later one.
    ``sendable``: whether the lane's rate and burst still allow the call, and ``good_ms`` for how long after
    the claim; 0: no limit. ``hold_ms``: for how long after the claim the call must wait, so that it leaves no
    sooner than the lane's limit allows. ``paused``: it is not sendable, since its run or its lane is paused.
    ``handle`` is the id of an asynchronous provider call that an earlier attempt started. ``rejected`` counts
    the job's 429s, 503s and 529s, ``alone`` those of them during which its lane answered others. ``own``:
    whether the job causes them, not its lane; with "last", one more ends the job. ``unkept`` has the answers
    that the job received and did not keep. ``control``: the lane rejects calls alike, so the attempt may
    repeat a request that was answered before, which shows whether the lane rejects all.
    """

    attempts: int
    rate_limits: int
    waited_ms: int
    handle: str | None = None
    sendable: bool = True
    good_ms: int = 0
    hold_ms: int = 0
    unproven: int = 0
    paused: bool = False
    rejected: int = 0
    alone: int = 0
    own: Literal["", "own", "last"] = ""
    unkept: Unkept = NO_UNKEPT
    control: bool = False

    def with_one_left(self, max_attempts: int) -> Claim:
        """The same claim with at least one of ``max_attempts`` left, for the call in progress."""
        return self if self.attempts < max_attempts else replace(self, attempts=max_attempts - 1)

    @classmethod
    def of(cls, reply: bytes | None) -> Claim | None:
        """Parse the reply of ``attempt_claim``; ``None`` if the attempt is stale."""
        if reply is None:
            return None
        claim = json.loads(reply)
        if "handle" in claim:
            claim["handle"] = unquote(claim["handle"])
        if "unkept" in claim:
            claim["unkept"] = Unkept.from_list(claim["unkept"])
        return cls(**claim)


@dataclass(frozen=True, slots=True)
class Reported:
    """An applied report: calls now in flight on the lane, news of the lane, whether the run has ended.

    ``exhausted``: the attempts used, if the job has none left. Then the report was not applied, and the
    attempt keeps its lease, so that its worker can finish the job. ``unawaited``: no job waits for the freed
    slot, since the lane's next call waits for its rate.
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
