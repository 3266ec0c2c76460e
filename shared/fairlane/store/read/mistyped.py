"""Finds keys whose type somebody has changed: Redis refuses commands on them, but does not name them."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from fairlane.model.lane import QUEUE_PREFIX
from fairlane.model.run import RunRef
from fairlane.store.connection.misfits import is_clustered
from fairlane.store.connection.server_states import RESUMES, RETYPED, Refusal, refusing_state
from fairlane.store.keys import TOKEN_AXES, Keys
from fairlane.store.redis_client import RedisClient
from fairlane.store.run_queries import ask_each

ASKED_AT_ONCE = 1000
LATEST_RUNS = 100  # runs of a team that are checked after their end
SCANNED_AT_ONCE = 10_000  # keys: it blocks Redis for 2 ms

OF_DEPLOYMENT = {
    **dict.fromkeys(("leader", "clock", "registry", "configured", "openers", "scopes", "leased"), "hash"),
    **dict.fromkeys(("workers", "drains"), "hash"),
    **dict.fromkeys(("teams", "active", "lanes", "dirty", "starved", "budgets"), "set"),
    **dict.fromkeys(("catalog", "salt"), "string"),
    **dict.fromkeys(("leases", "delayed"), "zset"),
    "audit": "stream",
}
OF_LANE: dict[str, str] = dict.fromkeys(("lane", "owed", "in_flight", "reserved_shares", "limits"), "hash")
OF_TEAM = {"runs": "zset", "budget": "hash"}
OF_RUN = {
    **dict.fromkeys(("state", "results", "jobs", "memory", "sessions"), "hash"),
    **dict.fromkeys(("plan", "done", "fed"), "string"),
    "finished": "list",
    "run_lanes": "set",
}
"""The type of each key, by its name in `Keys`. Without keys that a team may write: these stop nobody else."""

OF_BROKER = {"fairlane.idle": "list", "unacked": "hash", "unacked_index": "zset"}
OF_BROKER_BY_PATTERN = {"_kombu.binding.*": "set", f"{QUEUE_PREFIX}*": "list"}
"""Celery's keys, if they are on the same server."""


class Mistyped(NamedTuple):
    """A key, its type, and the type that it should have, in Redis' words."""

    key: str
    found: str
    wanted: str


def mistyped(redis: RedisClient, keys: Keys) -> list[Mistyped]:
    """Mistyped keys of deployment, lanes, teams, active and latest runs, and queues. Raises `RedisError`."""
    wrong = mistyped_of_shared(redis, keys)
    refs = _latest_runs(redis, keys, {each.key for each in wrong})
    wrong += [each for found in damaged_runs(redis, keys, refs).values() for each in found]
    return [*dict.fromkeys(wrong), *mistyped_of_broker(redis)]


def mistyped_of_shared(redis: RedisClient, keys: Keys) -> list[Mistyped]:
    """Mistyped keys of deployment, lanes and teams. Raises `RedisError`."""
    wrong = mistyped_of_deployment(redis, keys)
    names, wanted = {each.key for each in wrong}, dict[str, str]()
    for lane in _members(redis, keys.lanes, names):
        wanted |= _types(keys, OF_LANE, lane)
        wanted |= {keys.headroom(lane, axis): "list" for axis in TOKEN_AXES}
    for team in _members(redis, keys.teams, names):
        wanted |= _types(keys, OF_TEAM, team)
    return wrong + _wrong(redis, wanted)


def damaged_runs(
    redis: RedisClient, keys: Keys, refs: Iterable[RunRef] | None = None
) -> dict[RunRef, list[Mistyped]]:
    """Runs that have mistyped keys, with these keys. Raises `RedisError`.

    Checks ``refs``; without them, active and latest runs. A team's budget is a key of each of its active
    runs.
    """
    budgeted = refs
    if refs is None:
        names = {each.key for each in mistyped_of_deployment(redis, keys)}
        refs = _latest_runs(redis, keys, names)
        budgeted = map(RunRef.parse, _members(redis, keys.active, names))
    of_team = dict[str, list[RunRef]]()
    for ref in budgeted or ():
        of_team.setdefault(keys.budget(ref.team), []).append(ref)
    owners, wanted = dict[str, RunRef](), dict[str, str]()
    for ref in refs:
        of_run = _types(keys, OF_RUN, ref)
        wanted |= of_run
        owners |= dict.fromkeys(of_run, ref)
    wrong = _wrong(redis, wanted)
    names, queues = {each.key for each in wrong}, dict[str, RunRef]()
    for ref in dict.fromkeys(owners.values()):
        for lane in _members(redis, keys.run_lanes(ref), names):
            queues |= dict.fromkeys((keys.hot(ref, lane), keys.fresh(ref, lane)), ref)
    wrong += _wrong(redis, dict.fromkeys(queues, "list"))
    owners |= queues
    found = dict[RunRef, list[Mistyped]]()
    for each in wrong:
        found.setdefault(owners[each.key], []).append(each)
    for each in _wrong(redis, dict.fromkeys(of_team, "hash")):
        for ref in of_team[each.key]:
            found.setdefault(ref, []).append(each)
    return found


