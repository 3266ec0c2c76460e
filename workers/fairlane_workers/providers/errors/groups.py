"""Reads exception groups, as ``asyncio.TaskGroup`` raises them; their leaves are the actual errors."""

from asyncio import CancelledError
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from fairlane.model.outcome import (
    NetworkFailure,
    Outcome,
    Overloaded,
    PermanentFailure,
    RateLimited,
    ServerError,
    TimedOut,
)
from fairlane_workers.providers.errors.wording import bounded

MOST_LEAVES = 100
"""Errors of one group that are read: a task group has one for each call that failed."""

_QUOTED = 3
"""Errors of a group that its message quotes."""

# Which kind decides in a group of several: errors that no retry helps, then those with the longest wait.
_WEIGHTS = (RateLimited, Overloaded, ServerError, TimedOut, NetworkFailure)


def leaves(error: BaseException) -> list[BaseException]:
    """The errors in a group and in the groups within it, in their order; of any other error itself.

    A cancellation among other errors only follows from them, and is left out. `MOST_LEAVES` at most.
    """
    found: list[BaseException] = []
    for leaf in _walk(error):
        if not isinstance(leaf, CancelledError):
            found.append(leaf)
        if len(found) == MOST_LEAVES:
            break
    return found or [next(_walk(error))]


def _walk(error: BaseException) -> Iterator[BaseException]:
    waiting = [error]
    while waiting:
        each = waiting.pop()
        if isinstance(each, BaseExceptionGroup):
            waiting.extend(reversed(each.exceptions))
        else:
            yield each


def outcome_of_group(
    errors: Sequence[BaseException], outcome_of: Callable[[BaseException], Outcome]
) -> Outcome:
    """The outcome that decides over those of all ``errors``, with a message that quotes the first of them.

    One that fails for good decides, since a retry would meet it again. Then come rate limits, and of several
    the one that names the longest wait.
    """
    outcomes = [outcome_of(each) for each in errors]
    decides = max(outcomes, key=_weight)
    if len(outcomes) == 1:
        return decides
    quoted = dict.fromkeys([_message(decides), *map(_message, outcomes)])
    words = "; ".join([*quoted][:_QUOTED])
    return replace(decides, message=bounded(f"{len(errors)} errors in a group: {words}"))  # type: ignore[arg-type]


def _weight(outcome: Outcome) -> tuple[int, int]:
    if isinstance(outcome, PermanentFailure):
        return len(_WEIGHTS) + 2 - outcome.doubtful, 0
    wait_ms = getattr(outcome, "retry_after_ms", None) or 0
    kind = next((place for place, kind in enumerate(_WEIGHTS) if isinstance(outcome, kind)), len(_WEIGHTS))
    return len(_WEIGHTS) - kind, wait_ms


def _message(outcome: Outcome) -> str:
    return str(getattr(outcome, "message", ""))
