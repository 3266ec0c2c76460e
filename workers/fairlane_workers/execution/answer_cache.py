"""The team's answer cache, as a worker reads and writes it for runs that use it."""

from collections.abc import Mapping

from fairlane.model.outcome import Success
from fairlane.pipeline.evaluations import FinishedJob
from fairlane.store.keys import Keys
from fairlane.store.write.answer_cache import is_whole, read_answer, written_answer
from fairlane_workers.execution.batcher import Batcher
from fairlane_workers.execution.inputs import JobInputs


class AnswerCache:
    """Answers of all the team's runs, by the digests of their calls."""

    def __init__(self, batcher: Batcher, keys: Keys, servers: Mapping[str, str]) -> None:
        """``servers``: by connection of this worker, the server that it calls."""
        self._batcher, self._keys, self.servers = batcher, keys, servers

    async def known(self, team: str, digests: Mapping[int, str]) -> dict[int, FinishedJob]:
        """Evaluations that the cache answers, by the caller's own numbers. Raises `RedisError`."""
        keys = [self._keys.answer(team, digest) for digest in digests.values()]
        stored = await self._batcher.send(("MGET", *keys)) if keys else []
        found = {
            step: read_answer(text) for step, text in zip(digests, stored, strict=True) if text is not None
        }
        return {
            step: FinishedJob(answer, cached=True) for step, answer in found.items() if answer is not None
        }

    def write(self, inputs: JobInputs, answer: Success) -> None:
        """Write the answer of an item's successful job, if other jobs can use it.

        The write may be lost: then the provider is asked again.
        """
        spec = inputs.spec
        if inputs.session is not None or not is_whole(answer):
            return
        digest = inputs.call.digest(inputs.item.sample(inputs.step), self.servers)
        if digest is not None:
            key, kept_ms = self._keys.answer(spec.team, digest), round(spec.cache.ttl * 1000)
            self._batcher.offer(("SET", key, written_answer(answer), "PX", kept_ms))
