"""Samples of lanes: every few seconds for a quarter of an hour, and every minute for a day.

Readings have counters that only grow, so that the figures of a span do not depend on which leader wrote its
ends. A new leader continues where the last one stopped.
"""

import json
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias

from fairlane.store.keys import Stored
from fairlane.store.run_queries import ask_each
from fairlane.store.write.lanes.lane_view import FAILED

MINUTE_MS = 60_000

_ACTIVE = (
    "granted",
    "inflight",
    *(f"seen_{signal}" for signal in ("ok", "limited", *FAILED)),
)

Activity: TypeAlias = tuple[bytes | None, ...]
"""Differs from an earlier one of the same lane if calls have started or ended since."""


class Step(NamedTuple):
    """A resolution: about how far apart samples are, and how many are kept."""

    name: str
    every_ms: int
    keep: int

    @property
    def span_ms(self) -> int:
        """How far back they go."""
        return self.every_ms * self.keep


FINE = Step("fine", 5_000, 180)
MINUTES = Step("minutes", MINUTE_MS, 1_440)
STEPS = (FINE, MINUTES)


class Reading(NamedTuple):
    """A lane at a moment (server milliseconds). ``granted``, ``finished`` and ``refused`` count from its
    beginning; the rest is as in `Sample`.
    """

    at_ms: int
    limit_per_minute: float | None = None
    source: str | None = None
    granted: int = 0
    finished: int = 0
    refused: int = 0
    in_flight: int = 0
    window: int | None = None
    waiting: int = 0


class Sample(NamedTuple):
    """A lane at a moment (server milliseconds), and what happened since the sample before.

    ``limit_per_minute``: requests that the lane may start a minute (``None``: no limit). ``source``: where
    that limit comes from, as in `AxisView`. ``admitted``: calls that got a permit. ``finished``: calls that
    ended after they were sent. ``refused``: those of them that ended with a 429. ``window``: the most calls
    in flight (``None``: no limit but slots). ``waiting``: jobs that are ready to start.

    While nothing happens on a lane it has no samples: between two, counts are 0 and the rest stays as it was.
    """

    at_ms: int
    limit_per_minute: float | None
    source: str | None
    admitted: int
    finished: int
    refused: int
    in_flight: int
    window: int | None
    waiting: int


class RecentCalls(NamedTuple):
    """Calls that got a permit in the last minute, and the share of 429s among those that ended in the last
    quarter of an hour (``None`` if none ended).
    """

    used_per_minute: int = 0
    refused_share: float | None = None


class History(Stored):
    """Reads lanes' samples, and writes them; only the leader writes."""

    def activity(self, lanes: Sequence[str]) -> dict[str, Activity]:
        """Counters that show use, by lane, in one round trip; lanes that were never used are left out."""
        found = ask_each(self._redis, lanes, lambda ask, lane: ask.hmget(self._keys.lane(lane), *_ACTIVE))
        return {lane: tuple(values) for lane, values in found if any(values)}

    def append(self, readings: Iterable[tuple[Step, str, Reading]]) -> None:
        """Add readings, each with its step and lane, in the order of their times. One round trip."""
        texts: dict[tuple[Step, str], list[str]] = {}
        for step, lane, reading in readings:
            texts.setdefault((step, lane), []).append(json.dumps(reading, separators=(",", ":")))
        pipeline = self._redis.pipeline(transaction=False)
        for (step, lane), some in texts.items():
            key = self._keys.history(lane, step.name)
            pipeline.rpush(key, *some)
            pipeline.ltrim(key, -step.keep - 1, -1)  # plus one, from which the first one's counts begin
            pipeline.pexpire(key, step.span_ms + MINUTE_MS)
        if texts:
            pipeline.execute()

    def of(self, lane: str, since_ms: int, step: Step = FINE) -> list[Sample]:
        """A lane's samples after ``since_ms``, the oldest first."""
        return self.of_all([lane], since_ms, step)[lane]

    def lately(self, lanes: Sequence[str], now_ms: int) -> dict[str, RecentCalls]:
        """The latest figures of many lanes, in one round trip, from a few samples of each."""
        pipeline = self._redis.pipeline(transaction=False)
        for lane in lanes:
            key = self._keys.history(lane, FINE.name)
            pipeline.lrange(key, 0, 0)
            pipeline.lrange(key, -MINUTE_MS // FINE.every_ms - 1, -1)
        replies, found = pipeline.execute(), dict[str, RecentCalls]()
        for number, lane in enumerate(lanes):
            samples = _samples(replies[2 * number] + replies[2 * number + 1])
            found[lane] = RecentCalls(used_per_minute(samples, now_ms), refused_share(samples))
        return found

    def of_all(self, lanes: Sequence[str], since_ms: int, step: Step = FINE) -> dict[str, list[Sample]]:
        """Samples of several lanes in one round trip."""
        key = self._keys.history
        found = ask_each(self._redis, lanes, lambda ask, lane: ask.lrange(key(lane, step.name), 0, -1))
        return {lane: [each for each in _samples(texts) if each.at_ms > since_ms] for lane, texts in found}


def used_per_minute(samples: Sequence[Sample], now_ms: int) -> int:
    """Calls that got a permit in the last minute."""
    return sum(sample.admitted for sample in samples if sample.at_ms > now_ms - MINUTE_MS)


def refused_share(samples: Sequence[Sample]) -> float | None:
    """The share of 429s among the calls that ended in these samples; ``None`` if none ended."""
    finished = sum(sample.finished for sample in samples)
    return sum(sample.refused for sample in samples) / finished if finished else None


def _samples(texts: Sequence[bytes]) -> list[Sample]:
    readings = [Reading(*json.loads(text)) for text in texts]
    return [
        Sample(*now)._replace(
            admitted=_since(before.granted, now.granted),
            finished=_since(before.finished, now.finished),
            refused=_since(before.refused, now.refused),
        )
        for before, now in zip([*readings[:1], *readings], readings, strict=False)
    ]


def _since(before: int, now: int) -> int:
    """By how much a counter has grown; 0 if Redis has lost some of it."""
    return max(0, now - before)
