"""The activity of a run's lanes while it ran: calls a minute, and the lane's limit."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from fairlane.model.run_status import RunStatus
from fairlane.store.connection.connect import RedisClient, if_allowed
from fairlane.store.keys import Keys
from fairlane.store.write.lanes.lane_history import FINE, MINUTES, History, Sample

MOST_POINTS = 240
MARGIN = 0.02


class Point(NamedTuple):
    """A period that ends at ``at_ms``: its rates a minute, and the limit at its end."""

    at_ms: int
    admitted: float
    refused: float
    limit: float | None


class LaneActivity(NamedTuple):
    """A lane over the time of a run: the calls of all teams that ended, and how many of them with a 429."""

    lane: str
    from_ms: int
    upto_ms: int
    points: tuple[Point, ...]
    finished: int
    refused: int


def activity_of(redis: RedisClient, keys: Keys, status: RunStatus, now_ms: int) -> list[LaneActivity]:
    """The lanes of a run that has started, as far back as samples go: a day. Leaves out lanes without
    samples.
    """
    if status.started_ms is None or not status.lanes:
        return []
    start_ms, end_ms = status.started_ms, status.finished_ms or now_ms
    step = FINE if now_ms - start_ms < FINE.span_ms else MINUTES
    none: Mapping[str, list[Sample]] = {}
    lanes = [part.lane for part in status.lanes]
    since_ms = start_ms - 2 * step.every_ms
    found = if_allowed(lambda: History(redis, keys).of_all(lanes, since_ms, step), none)
    margin = max(step.every_ms, round(MARGIN * (end_ms - start_ms)))
    first_ms, last_ms = start_ms - margin, end_ms + margin
    some = {
        lane: [sample for sample in samples if first_ms <= sample.at_ms <= last_ms]
        for lane, samples in found.items()
    }
    return [
        LaneActivity(
            lane,
            start_ms,
            end_ms,
            tuple(_points(samples, step.every_ms, end_ms)),
            sum(sample.finished for sample in samples[1:]),
            sum(sample.refused for sample in samples[1:]),
        )
        for lane, samples in some.items()
        if len(samples) > 1
    ]


def _points(samples: Sequence[Sample], every_ms: int, end_ms: int) -> list[Point]:
    """Rates between samples that follow each other, merged where there are many."""
    together = max(1, -(-len(samples) // MOST_POINTS))
    points: list[Point] = []
    before_ms = samples[0].at_ms
    for first in range(1, len(samples), together):
        some = samples[first : first + together]
        # An idle lane has no samples: a long time before this one was without calls.
        if some[0].at_ms - before_ms > 2 * every_ms:
            before_ms = some[0].at_ms - every_ms
            points.append(Point(before_ms, 0, 0, some[0].limit_per_minute))
        minutes = max(1, some[-1].at_ms - before_ms) / 60_000
        admitted, refused = sum(each.admitted for each in some), sum(each.refused for each in some)
        points.append(Point(some[-1].at_ms, admitted / minutes, refused / minutes, some[-1].limit_per_minute))
        before_ms = some[-1].at_ms
    if end_ms - before_ms > 2 * every_ms:
        limit = samples[-1].limit_per_minute
        points += [Point(before_ms + every_ms, 0, 0, limit), Point(end_ms, 0, 0, limit)]
    return points
