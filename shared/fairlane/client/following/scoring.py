"""Scores records in the process that reads them, and reports the sums once all were read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

from redis.exceptions import RedisError

from fairlane.client.deployment import Deployment, Wait
from fairlane.client.views.moments import Moments, OpenRows
from fairlane.core.errors import FairlaneError
from fairlane.evaluators.client_side import ClientScorer, scored
from fairlane.model.record import Record
from fairlane.model.run import RunRef
from fairlane.store.write.runs.client_scores import write_client_scores


def scored_steps(
    steps: Iterator[Record | Wait],
    scorers: Sequence[ClientScorer],
    deployment: Deployment,
    ref: RunRef,
    items_per_row: int = 1,
) -> Iterator[Record | Wait]:
    """The steps with the scores of ``scorers``; the sums over all records are reported after the last one.

    ``items_per_row``: prompts × models × repetitions of the run. A report that Redis does not take is lost:
    whoever reads the records has their scores.
    """
    sums, items, rows = {each.name: Moments() for each in scorers}, 0, OpenRows(items_per_row)
    for step in steps:
        if isinstance(step, Wait):
            yield step
            continue
        record = scored(step, scorers)
        items += 1
        found = [(each, record.scores[name]) for name, each in sums.items()]
        rows.add(record.item, [(each, value) for each, value in found if value is not None])
        yield record
    with suppress(FairlaneError, RedisError), deployment.answering():
        summed = {name: each.scores(items, rows.of(each)) for name, each in sums.items()}
        write_client_scores(deployment.redis, deployment.keys, ref, summed)
