"""Finds out by calls, not by error messages, whether a model takes the form that Fairlane added to them."""

from dataclasses import dataclass, field, replace
from typing import TypeGuard

from fairlane.core.clock import Clock
from fairlane.core.lru import Lru
from fairlane.model.decision import without_ids
from fairlane.model.outcome import (
    InvalidResponse,
    Outcome,
    PermanentFailure,
    ServerError,
    Success,
    UnsupportedParameter,
)
from fairlane_workers.providers.contract import Request
from fairlane_workers.providers.unsupported.wording import as_json

MOST_FORMS, MOST_REQUESTS, MOST_WORDS = 256, 4096, 16
"""Bounds of the worker's memory: a row's template may name any model, and a rejection have any words."""

_OTHER_STATUSES = frozenset({401, 402, 403, 408, 429})
"""Rejections of a key, of an account and of a rate."""


@dataclass(slots=True)
class _Known:
    """What is known of one form and one model."""

    taken_until_ms: int = 0
    lacking_until_ms: int = 0
    rejected: Lru[int, str] = field(default_factory=lambda: Lru(MOST_REQUESTS))
    """Requests whose call with the form was rejected, and the words: their next calls go without it."""
    unrelated: Lru[str, int] = field(default_factory=lambda: Lru(MOST_WORDS))
    """Words with which calls without the form are rejected, too, and until when that counts."""
    broke_until_ms: int = 0
    """A call with the form met a server error. Until then calls go without it, but for one that decides."""
    answered_without: bool = False
    """A call without the form was answered meanwhile, so the next call with the form decides."""
    deciding: bool = False


@dataclass(slots=True)
class Trial:
    """One call: ``request`` as it is sent, the ``names`` of its form, and those that are ``left_out``."""

    request: Request
    names: tuple[str, ...]
    known: _Known
    left_out: tuple[str, ...] = ()
    digest: int | None = None
    decides: bool = False
    reason: str = ""  # the words of the failure that was the form's


class FormTrials:
    """Tries calls without the form that Fairlane added, until a model has answered one with it.

    A rejection (4xx), a server error or an unreadable answer may be the form's fault or another's, and its
    words do not tell: no list of them ends. So the next call goes without the form. If a rejected request is
    answered without it, the model lacks that form for a while. If that fails alike, the failure was another,
    and its words start no further trial. Server errors pass by themselves, so after an answer without the
    form one call with it decides.
    """

    def __init__(self, clock: Clock, kept_ms: int) -> None:
        """``kept_ms``: how long what a call taught holds."""
        self._clock, self._kept_ms = clock, kept_ms
        self._forms: Lru[tuple[str, int], _Known] = Lru(MOST_FORMS)

    def begin(self, request: Request) -> Trial | None:
        """How to make this call; ``None`` if Fairlane added no form to it."""
        names = tuple(sorted((request.optional & request.params.keys()) - {"stream"}))
        if not names:
            return None
        form = hash(as_json([request.params[name] for name in names]))
        known = self._forms.get_or_make((request.model, form), _Known)
        now_ms = self._clock.monotonic_ms()
        digest = _digest(request) if len(known.rejected) else None
        rejected, broke = digest is not None and digest in known.rejected, now_ms < known.broke_until_ms
        decides = broke and known.answered_without and not known.deciding and not rejected
        if now_ms < known.lacking_until_ms or rejected or (broke and not decides):
            params = {name: value for name, value in request.params.items() if name not in names}
            return Trial(replace(request, params=params), names, known, names, digest if rejected else None)
        known.deciding = known.deciding or decides
        return Trial(request, names, known, digest=digest, decides=decides)

    def abandon(self, trial: Trial) -> None:
        """Note that the call was aborted, and shows nothing."""
        if trial.decides:
            trial.known.deciding = False

    def conclude(self, trial: Trial, outcome: Outcome) -> tuple[Outcome, bool]:
        """The outcome of the call, and whether the model has just turned out to lack the form.

        A failure that may be the form's becomes `UnsupportedParameter`, with what it is otherwise.
        """
        self.abandon(trial)
        if trial.left_out:
            return self._without(trial, outcome)
        return self._with(trial, outcome)

    def _with(self, trial: Trial, outcome: Outcome) -> tuple[Outcome, bool]:
        known, now_ms = trial.known, self._clock.monotonic_ms()
        if isinstance(outcome, Success):
            known.taken_until_ms, known.broke_until_ms = now_ms + self._kept_ms, 0
            known.answered_without = False
            known.rejected = Lru(MOST_REQUESTS)
            return outcome, False
        if now_ms < known.taken_until_ms:
            return outcome, False
        if isinstance(outcome, ServerError | InvalidResponse):
            if trial.decides:
                return _undecided(trial, outcome), self._note_lack(trial, outcome.message)
            known.broke_until_ms = now_ms + self._kept_ms
            return _undecided(trial, outcome), False
        if not _rejects(outcome):
            return outcome, False
        words = _words(outcome)
        if now_ms < (known.unrelated.get(words) or 0):
            return outcome, False
        known.rejected.put(_digest(trial.request) if trial.digest is None else trial.digest, words)
        return _undecided(trial, outcome), False

    def _without(self, trial: Trial, outcome: Outcome) -> tuple[Outcome, bool]:
        known, now_ms = trial.known, self._clock.monotonic_ms()
        if isinstance(outcome, Success):
            known.answered_without = now_ms < known.broke_until_ms
            open_still = now_ms >= max(known.lacking_until_ms, known.taken_until_ms)
            if open_still and trial.digest is not None:
                return outcome, self._note_lack(trial, known.rejected.get(trial.digest) or "")
        elif trial.digest is not None and _rejects(outcome):
            words = _words(outcome)
            if known.rejected.get(trial.digest) == words:
                known.unrelated.put(words, now_ms + self._kept_ms)
            known.rejected.drop(trial.digest)
        return outcome, False

    def _note_lack(self, trial: Trial, reason: str) -> bool:
        known, trial.reason = trial.known, reason
        known.lacking_until_ms, known.broke_until_ms = self._clock.monotonic_ms() + self._kept_ms, 0
        known.answered_without = False
        known.rejected = Lru(MOST_REQUESTS)
        return True


def _undecided(
    trial: Trial, outcome: PermanentFailure | ServerError | InvalidResponse
) -> UnsupportedParameter:
    return UnsupportedParameter(
        outcome.message,
        outcome.status,
        outcome.retry_after_ms,
        outcome.hints,
        trial.names[0],
        failure=outcome,
    )


def _rejects(outcome: Outcome) -> TypeGuard[PermanentFailure]:
    """Whether the provider rejects the request, and neither its key nor its rate."""
    status = outcome.status if isinstance(outcome, PermanentFailure) else None
    return status is not None and 400 <= status < 500 and status not in _OTHER_STATUSES


def _words(outcome: PermanentFailure) -> str:
    return f"{outcome.status} {without_ids(outcome.message)}"


def _digest(request: Request) -> int:
    """Names a request: the next call of its job has the same messages and parameters."""
    return hash(as_json([request.messages, request.params]))
