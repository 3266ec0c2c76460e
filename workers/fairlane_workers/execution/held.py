"""An attempt that this worker executes: its phase, and why it is aborted."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto

from fairlane.model.job import Attempt
from fairlane.model.outcome import Aborted, Outcome
from fairlane_workers.execution.inputs import JobInputs
from fairlane_workers.transport import Departure


class Phase(Enum):
    """The phase of an attempt, which tells whether it has a lease and uses a slot."""

    CLAIMING = auto()
    """It uses a slot and waits for its lease."""

    CLAIMED = auto()
    """It has its lease and uses a slot."""

    PENDING = auto()
    """It has its lease and uses no slot: the provider works on its call by itself."""


@dataclass(frozen=True, slots=True)
class Abort:
    """Why a call is aborted, or never made.

    ``requeues``: the job returns to its queue at no cost; otherwise the attempt has lost its lease.
    ``withdrawn``: the run was cancelled, so no later attempt will ask for the answer.
    """

    reason: str
    requeues: bool = False
    withdrawn: bool = False


@dataclass(slots=True)
class HeldAttempt:
    """An attempt that this worker executes.

    Only the call can be aborted: the executor waits for a claim or a report in flight, since Redis may
    already have acted on it. ``handle`` is the id of an asynchronous provider call that is still running.
    ``streams``: its call asks for a stream.
    """

    attempt: Attempt
    free_slot: Callable[[], None]
    phase: Phase = Phase.CLAIMING
    abort: Abort | None = None
    call: asyncio.Task[Outcome] | None = None
    handle: str | None = None
    streams: bool = False
    wire_ms: int | None = None
    departure: Departure | None = None
    inputs: JobInputs | None = None
    result: str = Aborted.__name__

    @property
    def withdrawn(self) -> bool:
        """Whether its run was cancelled."""
        return self.abort is not None and self.abort.withdrawn
