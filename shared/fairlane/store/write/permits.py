"""Permits of lanes in Redis: the offers of runs, and a lane's grants."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from fairlane.core.lru import Lru
from fairlane.model.run import RunRef
from fairlane.model.tokens import Entry, Estimate
from fairlane.store.connection.connect import RedisClient
from fairlane.store.keys import Keys
from fairlane.store.script import Functions, Placed
from fairlane.store.verbs import script
from fairlane.store.write.attempts import named_keys

BILLION = 10**9  # shares are kept in billionths
LANES_KEPT = 1024  # lanes whose encoded keys are cached


class Offer(NamedTuple):
    """A run that may take up to ``most`` permits in turn.

    ``ahead``: most items whose task has started and whose evaluations have not ended; 0: any number.
    ``first``: most first calls to a model until one is answered or enough time has passed; 0: any number.
    """

    ref: RunRef
    most: int
    ahead: int = 0
    first: int = 0


class ReservedShare(NamedTuple):
    """A team's parts of a lane, from 0 to 1. ``own`` is reserved for the team, even while unused; ``most`` is
    the most that it may take.
    """

    own: float = 0.0
    most: float = 1.0


class DelayedRun(NamedTuple):
    """A run that a bound, a budget or a share delays on a lane until ``until_ms`` (server time; 0: woken).

    ``over``: of its own budget the field, the most that the next call may use, and what is left.
    """

    offer: int
    bound: str
    until_ms: int
    in_flight: int
    over: Sequence[Any] = ()


class Permit(NamedTuple):
    """A granted attempt: its offer's index, its dispatch number and its entry in the queue. ``share``: its
    dominant share of the lane in minutes, which its team is charged.
    """

    offer: int
    number: int
    entry: Entry
    share: float = 0.0

    @property
    def job(self) -> int:
        """The job's number in its run."""
        return self.entry.job


@dataclass(frozen=True, slots=True)
class Grant:
    """A lane's reply. ``at_ms``: request permits again then (server time; 0: when woken), or in ``gather_ms``
    if that is later, when its bucket has gathered more permits. ``queued``: jobs still queued, by offer.

    ``window``: most calls that the lane may have in flight. ``owed``: lane minutes by team that its calls
    took beyond their charges, negative where they took less. ``pending``: calls of ``in_flight`` that hold no
    worker's slot, since their provider runs them asynchronously. ``suspected``: one team's 429s may be why
    the lane grants no more. ``few_models``: its calls wait for their models in turn.
    """

    permits: Sequence[Permit]
    at_ms: int
    reason: str
    in_flight: int
    queued: Sequence[int]
    now_ms: int
    delayed: Sequence[DelayedRun] = ()
    window: int = 0
    owed: Mapping[str, float] = field(default_factory=dict)
    pending: int = 0
    gather_ms: int = 0
    suspected: bool = False
    few_models: bool = False

    @property
    def wait_ms(self) -> int:
        """Milliseconds until ``at_ms``, by the server's clock."""
        return max(0, self.at_ms - self.now_ms)


class Permits:
    """Grants permits of all lanes of a deployment, for the leader."""

    def __init__(self, redis: RedisClient, keys: Keys) -> None:
        self._redis, self._keys = redis, keys
        self._functions = Functions()
        self._placed: Lru[str, Placed] = Lru(LANES_KEPT)

    def grant(
        self,
        lane: str,
        epoch: int,
        offers: Sequence[Offer],
        *,
        room: int,
        max_in_flight: int,
        lease_ms: int,
        now_ms: str | int = "",
        shares: Mapping[str, ReservedShare] | None = None,
    ) -> Grant | None:
        """Grant as many permits as the lane allows now, in the order offered; ``None`` if this is not the
        leader.

        ``shares``: reserved and maximum shares of the lane by team; other teams have neither.
        """
        keys = self._keys
        queues = [
            name
            for ref, *_ in offers
            for name in (keys.hot(ref, lane), keys.fresh(ref, lane), keys.jobs(ref), keys.state(ref))
        ] + [keys.budget(ref.team) for ref, *_ in offers]
        verb = script("permit_grant")
        placed = self._placed.get_or_make(lane, lambda: verb.place(named_keys(keys, lane=lane, queues=[])))
        call = verb.bind(
            placed.followed_by(queues),
            {
                "now_ms": now_ms,
                "epoch": epoch,
                "name": lane,
                "room": room,
                "max_in_flight": max_in_flight,
                "lease_ms": lease_ms,
                "shares": _shares_json(shares) if shares else "",
                "offers": json.dumps(
                    [
                        {"run": str(ref), "most": most, "ahead": ahead, "first": first}
                        for ref, most, ahead, first in offers
                    ]
                ),
            },
        )
        reply = self._functions.run(self._redis, call)
        return None if reply is None else _read_grant(json.loads(reply))


def _read_grant(reply: Mapping[str, Any]) -> Grant:
    return Grant(
        permits=[
            Permit(
                each["offer"],
                each["number"],
                Entry(
                    each["job"],
                    Estimate(each["input"], each["output"], each["most"], each["guessed"]),
                    each["kind"],
                ),
                each["share"],
            )
            for each in reply["permits"]
        ],
        at_ms=int(reply["at_ms"]),
        reason=reply["reason"],
        suspected=bool(reply.get("suspected")),
        few_models=bool(reply.get("few_models")),
        in_flight=int(reply["in_flight"]),
        queued=[int(count) for count in reply["queued"]],
        now_ms=int(reply["now_ms"]),
        delayed=[
            DelayedRun(
                each["offer"],
                each["bound"],
                int(each["until_ms"]),
                int(each["in_flight"]),
                each.get("over", ()),
            )
            for each in reply["delayed"]
        ],
        window=int(reply["window"]),
        gather_ms=int(reply.get("gather_ms", 0)),
        owed={team: billionths / BILLION for team, billionths in as_object(reply["owed"]).items()},
        pending=int(reply["pending"]),
    )


def as_object(value: Any) -> dict[str, Any]:
    """An object in a reply. Lua has one empty table, which arrives as an object or as a list."""
    return dict(value)


def _shares_json(shares: Mapping[str, ReservedShare]) -> str:
    return json.dumps({team: share._asdict() for team, share in shares.items()})
