"""How a job ends that is not tried again: what is recorded, what follows, what is remembered and cached."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from fairlane.cache import read_answer, written_answer
from fairlane.decision import Finish
from fairlane.errors import TemplateError
from fairlane.job import Outcome, Success
from fairlane.joining import joined
from fairlane.memory import remembered
from fairlane.rendering import Call
from fairlane.store.attempts import Ready
from fairlane.store.keys import Keys
from fairlane.store.sessions import Joined
from fairlane.verdict import Ended, Following, Verdict, evaluation_over, follow, following, judged, task_over
from fairlane_workers.batcher import Batcher
from fairlane_workers.material import Work


@dataclass(frozen=True, slots=True)
class Ending:
    """A verdict, what later items of the run read of this one, and what its session is told if it is over."""

    verdict: Verdict
    memory: Mapping[str, str] = field(default_factory=dict)
    joined: Joined | None = None


class Endings:
    """Makes them; reads and writes the team's cache where the run says so."""

    def __init__(self, batcher: Batcher, keys: Keys) -> None:
        self._batcher, self._keys = batcher, keys

    async def of(self, work: Work, outcome: Outcome, decision: Finish, latency_ms: int) -> Ending:
        """The end of a job. Raises `RedisError` where the cache cannot be read."""
        answer = outcome if decision.error is None and isinstance(outcome, Success) else None
        ended = Ended(answer, decision.error, decision.attempts, latency_ms)
        if answer is not None:
            self._keep(work, answer)
        if work.session is not None:
            result = judged(work.spec.session_evals[work.session.step], ended)
            return Ending(Verdict(result.state, result.to_json()))
        if work.step:
            return _ending(
                work, evaluation_over(work.place, work.step, ended, work.judged or ""), work.judged
            )
        if answer is None:
            return _ending(work, task_over(work.place, ended), None)
        after = following(work.place, answer.output)
        known = await self._known(work, after)
        steps = follow(work.place, after, answer.output, known)
        verdict = task_over(work.place, ended, steps)
        return _ending(work, verdict, answer.output, _memory(work, answer.output))

    async def _known(self, work: Work, after: Following) -> dict[int, Ended]:
        """Evaluations that the team's cache answers."""
        if not work.spec.cache.reads:
            return {}
        digests = after.digests(work.place.cell.repetition)
        keys = [self._keys.answer(work.spec.team, digest) for digest in digests.values()]
        stored = await self._batcher.send(("MGET", *keys)) if keys else []
        found = {
            step: read_answer(text) for step, text in zip(digests, stored, strict=True) if text is not None
        }
        return {step: Ended(answer, cached=True) for step, answer in found.items() if answer is not None}

    def _keep(self, work: Work, answer: Success) -> None:
        """Cache an answer, but a session's. Nobody waits for it: what is lost is asked again."""
        cache, call = work.spec.cache, _call_of(work)
        if not cache.writes or call is None or work.session is not None:
            return
        key = self._keys.answer(work.spec.team, call.digest(work.place.cell.repetition))
        self._batcher.offer(("SET", key, written_answer(answer), "PX", round(cache.ttl * 1000)))


def _ending(
    work: Work, verdict: Verdict, output: str | None, memory: Mapping[str, str] | None = None
) -> Ending:
    """The end of an item's job; ``output`` is the item's."""
    ready = any(isinstance(each, Ready) for each in verdict.follow)
    return Ending(verdict, memory or {}, None if ready else joined(work.place, work.seat, output))


def _call_of(work: Work) -> Call | None:
    try:
        return work.call()
    except (TemplateError, ValueError):
        return None


def _memory(work: Work, output: str) -> dict[str, str]:
    if work.memory is None:
        return {}
    place = work.place
    try:
        return remembered(place.rendering, place.cell, place.row, work.call(), output, work.memory)
    except TemplateError:
        return {}  # the name of its register needs what the row lacks: nobody can read it
