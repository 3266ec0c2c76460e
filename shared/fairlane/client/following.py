"""What a handle remembers while it follows its run: is it held, is it lost, which items were seen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlane.client.deployment import LONGEST_WAIT_S, SHORTEST_WAIT_S, Deployment
from fairlane.client.progress import ProgressView
from fairlane.client.standstill import Standstill
from fairlane.core.errors import RunLost
from fairlane.model.run import RunRef, RunState, RunStatus

if TYPE_CHECKING:
    from fairlane.client.handle import Run

LOST_AFTER_MS = 5000
"""A submission waits for less, as a rule; from then on its request is looked for every five seconds."""


class Held:
    """Notices that a run will not go on by itself: refusals hold it, and nothing of it is in flight."""

    def __init__(self, run: Run) -> None:
        self._run, self._seen = run, -1

    def by(self, status: RunStatus) -> bool:
        """Whether ``status`` is that of a held run; asks only where two looks in turn are alike."""
        still = bool(status.rejections) and status.paused is None and not status.in_flight
        before, self._seen = self._seen, status.jobs_done if still else -1
        return still and before == status.jobs_done and self._run.is_held()


class Seen:
    """Remembers which items were yielded, one bit each."""

    def __init__(self) -> None:
        self._bits = bytearray()

    def add(self, item: int) -> bool:
        """Whether ``item`` is new."""
        byte, bit = item >> 3, 1 << (item & 7)
        if byte >= len(self._bits):
            self._bits.extend(bytes(max(byte + 1 - len(self._bits), len(self._bits))))
        if self._bits[byte] & bit:
            return False
        self._bits[byte] |= bit
        return True


class Submission:
    """Notices that a submission was lost, so that nobody waits for it for ever."""

    def __init__(self, deployment: Deployment, ref: RunRef) -> None:
        self._deployment, self._ref = deployment, ref
        self._next_ms = deployment.clock.monotonic_ms() + LOST_AFTER_MS

    def check(self) -> None:
        """Raise `RunLost` for a run that is still submitted after a while, if nothing asks for it."""
        if self._deployment.clock.monotonic_ms() < self._next_ms:
            return
        self._next_ms = self._deployment.clock.monotonic_ms() + LOST_AFTER_MS
        if self._deployment.patience().ask(lambda: self._deployment.runs.is_lost(self._ref)):
            raise RunLost(self._ref.run, "the request to start it")


def draw(view: ProgressView, status: RunStatus | None, silence_s: float, standstill: Standstill) -> None:
    """Show the status, and why nothing happens; or for how long Redis has been silent."""
    if status is None:
        view.silent(silence_s)
    else:
        view.show(status, standstill.words(status))


def longest_pause(status: RunStatus | None) -> float:
    """Look often when the run may end at any moment: everything that is left is in flight."""
    if status and status.state is RunState.RUNNING and status.in_flight >= status.jobs - status.jobs_done:
        return SHORTEST_WAIT_S
    return LONGEST_WAIT_S
