"""A continued run takes over whole results, and only those that belong to the item as it is now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from hashlib import sha256
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from fairlane.model.choices import Message
from fairlane.model.evaluators import FunctionScorer
from fairlane.model.job import JobState
from fairlane.model.outcome import Outcome, PermanentFailure, Success
from fairlane.model.record import Record
from fairlane.model.results import TaskResult
from fairlane.model.run import CacheChoice, Order
from fairlane.model.tokens import Usage
from fairlane_workers.providers.contract import Request
from tests.support.played_runs import continued, played
from tests.support.worker_parts import WorkerParts, on_loop

OF_THE_CALL = {"status", "retry_after_ms", "hints", "model"}
"""Fields of a success that its lane needs, and no record."""

CUT = Success("The answer, after", Usage(10, 1024), "length", left_out=("temperature",))


def test_a_stored_success_keeps_every_field_that_a_record_shows() -> None:
    kept = {each.name for each in fields(Success)} - OF_THE_CALL
    assert kept <= {each.name for each in fields(TaskResult)}
    result = TaskResult(JobState.SUCCEEDED, **{name: f"its {name}" for name in kept})  # type: ignore[arg-type]
    assert {name: getattr(result.as_success(), name) for name in kept} == {n: f"its {n}" for n in kept}


def test_a_record_is_the_same_after_its_run_was_continued() -> None:
    async def scene(parts: WorkerParts) -> None:
        parts.provider.answer = CUT
        first = parts.scheduler.admit([{"q": "x"}])
        before = await played(parts, first)
        assert (before[0].finish_reason, list(before[0].notes)) == ("length", ["task"])
        second = continued(parts, first)
        assert await played(parts, second) == before
        assert await played(parts, continued(parts, second, run="r3")) == before

    on_loop(scene)


def test_a_function_that_scores_is_called_again_and_one_that_answers_is_not() -> None:
    async def scene(parts: WorkerParts) -> None:
        told = iter(["the output", "1", "0"])
        parts.providers["python"].answer = lambda request: Success(next(told))
        scorer = FunctionScorer(name="s", function="m.f")
        first = parts.scheduler.admit([{"q": 1}], model="python:m.f", prompts=(), evaluators=(scorer,))
        (before,) = await played(parts, first)
        (after,) = await played(parts, continued(parts, first))
        assert [(each.output, each.scores["s"]) for each in (before, after)] == [
            ("the output", 1.0),
            ("the output", 0.0),
        ]

    on_loop(scene)


TURNS = "{{ q }} after {% for turn in _conversation %}{{ turn.output }}, {% endfor %}"
REGISTER = "{{ q }} after {{ last | default('nothing') }}"
TALK = {"prompts": ((Message(role="user", content=TURNS),),)}
ORDERS = {
    "one conversation": (TURNS, Order(serial=True, conversation=True)),
    "conversations": (TURNS, Order(serial=True, conversation=True, conversation_field="who")),
    "one conversation for each cell": (TURNS, Order(turns=True, conversation=True)),
    "turns": (TURNS, Order(turns=True, conversation=True, conversation_field="who")),
    "stored outputs": (REGISTER, Order(serial=True, store_output_as="last")),
}

row = st.fixed_dictionaries({"q": st.integers(0, 9), "who": st.sampled_from("ab")})


def answered(prompt: str) -> str:
    return sha256(prompt.encode()).hexdigest()[:8]


class Talker:
    """Answers what it is asked, differently for each prompt; the questions in ``rejects`` fail."""

    def __init__(self, rejects: Sequence[int] = ()) -> None:
        self.rejects, self.asked = rejects, 0

    def __call__(self, request: Request) -> Outcome:
        prompt = request.messages[-1]["content"]
        self.asked += 1
        if int(prompt.partition(" ")[0]) in self.rejects:
            return PermanentFailure("rejected this time")
        return Success(answered(prompt), finish_reason="stop")


def expected(records: Sequence[Record], kind: str) -> list[str | None]:
    """What each item is answered after the outputs of those before it."""
    told: dict[str, list[str]] = {}
    found: list[str | None] = []
    for record in records:
        before = told.setdefault(record.row["who"] if ORDERS[kind][1].conversation_field else "", [])
        after = "".join(f"{output}, " for output in before)
        if kind == "stored outputs":
            after = before[-1] if before else "nothing"
        found.append(None if record.output is None else answered(f"{record.row['q']} after {after}"))
        before += [] if record.output is None else [record.output]
    return found


@settings(max_examples=40)
@given(
    kind=st.sampled_from(sorted(ORDERS)),
    rows=st.lists(row, min_size=1, max_size=6),
    other=st.none() | st.lists(row, max_size=3),
    rejects=st.lists(st.lists(st.integers(0, 9), max_size=4), min_size=3, max_size=3),
    cached=st.booleans(),
    data=st.data(),
)
def test_no_turn_keeps_an_output_of_another_conversation(
    kind: str, rows: list[Any], other: list[Any] | None, rejects: list[list[int]], cached: bool, data: Any
) -> None:
    content, order = ORDERS[kind]
    grown = None
    if other is not None:
        grown = data.draw(st.permutations([*rows[: data.draw(st.integers(0, len(rows)))], *other]))

    async def scene(parts: WorkerParts) -> None:
        parts.provider.answer = Talker(rejects[0])
        asked: dict[str, Any] = {"prompts": ((Message(role="user", content=content),),), "order": order}
        mode = CacheChoice(mode="read_write" if cached else "off")
        run = parts.scheduler.admit(rows, cache=mode, **asked)
        first = await played(parts, run)
        assert [each.output for each in first] == expected(first, kind)
        for number, rejected in enumerate(rejects[1:], start=2):
            parts.provider.answer = Talker(rejected)
            run = continued(parts, run, grown if number == 2 and grown else None, run=f"r{number}")
            records = await played(parts, run)
            assert [each.output for each in records] == expected(records, kind)

    on_loop(scene)


def test_turns_before_the_first_that_is_called_again_are_taken_over() -> None:
    async def scene(parts: WorkerParts) -> None:
        parts.provider.answer = Talker([2])
        rows = [{"q": number, "who": who} for number in (1, 2, 3) for who in "ab"]
        rows[2]["q"] = 5  # only the second turn of b fails
        order = ORDERS["conversations"][1]
        first = parts.scheduler.admit(rows, order=order, **TALK)
        before = await played(parts, first)
        assert [each.item for each in before if each.state is JobState.FAILED] == [3]
        parts.provider.answer = talker = Talker()
        after = await played(parts, continued(parts, first))
        assert talker.asked == 2, "the second and the third turn of b"
        same = [one.output == other.output for one, other in zip(before, after, strict=True)]
        assert same == [True, True, True, False, True, False]

    on_loop(scene)
