"""Scores that clients compute over a run's records, summed up, for other processes to show.

A client writes below its team's own keys, so readers take them as hostile: people alone look at them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from fairlane.model.evaluators import NAME
from fairlane.model.run import RunRef
from fairlane.model.run_status import Scores
from fairlane.store.connection.connect import RedisClient
from fairlane.store.keys import Keys
from fairlane.store.run_queries import read_hostile

MOST_SCORERS = 50
"""Scorers of one run that are written at once, and that a reader shows."""

MOST_CHARS = 400
"""Longest stored scores of one scorer: six numbers with their names take 200."""

MOST = 1e300
"""Greatest number that is shown; a float has room for it."""

_COUNTS = ("count", "missing")


def write_client_scores(redis: RedisClient, keys: Keys, ref: RunRef, scores: Mapping[str, Scores]) -> None:
    """Keep scores as long as a finished run, in place of earlier ones of the same scorers.

    Does nothing once the run has expired.
    """
    ttl_ms = redis.hget(keys.state(ref), "ttl_ms")
    some = {name: json.dumps(asdict(each)) for name, each in list(scores.items())[:MOST_SCORERS]}
    if ttl_ms is None or not some:
        return
    pipeline = redis.pipeline(transaction=True)
    pipeline.hset(keys.client_scores(ref), mapping=some)
    pipeline.expire(keys.client_scores(ref), max(1, int(ttl_ms) // 1000))
    pipeline.execute()


def read_client_scores(redis: RedisClient, keys: Keys, ref: RunRef) -> dict[str, Scores]:
    """What clients have written, by scorer in the order of names; what is no score is left out."""
    stored = read_hostile(lambda: redis.hgetall(keys.client_scores(ref))) or {}
    found = ((name.decode(errors="replace"), _scores(text)) for name, text in stored.items())
    known = {name: each for name, each in found if each is not None and re.fullmatch(NAME, name)}
    return {name: known[name] for name in sorted(known)[:MOST_SCORERS]}


def _scores(text: bytes) -> Scores | None:
    if len(text) > MOST_CHARS:
        return None
    try:
        read: Any = json.loads(text)
    except ValueError:
        return None
    if not isinstance(read, dict) or read.keys() != {each.name for each in fields(Scores)}:
        return None
    whole = all(type(read[name]) is int and 0 <= read[name] < MOST for name in _COUNTS)
    rest = (value for name, value in read.items() if name not in _COUNTS)
    return Scores(**read) if whole and all(map(_is_number, rest)) else None


def _is_number(value: object) -> bool:
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return value is None or (number and -MOST < value < MOST)  # type: ignore[operator] # a number
