"""Scores that clients compute over a run's records, summed up, for other processes to show.

A client writes below its team's own keys, so readers take them as hostile: people alone look at them.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from redis.exceptions import NoPermissionError

from fairlane.model.evaluators import NAME
from fairlane.model.run import RunRef
from fairlane.model.run_status import Scores
from fairlane.store.connection.connect import RedisClient
from fairlane.store.keys import Keys
from fairlane.store.run_queries import read_hostile

MOST_SCORERS = 50
"""Scorers of one run whose scores are kept and shown, the first by name."""

MOST_BYTES = 20_000
"""How much of the stored text is read: a scorer's name and seven numbers take at most 400 bytes."""

MOST = 1e300
"""Greatest number that is shown; a float has room for it."""

_COUNTS = ("count", "missing", "rows")


def write_client_scores(redis: RedisClient, keys: Keys, ref: RunRef, scores: Mapping[str, Scores]) -> None:
    """Keep scores as long as a finished run, beside those of other scorers.

    Does nothing once the run has expired. Of two clients that write at the same moment the later one wins.
    """
    ttl_ms = redis.hget(keys.state(ref), "ttl_ms")
    if ttl_ms is None or not scores:
        return
    all_of_them = {**read_client_scores(redis, keys, ref), **scores}
    kept = {name: asdict(all_of_them[name]) for name in sorted(all_of_them)[:MOST_SCORERS]}
    redis.set(keys.client_scores(ref), json.dumps(kept), ex=max(1, int(ttl_ms) // 1000))


def read_client_scores(redis: RedisClient, keys: Keys, ref: RunRef) -> dict[str, Scores]:
    """What clients have written, by scorer in the order of names; what is no score is left out.

    Takes no more than `MOST_BYTES` from Redis, however much a team has put there. A user whose rules are
    of an older version may not read them, and gets none.
    """
    try:
        text = read_hostile(lambda: redis.getrange(keys.client_scores(ref), 0, MOST_BYTES)) or b"{}"
        stored: Any = json.loads(text)
    except NoPermissionError:
        return {}
    except (ValueError, RecursionError):
        return {}
    if not isinstance(stored, dict):
        return {}
    found = ((name, _scores(each)) for name, each in stored.items() if re.fullmatch(NAME, name))
    known = {name: each for name, each in found if each is not None}
    return {name: known[name] for name in sorted(known)[:MOST_SCORERS]}


def _scores(read: object) -> Scores | None:
    if not isinstance(read, dict):
        return None
    read = {"rows": 0} | read  # which an earlier version did not store
    if read.keys() != {each.name for each in fields(Scores)}:
        return None
    whole = all(type(read[name]) is int and 0 <= read[name] < MOST for name in _COUNTS)
    rest = (value for name, value in read.items() if name not in _COUNTS)
    return Scores(**read) if whole and all(map(_is_number, rest)) else None


def _is_number(value: object) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return value is None or (number and -MOST < value < MOST)  # type: ignore[operator] # a number
