"""Outcomes: the closed union of how one call to a provider may end, and the tokens that it used."""

from dataclasses import dataclass, field
from typing import ClassVar, Literal, TypeAlias

from fairlane.model.hints import Hints
from fairlane.model.tokens import Usage

NO_USAGE = Usage()
"""The usage of a call that the provider did not answer, or answered without a count of tokens."""


@dataclass(frozen=True, slots=True)
class Success:
    """A valid answer. ``retry_after_ms``: its Retry-After, where a limit of the lane has nothing left.

    ``output`` is empty where the limit of tokens was reached before any text, as a model's reasoning may do.
    ``left_out`` names parameters that were not sent, since the model does not support them.
    ``model`` is the one that answered, as the provider names it: it may be a version of the requested one.
    ``notes`` are for its record: what the output does not show.
    """

    output: str
    usage: Usage = field(default_factory=Usage)
    finish_reason: str | None = None
    status: int = 200
    retry_after_ms: int | None = None
    hints: Hints | None = None
    left_out: tuple[str, ...] = ()
    model: str | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Failure:
    """A call whose answer is not kept: the provider's message, and what came with it."""

    message: str
    status: int | None = None
    retry_after_ms: int | None = None
    hints: Hints | None = None


@dataclass(frozen=True, slots=True)
class _Uncounted(_Failure):
    """A failure for which the provider counts no tokens."""

    usage: ClassVar[Usage] = NO_USAGE


@dataclass(frozen=True, slots=True)
class RateLimited(_Uncounted):
    """The provider said "too fast" (429 and its dialects). Costs no attempt."""

    status: int = 429


@dataclass(frozen=True, slots=True)
class Overloaded(_Uncounted):
    """The provider has no capacity for anybody. Costs no attempt, counts towards the circuit.

    503, 529, or a 429 whose type or code says so.
    """

    status: int = 503


@dataclass(frozen=True, slots=True)
class ServerError(_Uncounted):
    """The provider failed (500, 502, other 5xx), altogether or at one request that it cannot serve.

    Also what it asks to be tried again: 409, 425, or ``x-should-retry: true``.
    """

    status: int = 500


@dataclass(frozen=True, slots=True)
class NetworkFailure(_Uncounted):
    """No answer arrived: connect, reset, DNS, TLS or protocol error. Counts towards the circuit.

    ``sent``: false where the provider was never reached, so that it can have charged for nothing.
    """

    sent: bool = True


@dataclass(frozen=True, slots=True)
class TimedOut(_Uncounted):
    """The call's total deadline passed, or the provider said so (408, 504). Counts towards the circuit.

    ``deadline_ms`` is the run's own deadline, if that ended the call: a short one proves no fault of the
    lane. ``after_ms``: how long the call took until the provider, or a proxy before it, reported the timeout.
    """

    deadline_ms: int | None = None
    after_ms: int | None = None


@dataclass(frozen=True, slots=True)
class InvalidResponse(_Failure):
    """An answer that violates its protocol: not JSON, empty, stream cut. Counts towards the circuit.

    ``usage`` has no output tokens where the answer was cut: the provider's count until then is incomplete.
    """

    usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True, slots=True)
class FlawedAnswer(_Failure):
    """A valid answer without text or without the requested form, or a function that asks to be called again.

    The lane has answered, so this always costs its job an attempt.
    """

    usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True, slots=True)
class PermanentFailure(_Failure):
    """The provider rejects the request itself (400, 404, 413, 422, content filter).

    Also a 429 whose message says that this one request asks for more than its limit ever admits. ``content``:
    because of this row's text, so it says nothing about other requests. ``doubtful``: it may be temporary,
    such as a 404 during a deployment, so the call is retried; otherwise a retry cannot help. ``of_proxy``: a
    proxy seems to answer; its server is down if the lane has answered before. ``textless``: the model
    answered, but without a text, as it will for other rows. ``usage`` has the tokens of a model that answered
    by declining, or without a text.
    """

    content: bool = False
    doubtful: bool = False
    of_proxy: bool = False
    textless: bool = False
    usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True, slots=True)
class UnsupportedParameter(_Failure):
    """The model does not support ``parameter``: the worker leaves it out of later calls. Costs no attempt.

    ``failure``: the outcome if the parameter is not to blame, which the next call, without it, will show. The
    lane learns from it as from any failure, since a server error may be an outage.
    """

    parameter: str = ""
    failure: PermanentFailure | ServerError | InvalidResponse | None = None

    @property
    def usage(self) -> Usage:
        """The tokens of ``failure``."""
        return NO_USAGE if self.failure is None else self.failure.usage


@dataclass(frozen=True, slots=True)
class AccessDenied:
    """Bad credentials or spent money (401, 402, 403, ``insufficient_quota``).

    It parks a lane that denies every call. On a lane that answers others, it costs its job an attempt.
    ``retry_after_ms``: until the provider grants access again, as it states.

    Types, codes or first words of a message show spent money, with any 4xx. A 403 on a lane of several models
    is a `PermanentFailure`: others may be served.
    """

    message: str
    status: int | None = None
    reason: Literal["quota", "auth"] = "auth"
    retry_after_ms: int | None = None
    hints: Hints | None = None
    usage: ClassVar[Usage] = NO_USAGE


@dataclass(frozen=True, slots=True)
class Aborted(_Uncounted):
    """Fairlane aborted the call: its run was cancelled, its lease was lost, or the worker stops. Or its
    result says nothing about the lane: the provider rejected a key (``status``) that has been replaced since.
    """


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
