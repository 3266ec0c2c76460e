"""What is known of jobs before anybody is called: from the run that a run goes on from, and from the team's
cache.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fairlane.cache import Answers
from fairlane.job import Success
from fairlane.store.keys import RunRef
from fairlane.store.runs import Runs
from fairlane.verdict import Ended, Following, Known, Place
from fairlane_scheduler.backlog import ActiveRun
from fairlane_scheduler.drafts import Draft
from fairlane_scheduler.resumption import Resumed


class Precedents:
    """Reads them a stretch at a time."""

    def __init__(self, runs: Runs) -> None:
        self._runs = runs
        self._resumed = Resumed(runs)
        self._answers = Answers(runs.redis, runs.keys)

    def tasks(self, run: ActiveRun, drafts: Sequence[Draft]) -> dict[int, Ended]:
        """How the tasks of items ended, by item, where that is known."""
        spec = run.plan.spec
        known: dict[int, Ended] = {}
        if spec.resumes is not None:
            for draft in drafts:
                old = self._resumed.task(run.ref, spec, draft.place)
                if old is not None:
                    known[draft.place.item] = old
        if not spec.cache.reads:
            return known
        digests = {
            draft.place.item: draft.call.digest(draft.place.cell.repetition)
            for draft in drafts
            if draft.call is not None and draft.place.item not in known
        }
        return known | {
            item: Ended(answer, cached=True) for item, answer in self._cached(run.ref, digests).items()
        }

    def evaluations(self, run: ActiveRun, place: Place, after: Following) -> dict[int, Known]:
        """How the evaluations of an item ended, by step, where that is known."""
        spec = run.plan.spec
        known: dict[int, Known] = {}
        if spec.resumes is not None:
            known.update(self._resumed.evaluations(run.ref, spec, place))
        if not spec.cache.reads:
            return known
        digests = {
            step: digest for step, digest in after.digests(place.cell.repetition).items() if step not in known
        }
        return known | {
            step: Ended(answer, cached=True) for step, answer in self._cached(run.ref, digests).items()
        }

    def forget(self, ref: RunRef) -> None:
        """A run has ended."""
        self._resumed.forget(ref)

    def _cached(self, ref: RunRef, digests: Mapping[int, str]) -> dict[int, Success]:
        return self._answers.find(ref.team, digests)
