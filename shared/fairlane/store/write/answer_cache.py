"""A team's cache of answers, addressed by content: equal calls are made only once."""

import json
from collections.abc import Mapping
from dataclasses import astuple
from typing import Any

from fairlane.export.finish_reasons import Ending, ending_of
from fairlane.model.outcome import Success
from fairlane.model.results import packed, unpacked
from fairlane.model.tokens import Usage
from fairlane.store.keys import Stored


class Answers(Stored):
    """Finds answers by the digests of calls (`fairlane.pipeline.rendering.Call.digest`)."""

    def find(self, team: str, digests: Mapping[int, str]) -> dict[int, Success]:
        """The cached answers, by the caller's own numbers, in one round trip."""
        if not digests:
            return {}
        stored = self._redis.mget([self._keys.answer(team, digest) for digest in digests.values()])
        return {
            number: answer
            for number, text in zip(digests, stored, strict=True)
            if text is not None and (answer := read_answer(text)) is not None
        }


def is_whole(answer: Success) -> bool:
    """Whether an answer is worth keeping: it has a text, was not cut at the limit, and is no refusal."""
    partial = ending_of(answer.finish_reason) in (Ending.LENGTH, Ending.CONTENT_FILTER)
    return bool(answer.output.strip()) and not partial


def written_answer(answer: Success) -> str | bytes:
    """An answer as it is cached."""
    usage = answer.usage
    document = {
        "o": answer.output,
        "f": answer.finish_reason,
        "u": astuple(usage),
        **({"x": answer.left_out} if answer.left_out else {}),
        **({"n": answer.notes} if answer.notes else {}),
    }
    return packed(json.dumps(document, separators=(",", ":")))


def read_answer(stored: bytes) -> Success | None:
    """A cached answer; ``None`` for anything else. Its usage is that of the original call."""
    try:
        document: dict[str, Any] = json.loads(unpacked(stored))
        more: dict[str, Any] = {
            name: tuple(map(str, document.get(key, ()))) for name, key in (("left_out", "x"), ("notes", "n"))
        }
        return Success(str(document["o"]), Usage(*document["u"]), document.get("f"), **more)
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