def _latest_runs(redis: RedisClient, keys: Keys, wrong: Collection[str]) -> list[RunRef]:
    """Active runs, and the latest of each team, except those listed in a key of a ``wrong`` type."""
    refs = {RunRef.parse(text) for text in _members(redis, keys.active, wrong)}
    for team in _members(redis, keys.teams, wrong):
        if redis.type(keys.runs(team)) == b"zset":
            latest = redis.zrevrange(keys.runs(team), 0, LATEST_RUNS - 1)
            refs |= {RunRef(team, run.decode(errors="replace")) for run in latest}
    return sorted(refs, key=str)


def _members(redis: RedisClient, key: str, wrong: Collection[str]) -> list[str]:
    """The members of a set; none if its key is ``wrong``."""
    return [] if key in wrong else sorted(each.decode(errors="replace") for each in redis.smembers(key))


def mistyped_of_deployment(redis: RedisClient, keys: Keys) -> list[Mistyped]:
    """Mistyped keys that every process of the deployment uses. Raises `RedisError`."""
    return _wrong(redis, {getattr(keys, name): kind for name, kind in OF_DEPLOYMENT.items()})


def mistyped_of_broker(redis: RedisClient) -> list[Mistyped]:
    """Mistyped keys of Celery on this server (a cluster has none). Raises `RedisError`."""
    if is_clustered(redis):
        return []
    wanted = dict(OF_BROKER)
    for pattern, kind in OF_BROKER_BY_PATTERN.items():
        wanted |= dict.fromkeys(_matching(redis, pattern), kind)
    return _wrong(redis, wanted)


def named(error: BaseException, look: Callable[[], list[Mistyped]]) -> Refusal | None:
    """Why Redis refused a command, with the keys that ``look`` finds; ``None`` for any other error."""
    refused = refusing_state(error)
    if refused is not RETYPED:
        return refused
    try:
        return refusal_of(look()) or refused
    except Exception:  # noqa: BLE001  the key's name is optional, and the broker's client has its own errors
        return refused


def refusal_of(wrong: Sequence[Mistyped]) -> Refusal | None:
    """What to do about these keys; ``None`` without any."""
    if not wrong:
        return None
    more = f", and {len(wrong) - 1:,} more keys are of wrong types" if len(wrong) > 1 else ""
    key, found, wanted = wrong[0]
    problem = f"somebody made the key {key} a {found}, and it is to be a {wanted}{more}"
    return Refusal(problem, f"Delete it: redis-cli DEL '{key}'; {RESUMES}")


def _types(keys: Keys, kinds: Mapping[str, str], owner: str | RunRef) -> dict[str, str]:
    return {getattr(keys, name)(owner): kind for name, kind in kinds.items()}


def _matching(redis: RedisClient, pattern: str) -> Iterator[str]:
    cursor = -1
    while cursor:
        cursor, found = redis.scan(max(cursor, 0), match=pattern, count=SCANNED_AT_ONCE)
        yield from (key.decode(errors="replace") for key in found)


def _wrong(redis: RedisClient, wanted: Mapping[str, str]) -> list[Mistyped]:
    wrong, names = list[Mistyped](), iter(wanted)
    while some := list(islice(names, ASKED_AT_ONCE)):
        types = ((key, kind.decode()) for key, kind in ask_each(redis, some, lambda ask, key: ask.type(key)))
        wrong += [
            Mistyped(key, kind, wanted[key]) for key, kind in types if kind not in ("none", wanted[key])
        ]
    return wrong
