"""From a spec and rows to a run that the scheduler was asked for; nothing is left behind if that fails."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from redis.exceptions import RedisError

from fairlane.datasets import Numbering
from fairlane.handle import Run
from fairlane.link import Link
from fairlane.resuming import Origins
from fairlane.run import RunSpec
from fairlane.store.keys import RunRef
from fairlane.streaming import RowWriter
from fairlane.submission import bounded_pages, check_rows_may_follow

OPEN_PAGE_ROWS = 512
"""Rows a page of a run whose rows follow: jobs of whole pages then fill whole bytes of a bitmap."""

_DIGITS = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's base 32: in ASCII order, none looks like another


def new_id(now_ms: int) -> str:
    """Fourteen characters: the time in milliseconds, so that ids sort by it, and 25 random bits."""
    number = (now_ms << 25) | secrets.randbits(25)
    return "".join(_DIGITS[(number >> shift) & 31] for shift in range(65, -1, -5))


def announce(link: Link, spec: RunSpec) -> RowWriter:
    """Ask for a run whose rows follow."""
    check_rows_may_follow(spec)
    announced = spec.model_copy(update={"open": True, "page_rows": OPEN_PAGE_ROWS})
    _ask(link, announced)
    return RowWriter(link, announced)


def hand_over(
    link: Link, spec: RunSpec, rows: Iterable[list[dict[str, Any]]], origins: Origins | None = None
) -> Run:
    """Upload the rows of a run and ask for it; ``origins`` where it goes on from another."""
    outbox, ref = link.outbox, RunRef(spec.team, spec.run)
    numbering, taken = Numbering(spec.session_field), bounded_pages(rows, spec)
    if origins is not None:
        taken = origins.watch(taken)
    count = outbox.upload(ref, numbering.watch(taken))
    outbox.note(ref, numbering.fields(spec.page_rows))
    outbox.note(ref, origins.fields() if origins is not None else ())
    whole = spec.model_copy(update={"rows": count, "sessions": numbering.sessions})
    _ask(link, whole)
    return Run(link, ref, whole)


def _ask(link: Link, spec: RunSpec) -> None:
    outbox, ref = link.outbox, RunRef(spec.team, spec.run)
    try:
        outbox.submit(spec)
    except BaseException:
        # The request may have arrived although its answer did not: then there is something to cancel.
        with suppress(RedisError):
            outbox.discard(ref)
            outbox.cancel(ref)
        raise
