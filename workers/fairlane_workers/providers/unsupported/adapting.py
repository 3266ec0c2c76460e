"""Learns which parameters each model of a connection does not support, and leaves them out of later calls."""

from collections.abc import Mapping
from dataclasses import replace
from typing import TypeAlias

from fairlane.core.clock import Clock, SystemClock
from fairlane.core.events import Event
from fairlane.core.lru import Lru
from fairlane.model.outcome import (
    AccessDenied,
    Outcome,
    PermanentFailure,
    ServerError,
    Success,
    UnsupportedParameter,
)
from fairlane.telemetry.logs import get_logger
from fairlane_workers.providers.contract import OnChunk, Provider, Request
from fairlane_workers.providers.unsupported.forms import FormTrials
from fairlane_workers.providers.unsupported.wording import (
    SAMPLING,
    Unsupported,
    read_unstreamable,
    read_unsupported,
)

KEPT_MS = 3_600_000
"""A model may learn a parameter, or its name may lead to another model: after an hour, one call finds out."""

MOST_MODELS, MOST_OF_A_MODEL = 256, 16
"""Bounds of the worker's memory: a row's template may name any model, and a run any value."""

_STATUSES = frozenset({400, 422})
_UNSTREAMED = frozenset({400, 403, 404, 405, 422, 501})
"""Of rejected streams: some have an address, or a permission, of their own."""

Refused: TypeAlias = PermanentFailure | AccessDenied | ServerError

log = get_logger("provider")


class AdaptingProvider:
    """A `Provider` that leaves out of a request what its model has named as unsupported.

    The rejected call itself ends as `UnsupportedParameter`: its job needs another permit, and no attempt. A
    call that goes through without a parameter says so in ``Success.left_out``. What one call teaches applies
    to all calls of the connection to that model, in this worker, and changes nothing else of them.

    The same holds for what makes an answer stream, unless the run or the connection asks for it. Whether a
    model takes the form that Fairlane added to a call is found out by calls (`FormTrials`).
    """

    def __init__(
        self, connection: str, provider: Provider, clock: Clock | None = None, *, logs: bool = True
    ) -> None:
        """``logs``: whether what is learned is logged; a command that prints a report has no log."""
        self._connection, self._provider, self._logs = connection, provider, logs
        self._clock = clock or SystemClock()
        self._known: Lru[str, dict[Unsupported, int]] = Lru(MOST_MODELS)
        self._trials = FormTrials(self._clock, KEPT_MS)

    def __repr__(self) -> str:
        return repr(self._provider)

    async def call(self, request: Request, on_chunk: OnChunk | None = None) -> Outcome:
        """See `Provider.call`."""
        left_out: tuple[str, ...] = ()
        if self._known:
            request, left_out = self._without_unsupported(request)
        outcome, without = await self._tried(request, on_chunk)
        left_out += without
        if isinstance(outcome, Success) and left_out:
            return replace(outcome, left_out=left_out)
        return outcome

    async def prepare(self) -> None:
        """See `Provider.prepare`."""
        await self._provider.prepare()

    async def aclose(self) -> None:
        """See `Provider.aclose`."""
        await self._provider.aclose()

    async def _tried(self, request: Request, on_chunk: OnChunk | None) -> tuple[Outcome, tuple[str, ...]]:
        """Make the call, and learn from its outcome. Returns that, and what of its form was left out."""
        trial = self._trials.begin(request)
        if trial is None:
            outcome = await self._provider.call(request, on_chunk)
            return self._read(request, outcome) or outcome, ()
        try:
            outcome = await self._provider.call(trial.request, on_chunk)
        except BaseException:
            self._trials.abandon(trial)
            raise
        if learned := self._read(trial.request, outcome):
            self._trials.abandon(trial)
            return learned, trial.left_out
        outcome, lacks = self._trials.conclude(trial, outcome)
        if lacks:
            self._log(request.model, Unsupported(trial.names[0]), trial.reason)
        return outcome, trial.left_out

    def _read(self, request: Request, outcome: Outcome) -> Outcome | None:
        """The outcome of a rejection whose words name what to leave out; ``None`` for all others."""
        if isinstance(outcome, Refused) and (found := _found(request, outcome)):
            return self._learned(request, outcome, found)
        return None

    def _without_unsupported(self, request: Request) -> tuple[Request, tuple[str, ...]]:
        """The request as the model takes it, and the names of what was left out."""
        known, added = self._of(request.model), _added(request)
        streaming = [each.name for each in known if each.name in added]
        concerned = [each for each in known if _may_change(each, request) and each.concerns(request.params)]
        if not (streaming or concerned):
            return request, ()
        params = dict(request.params)
        if "stream_options" in streaming:
            params["stream_options"] = None
        for each in concerned:
            value = params.pop(each.name)
            if each.instead is not None:
                params.setdefault(each.instead, value)
        if "tools" in request.params and "tools" not in params:
            params.pop("tool_choice", None)  # there is none to choose
        left_out = tuple(each.name for each in concerned if each.instead is None)
        stream = request.stream and "stream" not in streaming
        return replace(request, params=params, stream=stream), left_out

    def _learned(self, request: Request, refused: Refused, found: Unsupported) -> Outcome:
        """The outcome of a rejection that ``found`` caused: the call is made again."""
        known = dict(self._of(request.model))
        if found not in known:
            self._log(request.model, found, refused.message)
        known.pop(found, None)
        while len(known) >= MOST_OF_A_MODEL:
            known.pop(next(iter(known)))  # the oldest
        known[found] = self._clock.monotonic_ms() + KEPT_MS
        self._known.put(request.model, known)
        return UnsupportedParameter(
            refused.message, refused.status, refused.retry_after_ms, refused.hints, found.name
        )

    def _log(self, model: str, found: Unsupported, reason: str) -> None:
        if self._logs:
            log.warning(
                Event.PARAMETER_UNSUPPORTED,
                connection=self._connection,
                model=model,
                parameter=found.name,
                value=found.value,
                instead=found.instead,
                reason=reason,
            )

    def _of(self, model: str) -> Mapping[Unsupported, int]:
        """What is known of a model and has not expired."""
        known = self._known.get(model)
        if known is None:
            return {}
        now_ms = self._clock.monotonic_ms()
        if any(until_ms <= now_ms for until_ms in known.values()):
            known = {each: until_ms for each, until_ms in known.items() if until_ms > now_ms}
            self._known.put(model, known)
        return known


def _found(request: Request, refused: Refused) -> Unsupported | None:
    """What caused a rejection, if the request can do without it."""
    added = _added(request) if refused.status in _UNSTREAMED else frozenset()
    found = read_unstreamable(refused.message, added)
    if found is None and isinstance(refused, PermanentFailure) and refused.status in _STATUSES:
        return read_unsupported(refused.message, request.params, request.optional)
    return found


def _added(request: Request) -> frozenset[str]:
    """Parameters that were added to the request only so that the answer streams."""
    if not request.stream:
        return frozenset()
    options = {"stream_options"} - request.params.keys()
    return frozenset(options | ({"stream"} & request.optional))


def _may_change(each: Unsupported, request: Request) -> bool:
    """Whether this request can do without it: a form that the run itself asks for stays."""
    return each.name in request.optional or each.name in SAMPLING or each.instead is not None
