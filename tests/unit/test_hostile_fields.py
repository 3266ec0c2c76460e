"""What a client writes beside its rows is bounded before it is read, and costs its own run alone."""

from __future__ import annotations

import json
import zlib
from typing import Any

import pytest

from fairlane.core.errors import BrokenSessions
from fairlane.datasets.rows import MAX_PAGE_BYTES
from fairlane.model.choices import Continuation
from fairlane.model.run import RunRef, RunState
from fairlane.model.sessions import memberships_field
from fairlane.sandbox.pieces import ReadMembers
from fairlane.store.run_queries import MOST_ORIGINS_BYTES, ORIGINS
from tests.support.scheduler_parts import Parts
from tests.support.worker_parts import WorkerParts, on_loop

OLD = {"run": "r0", "prompts": (0,), "models": (0,), "steps": (), "repetitions": 1}


@pytest.mark.parametrize(
    "origins",
    [
        b"{",
        b"null",
        b'{"a": 1}',
        b'["a", null, [1]]',
        b"[true, 1.5]",
        b"[-5, 99999999999999999999999]",
        b"[" * 100_000,
        b"[" + b"0," * MOST_ORIGINS_BYTES + b"0]",
    ],
    ids=["cut", "null", "object", "texts", "others", "far", "deep", "long"],
)
def test_rows_of_a_continued_run_that_are_no_numbers_are_new_rows(parts: Parts, origins: bytes) -> None:
    run = parts.admit(3, continues=Continuation(**OLD))
    parts.redis.hset(parts.keys.rows(run.ref), f"{ORIGINS}0", origins)
    parts.feed_all()
    assert len(parts.queued(run.ref, "sim:fast")) == 3


@pytest.mark.parametrize("given", [{"prompts": (), "models": ()}, {"prompts": (-1,)}, {"models": (0,) * 9}])
def test_a_continuation_that_names_other_cells_than_the_run_has_is_fed(
    parts: Parts, given: dict[str, Any]
) -> None:
    run = parts.admit(3, model=["sim:fast", "sim:slow"], continues=Continuation(**OLD | given))
    parts.redis.hset(parts.keys.rows(run.ref), f"{ORIGINS}0", b"[0,1,2]")
    parts.feed_all()
    assert run.fully_fed


@pytest.mark.parametrize(
    "given",
    [{"old_steps": 10**9}, {"repetitions": 10**9}, {"old_prompts": 0}, {"run": "r0:x"}, {"steps": (-2,)}],
)
def test_a_continuation_reads_no_more_than_a_run_can_have(given: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"continues|Continuation"):
        Continuation(**OLD | given)


def test_a_page_of_sessions_that_is_too_long_is_not_read(parts: Parts) -> None:
    ref = RunRef("search", "r1")
    field = memberships_field(0)
    parts.redis.hset(parts.keys.rows(ref), field, b"x" * (MOST_ORIGINS_BYTES + 1))
    assert parts.runs.memberships(ref, 0) is None
    parts.redis.hset(parts.keys.rows(ref), field, b"x")
    assert parts.runs.memberships(ref, 0) == b"x"


def test_a_page_that_became_too_long_after_it_was_fed_is_not_read_by_a_worker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fairlane_workers.execution.inputs.MAX_PAGE_BYTES", 1000)

    async def scene(parts: WorkerParts) -> None:
        (attempt,) = parts.grant([{"q": 1}])
        ref = RunRef(attempt.team, attempt.run)
        parts.scheduler.redis.hset(parts.keys.rows(ref), "0", b"x" * 1001)
        inputs = await parts.inputs.of(attempt)
        assert inputs.problem == "page 0 of the run's rows is larger than 1,000 bytes"

    on_loop(scene)
    assert MAX_PAGE_BYTES == 64 << 20


def test_a_child_reads_a_block_of_sessions_or_says_why_not() -> None:
    piece = ReadMembers(zlib.compress(json.dumps([[0, 2], [1]]).encode()), 3)
    assert piece.read(piece.work(None)) == [b"[0,2]", b"[1]"]
    broken = ReadMembers(b"x", 3)
    with pytest.raises(BrokenSessions, match="cut short"):
        broken.read(broken.work(None))


def test_runs_with_hostile_fields_end(parts: Parts) -> None:
    ended = parts.admit([{"q": 1}], output_field="q", models=(), prompts=(), continues=Continuation(**OLD))
    parts.redis.hset(parts.keys.rows(ended.ref), f"{ORIGINS}0", b"{")
    parts.feed_all()
    assert parts.state(ended.ref)["state"] == RunState.COMPLETED
