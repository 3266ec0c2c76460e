"""Deletes shared keys whose type somebody has changed, so that they are made again: their content is lost."""

from contextlib import suppress

from fairlane.core.errors import LaneNotFound
from fairlane.core.events import Event
from fairlane.store.keys import Stored
from fairlane.store.read.mistyped import Mistyped, mistyped_of_deployment, mistyped_of_shared
from fairlane.store.write.lanes.lanes import Lanes
from fairlane.store.write.leader import discard_mistyped
from fairlane.telemetry.logs import get_logger

log = get_logger("scheduler")


class SharedKeys(Stored):
    """Deletes such keys, which are rebuilt as after their loss. A team's budget waits for an operator.

    A lane that lost its limits gets those of the configuration and is paused: others may have been set.
    """

    def discard(self, *, all_lanes: bool) -> bool:
        """Delete those of a wrong type; true if there were any. Without ``all_lanes`` only the deployment's.

        Raises `RedisError`.
        """
        look = mistyped_of_shared if all_lanes else mistyped_of_deployment
        budgets = self._keys.budget("*").partition("*")
        found = look(self._redis, self._keys)
        wrong = [
            each for each in found if not (each.key.startswith(budgets[0]) and each.key.endswith(budgets[2]))
        ]
        return sum(map(self._discard, wrong)) > 0

    def _discard(self, wrong: Mistyped) -> bool:
        before, _, after = self._keys.limits("*").partition("*")
        if wrong.key.startswith(before) and wrong.key.endswith(after):
            lane = wrong.key.removeprefix(before).removesuffix(after)
            with suppress(LaneNotFound):  # the next call creates it anew
                Lanes(self._redis, self._keys).pause(lane)
            self._redis.hdel(self._keys.configured, lane)
        if not discard_mistyped(self._redis, wrong.key, wrong.wanted):
            return False
        log.error(Event.KEY_DISCARDED, key=wrong.key, found=wrong.found, wanted=wrong.wanted)
        return True
