"""A queued job as its lane sees it: which one it is, how large it may be, and what its run calls for it."""

from __future__ import annotations

from typing import NamedTuple

from fairlane.tokens import Estimate


class Entry(NamedTuple):
    """A job in a queue. In Redis it is ``"job:input:output:kind"``.

    ``kind`` tells the calls of a run apart whose answers differ in length: a task's is its model's index, and
    the judges' follow those.
    """

    job: int
    tokens: Estimate
    kind: int = 0

    @classmethod
    def parse(cls, text: str) -> Entry:
        """What `str` gave; parts that a later version has added are passed over."""
        job, tokens_in, tokens_out, kind = text.split(":")[:4]
        return cls(int(job), Estimate(int(tokens_in), int(tokens_out)), int(kind))

    def __str__(self) -> str:
        return f"{self.job}:{self.tokens.input}:{self.tokens.output}:{self.kind}"
