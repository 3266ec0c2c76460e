"""Each turn of a conversation has a field of its own in the run's memory: it costs what it is long."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlane.model.choices import TURN_FIELDS_VERSION, Message
from fairlane.model.job import JobState
from fairlane.model.outcome import Outcome, Success
from fairlane.model.run import Order
from fairlane.pipeline import conversation
from fairlane.store.read.reading import RecordReader
from fairlane_workers.providers.contract import Request
from tests.support.played_runs import continued, played
from tests.support.worker_parts import WorkerParts, on_loop

IN_ONE_FIELD = TURN_FIELDS_VERSION - 1
TALK = "{% for turn in _conversation %}{{ turn.output }},{% endfor %}{{ q }}"
ALL = "{% for turn in _conversation %}{{ turn.prompt[0].content }}|{{ turn.input }}|{% endfor %}" + TALK
LAST = "{{ (_conversation | last).prompt[0].content if _conversation else '' }}/{{ q }}"
EVERY = ("prompt", "input", "output")


def answer(request: Request) -> Success:
    return Success(f"[{request.messages[-1]['content'][-4:]}]")


def talk(parts: WorkerParts, rows: Sequence[Any], prompt: str = TALK, **given: Any) -> Any:
    kept = ("output",) if prompt == TALK else EVERY
    order = {"turns": True, "conversation": True, "conversation_field": "who", "turn_fields": kept}
    order |= given.pop("order", {})
    prompts = ((Message(role="user", content=prompt),),)
    return parts.scheduler.admit(
        rows, prompts=prompts, order=Order(**order), **{"version": TURN_FIELDS_VERSION} | given
    )


def memory(parts: WorkerParts, run: Any) -> dict[bytes, bytes]:
    return parts.scheduler.runs.memory(run.ref)


async def remembered(parts: WorkerParts, run: Any) -> dict[bytes, bytes]:
    """Play a run; what it kept at its last call, which its end deletes."""
    found: dict[bytes, bytes] = {}
    given_answer = parts.provider.answer

    def looking(request: Request) -> Outcome:
        found.update(memory(parts, run))
        return given_answer(request) if callable(given_answer) else given_answer

    parts.provider.answer = looking
    await played(parts, run)
    parts.provider.answer = given_answer
    assert found
    assert not memory(parts, run)
    return found


def rows_of(count: int, who: str = "a", **fields: Any) -> list[dict[str, Any]]:
    return [{"q": str(n), "who": who, **fields} for n in range(count)]


def test_memory_grows_with_the_turns_and_not_with_their_square() -> None:
    async def scene(parts: WorkerParts) -> None:
        parts.provider.answer = lambda request: Success("y" * 400)
        sizes = []
        for count in (10, 40):
            run = talk(parts, rows_of(count + 1), run=f"r{count}")
            kept = await remembered(parts, run)
            sizes.append(sum(len(name) + len(value) for name, value in kept.items()))
        assert sizes[1] < 4.5 * sizes[0] < 4.5 * 10 * 600

    on_loop(scene)


def test_a_serial_run_reads_for_an_item_its_own_conversation_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(parts: WorkerParts) -> None:
        parts.provider.answer = lambda request: Success("y")
        monkeypatch.setattr(parts.scheduler.runs, "memory", lambda ref: pytest.fail("reads all of them"))
        rows = [row for who in "abc" for row in rows_of(2, who)]
        records = await played(parts, talk(parts, rows, order={"turns": False, "serial": True}))
        assert [each.state for each in records] == [JobState.SUCCEEDED] * 6
        asked = [each.messages[0]["content"] for each in parts.provider.requests]
        assert asked == ["0", "y,1"] * 3

    on_loop(scene)


def test_a_long_name_of_a_conversation_is_not_repeated_with_each_turn() -> None:
    async def scene(parts: WorkerParts) -> None:
        run = talk(parts, rows_of(6, "w" * 5000))
        turns = [name for name in await remembered(parts, run) if name.startswith(b"turn:")]
        assert len(turns) == 5
        assert all(len(name) < 60 for name in turns)

    on_loop(scene)


@settings(max_examples=30)
@given(
    whos=st.lists(st.sampled_from(["a", "b", None]), min_size=1, max_size=7),
    prompt=st.sampled_from([TALK, ALL, LAST]),
    order=st.sampled_from([{}, {"turns": False, "serial": True}]),
    fails=st.sets(st.integers(0, 6), max_size=2),
)
def test_prompts_read_the_same_turns_as_from_one_field(
    whos: list[str | None], prompt: str, order: dict[str, Any], fails: set[int]
) -> None:
    async def scene(parts: WorkerParts) -> None:
        rows = [{"q": f"é{n}", "who": who} for n, who in enumerate(whos)]
        rows = [{"who": row["who"]} if n in fails else row for n, row in enumerate(rows)]
        found = []
        for version in (IN_ONE_FIELD, TURN_FIELDS_VERSION):
            parts.provider.answer = answer
            parts.provider.requests.clear()
            run = talk(parts, rows, prompt, order=order, version=version, run=f"v{version}")
            records = await played(parts, run)
            asked = [each.messages[0]["content"] for each in parts.provider.requests]
            found.append((asked, [(each.state, each.output, each.error) for each in records]))
        assert found[0] == found[1]

    on_loop(scene)


@pytest.mark.parametrize("version", [1, IN_ONE_FIELD])
def test_a_run_of_an_earlier_version_keeps_its_one_field(version: int) -> None:
    async def scene(parts: WorkerParts) -> None:
        order = {"turn_fields": EVERY}
        run = talk(parts, rows_of(3), version=version, order=order)
        assert not [name for name in await remembered(parts, run) if name.startswith(b"turn:")]

    on_loop(scene)


@pytest.mark.parametrize("order", [{}, {"turns": False, "serial": True}])
def test_a_conversation_beyond_its_bound_is_an_error_in_words_and_the_run_ends(
    order: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(parts: WorkerParts) -> None:
        parts.provider.answer = lambda request: Success("y" * 300)
        monkeypatch.setattr(conversation, "_most_bytes", lambda rendering: 700)
        rows = [*rows_of(5), *rows_of(2, "b")]
        records = await played(parts, talk(parts, rows, "{{ _conversation | length }}{{ q }}", order=order))
        assert [each.state for each in records] == [JobState.SUCCEEDED] * 2 + [JobState.INVALID] * 3 + [
            JobState.SUCCEEDED
        ] * 2
        assert "the 2 turns of this conversation have" in (records[2].error or "")
        assert "raise scheduler.limits.row_bytes or worker.max_response_bytes" in (records[2].error or "")
        assert "lacks an earlier turn: row 3 has no output" in (records[3].error or "")

    on_loop(scene)


def test_a_turn_that_is_gone_is_an_error_in_words() -> None:
    async def scene(parts: WorkerParts) -> None:
        run = talk(parts, rows_of(3))

        def forgetting(request: Request) -> Success:
            names = [name for name in memory(parts, run) if name.startswith(b"turn:")]
            if names:
                parts.scheduler.redis.hdel(parts.keys.memory(run.ref), *names)
            return Success("x")

        parts.provider.answer = forgetting
        records = await played(parts, run)
        assert [each.state for each in records][:2] == [JobState.SUCCEEDED] * 2
        assert "an earlier turn of this conversation is gone from Redis" in (records[2].error or "")

    on_loop(scene)


def test_a_conversation_that_outgrows_its_bound_between_feeder_and_worker_fails_its_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scene(parts: WorkerParts) -> None:
        run = talk(parts, rows_of(2))
        for _ in range(2):
            run.may_feed_next = True
            parts.scheduler.feed_all()
            (attempt,) = parts.permits(run.ref, 1, "sim:fast")
            bound = 1 << 20 if attempt.job == 0 else 1
            monkeypatch.setattr(conversation, "_most_bytes", lambda rendering, most=bound: most)
            assert await parts.executor.execute(attempt) is not None
            monkeypatch.undo()
        assert "this conversation have" in (parts.task(attempt).error or "")

    on_loop(scene)


def test_a_continued_run_of_an_earlier_version_keeps_its_turns_apart() -> None:
    async def scene(parts: WorkerParts) -> None:
        parts.provider.answer = answer
        first = talk(parts, rows_of(3), version=IN_ONE_FIELD)
        before = await played(parts, first)
        again = continued(parts, first, rows_of(4))
        kept = await remembered(parts, again)
        after = RecordReader(parts.scheduler.redis, parts.keys, again.plan.spec).records(range(3))
        assert [each.output for each in after] == [each.output for each in before]
        assert again.plan.spec.version == TURN_FIELDS_VERSION
        assert len([name for name in kept if name.startswith(b"turn:")]) == 3

    on_loop(scene)
