"""Scores records in the process that reads them, and writes the totals to Redis in the end."""

from collections.abc import Iterator, Sequence
from contextlib import suppress

from redis.exceptions import RedisError

from fairlane.client.deployment import Deployment, Wait
from fairlane.core.errors import FairlaneError
from fairlane.evaluators.client_side import ClientScorer, scored
from fairlane.export.moments import Moments, OpenRows
from fairlane.model.record import Record
from fairlane.model.run import RunRef
from fairlane.store.write.runs.client_scores import write_client_scores


class Scoring:
    """Steps with the scores of ``scorers``; the totals over all records are written after the last one.

    ``items_per_row``: prompts × models × repetitions of the run. Totals that Redis does not take are lost:
    the reader of the records has their scores.
    """

    def __init__(
        self,
        steps: Iterator[Record | Wait],
        scorers: Sequence[ClientScorer],
        deployment: Deployment,
        ref: RunRef,
        items_per_row: int = 1,
    ) -> None:
        self._steps, self._scorers, self._deployment, self._ref = steps, scorers, deployment, ref
        self._sums, self._items = {each.name: Moments() for each in scorers}, 0
        self._rows = OpenRows(items_per_row)
        self._unscored: Record | None = None

    def steps(self) -> Iterator[Record | Wait]:
        """The remaining steps. A record whose scoring was interrupted is scored again."""
        while (step := self._unscored or next(self._steps, None)) is not None:
            if isinstance(step, Wait):
                yield step
                continue
            self._unscored = step
            record = scored(step, self._scorers)
            self._unscored = None
            self._count(record)
            yield record
        self._report()

    def _count(self, record: Record) -> None:
        self._items += 1
        found = [(each, record.scores[name]) for name, each in self._sums.items()]
        self._rows.add(record.item, [(each, value) for each, value in found if value is not None])

    def _report(self) -> None:
        with suppress(FairlaneError, RedisError), self._deployment.answering():
            found = {name: each.scores(self._items, self._rows.of(each)) for name, each in self._sums.items()}
            write_client_scores(self._deployment.redis, self._deployment.keys, self._ref, found)
