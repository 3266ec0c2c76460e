"""Which other workers run a function: one that is not for this worker may be for another."""

from __future__ import annotations

from fairlane.store.keys import Keys
from fairlane.store.workers import Beat, read_beats
from fairlane_workers.batcher import Batcher
from fairlane_workers.functions.catalog import claims


class Roster:
    """The workers that beat, as Redis knows them."""

    def __init__(self, batcher: Batcher, keys: Keys, worker: str) -> None:
        self._batcher, self._keys, self._worker = batcher, keys, worker

    async def runs(self, function: str, lane: str) -> bool:
        """Whether another worker serves ``lane`` and claims that function. Raises `RedisError`."""
        found = await self._batcher.send(("HGETALL", self._keys.workers))
        stored = found if isinstance(found, dict) else dict(zip(found[::2], found[1::2], strict=True))
        return any(self._takes(beat, function, lane) for beat in read_beats(stored))

    def _takes(self, beat: Beat, function: str, lane: str) -> bool:
        info = beat.info
        other = beat.worker != self._worker and not info.stopping
        return other and lane in info.lanes and claims(info.modules, function)
