"""What a handle remembers while it follows its run: whether refusals hold it, and which items it has seen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fairlane.model.run import RunStatus

if TYPE_CHECKING:
    from fairlane.client.handle import Run


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
