"""The scheduler's verbs on whole runs that execute: pause, resume, end early."""

import json
from collections.abc import Sequence

from fairlane.model.ending import Ending
from fairlane.model.run import RunRef, RunState
from fairlane.store.connection.connect import RedisClient
from fairlane.store.keys import Keys
from fairlane.store.run_queries import RunQueries, read_hostile, require_here
from fairlane.store.verbs import script
from fairlane.store.write.attempts import bound, named_keys
from fairlane.store.write.audit import UNNAMED, Act, Auditor

# The reply of `run_end` where a worker has just queued an evaluation on a lane that the call did not name.
LANE_NOT_NAMED = -2


RESTORED_AT_ONCE = 500


def restore_active(redis: RedisClient, keys: Keys, refs: Sequence[RunRef]) -> list[RunRef]:
    """Add those of ``refs`` that have not ended to the set of active runs. Returns them."""
    found: list[RunRef] = []
    for first in range(0, len(refs), RESTORED_AT_ONCE):
        some = refs[first : first + RESTORED_AT_ONCE]
        named = {"active": keys.active, "states": [keys.state(ref) for ref in some]}
        call = script("active_restore").bind(named, {"refs": json.dumps([str(ref) for ref in some])})
        found += [ref for ref, active in zip(some, call.run(redis), strict=True) if active]
    return found


class RunControl(RunQueries):
    """Controls running runs, for the leader: every verb is fenced by its epoch."""

    def __init__(self, redis: RedisClient, keys: Keys, auditor: Auditor = UNNAMED) -> None:
        super().__init__(redis, keys)
        self._auditor = auditor

    def pause(self, ref: RunRef, by: str, epoch: int, now_ms: str | int = "") -> bool:
        """Pause a running run; false if it is not running, or is already paused."""
        audit, keys = self._asked(Act.RUN_PAUSED, ref, by), named_keys(self.keys, ref)
        call = bound("run_pause", keys, now_ms=now_ms, epoch=epoch, by=by, audit=audit)
        return bool(call.run(self.redis) == 1)

    def resume(self, ref: RunRef, by: str, epoch: int, now_ms: str | int = "") -> bool:
        """Resume a paused run and wake its lanes; false if it is not paused."""
        audit, keys = self._asked(Act.RUN_RESUMED, ref, by), named_keys(self.keys, ref)
        call = bound("run_resume", keys, now_ms=now_ms, epoch=epoch, audit=audit)
        return bool(call.run(self.redis) == 1)

    def require_here(self, ref: RunRef) -> None:
        """Raises `RunNotFound` for a run that has expired, and `RunArchived` for one that has been moved.

        One whose state has a wrong type passes: its readers name that key.
        """
        state = self.keys.state(ref)
        found = read_hostile(lambda: self.redis.hmget(state, "state", "archived"))
        if found is not None:
            require_here(ref, *found)

    def end(
        self, ref: RunRef, lanes: Sequence[str], ending: Ending, epoch: int, now_ms: str | int = ""
    ) -> int:
        """End a run early; ``lanes``: all lanes. Returns how many jobs had not ended, -1 if it is not
        running.
        """
        known = set(lanes)
        while True:
            known |= self.lanes(ref)
            left = self._end(ref, sorted(known), ending, epoch, now_ms)
            if left != LANE_NOT_NAMED:
                return left

    def _end(self, ref: RunRef, lanes: Sequence[str], ending: Ending, epoch: int, now_ms: str | int) -> int:
        keys = self.keys
        owned = [
            name
            for lane in lanes
            for name in (keys.lane(lane), keys.in_flight(lane), keys.hot(ref, lane), keys.fresh(ref, lane))
        ]
        call = bound(
            "run_end",
            named_keys(keys, ref, lanes=owned),
            now_ms=now_ms,
            epoch=epoch,
            names=json.dumps(list(lanes)),
            state=ending.state,
            unfinished=ending.unfinished,
            reason=ending.reason,
            audit=self._ended(ref, ending),
        )
        return int(call.run(self.redis))

    def _asked(self, act: Act, ref: RunRef, by: str) -> str:
        """The audit entry of a team's request, with the person whom its client names."""
        return self._auditor.of_team(act, ref.team, ref.run, **({"by": by} if by else {}))

    def _ended(self, ref: RunRef, ending: Ending) -> str:
        """The audit entry: a team cancels a run; the scheduler ends one early for any other reason."""
        if ending.state is RunState.CANCELLED:
            return self._auditor.of_team(Act.CANCELLED, ref.team, ref.run)
        details = {"state": ending.state, "reason": ending.reason}
        return self._auditor.entry(Act.ENDED, ref.run, ref.team, **details)
