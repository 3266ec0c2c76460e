"""Scores that clients compute over a run's records, summed up, for other processes to show.

Clients write them below their team's own keys, so readers treat them as hostile: they are only shown to
people.
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
"""Most bytes of the stored text that are read: a scorer's name and seven numbers take at most 400."""

MOST = 1e300
"""Greatest number that is shown; it fits into a float."""

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
    """Valid scores that clients have written, by scorer in the order of names.

    Reads at most `MOST_BYTES` from Redis, however much a team has stored. A user with the rules of an older
    version may not read them, and gets none.
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
    read = {"rows": 0} | read  # an earlier version stored no rows
    if read.keys() != {each.name for each in fields(Scores)}:
        return None
    whole = all(type(read[name]) is int and 0 <= read[name] < MOST for name in _COUNTS)
    rest = (value for name, value in read.items() if name not in _COUNTS)
    return Scores(**read) if whole and all(map(_is_number, rest)) else None


def _is_number(value: object) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return value is None or (number and -MOST < value < MOST)  # type: ignore[operator] # a number
