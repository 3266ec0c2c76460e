"""Scores records in the process that reads them, and reports the sums once all were read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress

from redis.exceptions import RedisError

from fairlane.client.deployment import Deployment, Wait
from fairlane.client.views.tally import Moments
from fairlane.core.errors import FairlaneError
from fairlane.evaluators.client_side import ClientScorer, scored
from fairlane.model.record import Record
from fairlane.model.run import RunRef
from fairlane.store.write.runs.client_scores import write_client_scores


def scored_steps(
    steps: Iterator[Record | Wait], scorers: Sequence[ClientScorer], deployment: Deployment, ref: RunRef
) -> Iterator[Record | Wait]:
    """The steps with the scores of ``scorers``; the sums over all records are reported after the last one.

    A report that Redis does not take is lost: whoever reads the records has their scores.
    """
    sums, items = {each.name: Moments() for each in scorers}, 0
    for step in steps:
        if isinstance(step, Wait):
            yield step
            continue
        record = scored(step, scorers)
        items += 1
        for name, each in sums.items():
            if (value := record.scores[name]) is not None:
                each.add(value)
        yield record
    with suppress(FairlaneError, RedisError), deployment.answering():
        found = {name: each.scores(items) for name, each in sums.items()}
        write_client_scores(deployment.redis, deployment.keys, ref, found)
