"""A conversation has the turns of its own rows, and ends where one of them has no output."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlane import SubmissionError
from fairlane.client.submitting.submission import build_spec
from fairlane.core.errors import TemplateError
from fairlane.datasets.sessions import Numbering
from fairlane.model.choices import TURN_MESSAGES_VERSION, Message
from fairlane.model.job import JobState
from fairlane.model.outcome import Outcome, PermanentFailure, Success
from fairlane.model.run import Cell, Order, Plan
from fairlane.model.sessions import decode_memberships
from fairlane.pipeline.rendering import Rendering
from fairlane_workers.providers.contract import Request
from tests.support.played_runs import continued, played
from tests.support.stage import Stage
from tests.support.worker_parts import WorkerParts, on_loop

TALK = "{% for turn in _conversation %}{{ turn.output }},{% endfor %}{{ q }}"
ROWS = [{"q": 1, "who": "a"}, {"q": 2, "who": "b"}]
LACKS = "its conversation lacks an earlier turn: row {} has no output"


class Talker:
    """Answers with what it is asked, in brackets; the questions in ``rejects`` fail."""

    def __init__(self, rejects: Sequence[object] = ()) -> None:
        self.rejects, self.asked = [str(each) for each in rejects], list[str]()

    def __call__(self, request: Request) -> Outcome:
        prompt = request.messages[-1]["content"]
        self.asked.append(prompt)
        question = prompt.rpartition(",")[2]
        return PermanentFailure("no") if question in self.rejects else Success(f"[{question}]")


def talk(parts: WorkerParts, rows: Sequence[Any], prompt: str = TALK, **order: Any) -> Any:
    prompts = tuple((Message(role="user", content=each),) for each in (prompt, "{{ q }}"))
    return parts.scheduler.admit(
        rows, prompts=prompts, order=Order(serial=True, conversation=True, conversation_field="who", **order)
    )


def submit(stage: Stage, prompt: str | None = TALK, rows: Any = ROWS, **options: Any) -> Any:
    return stage.client.submit(rows, prompt, **{"model": "sim:fast"} | options)


def order_of(**options: Any) -> Order:
    return build_spec("r", "t", 0, **{"prompt": TALK, "model": "sim:fast"} | options).order


def test_the_sessions_of_rows_are_their_conversations() -> None:
    assert order_of(session="who").conversation_field == "who"
    assert order_of(session="who", conversation="q").conversation_field == "q"
    assert order_of().conversation_field is None
    assert order_of(session="who", prompt="{{ q }}").conversation_field is None


def test_a_field_of_conversations_that_no_row_has_is_refused(stage: Stage) -> None:
    with pytest.raises(SubmissionError, match="Did you mean 'who'") as caught:
        submit(stage, conversation="wo")
    assert caught.value.field == "conversation"
    with pytest.raises(SubmissionError) as caught:
        submit(stage, session="wo")
    assert caught.value.field == "session"
    submit(stage, conversation="who")


def test_a_conversation_that_no_prompt_reads_is_refused(stage: Stage) -> None:
    with pytest.raises(SubmissionError, match="no prompt reads _conversation"):
        submit(stage, "{{ q }}", conversation="who")


CHAT = [{"role": "system", "content": "s"}, "_conversation", {"role": "user", "content": "{{ q }}"}]


@given(st.lists(st.tuples(st.sampled_from("ab"), st.text('xy,{%"', min_size=1, max_size=9)), max_size=8))
def test_earlier_turns_are_messages_in_the_place_that_stands_for_them(turns: list[tuple[str, str]]) -> None:
    """What a provider gets is the dialogue that its own client would hold."""
    asked = dict[str, list[Any]]()

    def answer(request: Request) -> Outcome:
        talk = [(each["role"], each["content"]) for each in request.messages]
        asked[talk[-1][1]] = talk
        return Success(f"<{talk[-1][1]}>")

    async def scene(parts: WorkerParts) -> None:
        parts.provider.answer = answer
        rows = [{"q": f"{number} {text}", "who": who} for number, (who, text) in enumerate(turns)]
        spec = build_spec("r", "t", 0, messages=CHAT, model="sim:m", conversation="who")
        await played(
            parts, parts.scheduler.admit(rows, prompts=spec.prompts, order=spec.order, version=spec.version)
        )
        talks: dict[str, list[Any]] = {}
        for row in rows:
            talk = talks.setdefault(row["who"], [("system", "s")])
            talk.append(("user", row["q"]))
            assert asked[row["q"]] == talk
            talk.append(("assistant", f"<{row['q']}>"))

    on_loop(scene)


def test_messages_that_stand_for_turns_keep_what_they_show_and_need_new_processes() -> None:
    spec = build_spec("r", "t", 0, messages=CHAT, model="sim:fast")
    assert spec.order.turn_fields == ("input", "output")
    assert spec.order.conversation
    assert spec.version == TURN_MESSAGES_VERSION
    told = [{"role": "_conversation", "content": "anything"}, *CHAT[2:]]
    assert build_spec("r", "t", 0, messages=told, model="sim:fast").prompts[0] == spec.prompts[0][1:]
    with pytest.raises(SubmissionError, match="no messages of its own"):
        build_spec("r", "t", 0, messages=["_conversation"], model="sim:fast")


@pytest.mark.parametrize("memory", [5, [5], ["x"], {"a": 1}, None, [{"input": {"a": 1}, "output": None}]])
def test_what_a_team_wrote_in_place_of_turns_fails_its_own_item(memory: Any) -> None:
    """A team may write its spec and its memory itself, and the leader renders what needs no Jinja."""
    spec = build_spec("r", "t", 0, messages=CHAT, model="sim:fast")
    told = (Message(role="_conversation", content="x"), *spec.prompts[0][2:])
    rendering = Rendering(Plan(spec=spec.model_copy(update={"prompts": (told,)})))
    with suppress(TemplateError):
        call = rendering.task(
            Cell(row=0, prompt=0, model=0, repetition=0), {"q": "1"}, {"_conversation": memory}
        )
        assert all(isinstance(each["content"], str) for each in call.messages)
        assert call.tokens.input > 0


@pytest.mark.parametrize("loop", ["", "{% for turn in _conversation %}"])
def test_a_prompt_that_spells_out_messages_is_refused(stage: Stage, loop: str) -> None:
    end = "{% endfor %}" if loop else ""
    with pytest.raises(SubmissionError, match=r'Give messages=.*"_conversation"'):
        submit(stage, f'[ {loop}{{"role": "user", "content": "{{{{ q }}}}"}},{end} ]')


KEYS = st.none() | st.sampled_from([1, 1.0, "1", "", "None", True, [1], {"a": 1, "b": 2}, {"b": 2, "a": 1}])
KEYED = st.fixed_dictionaries({"q": st.integers(0, 9)}, optional={"who": KEYS})


def sessions_of(rows: Sequence[Any]) -> list[int | None]:
    """The number of each row's session; none for a row that has none."""
    numbering = Numbering("who")
    keyed = [row for row in rows if row.get("who") is not None]
    list(numbering.watch([keyed]))
    blob = next((blob for field, blob in numbering.fields(len(keyed) or 1)), None)
    members = [] if blob is None else decode_memberships(blob, numbering.sessions)
    numbers = iter(member.session for member in members)
    return [None if row.get("who") is None else next(numbers) for row in rows]


def told(rows: Sequence[Any]) -> list[str]:
    """What is asked for each row, after the outputs of its session before it."""
    sessions: dict[int, str] = {}
    found = []
    for row, session in zip(rows, sessions_of(rows), strict=True):
        before = "" if session is None else sessions.get(session, "")
        found.append(f"{before}{row['q']}")
        if session is not None:
            sessions[session] = f"{before}[{row['q']}],"
    return found


@settings(max_examples=40)
@given(rows=st.lists(KEYED, min_size=1, max_size=7))
def test_only_rows_of_one_session_share_a_conversation(rows: list[Any]) -> None:
    async def scene(parts: WorkerParts) -> None:
        parts.provider.answer = talker = Talker()
        records = await played(parts, talk(parts, rows))
        assert talker.asked[::2] == told(rows)
        assert {each.state for each in records} == {JobState.SUCCEEDED}

    on_loop(scene)


def test_nothing_is_asked_behind_a_turn_without_an_output() -> None:
    async def scene(parts: WorkerParts) -> None:
        parts.provider.answer = talker = Talker([5])
        rows = [
            {"q": q, "who": who} for q, who in ((1, "a"), (5, "a"), (2, "b"), (3, "a"), (4, "b"), (6, "a"))
        ]
        first = talk(parts, [*rows, {"q": 5}, {"q": 7}])
        records = (await played(parts, first))[::2]
        assert [each.output for each in records] == ["[1]", None, "[2]", None, "[4]", None, None, "[7]"]
        assert [each.state for each in records].count(JobState.INVALID) == 2
        for each in (records[3], records[5]):
            assert (each.error or "").startswith(LACKS.format(2))
        assert [each for each in talker.asked if "[1]" in each] == ["[1],5"]
        parts.provider.answer = talker = Talker()
        after = (await played(parts, continued(parts, first)))[::2]
        assert [each.output for each in after] == ["[1]", "[5]", "[2]", "[3]", "[4]", "[6]", "[5]", "[7]"]
        assert [each for each in talker.asked if "," in each] == ["[1],5", "[1],[5],3", "[1],[5],[3],6"]

    on_loop(scene)


def test_a_kept_failure_ends_its_conversation_as_well() -> None:
    async def scene(parts: WorkerParts) -> None:
        parts.provider.answer = Talker([5])
        first = talk(parts, [{"q": q, "who": "a"} for q in (1, 5, 3)])
        before = await played(parts, first)
        assert before[4].state is JobState.INVALID
        parts.provider.answer = talker = Talker()
        after = await played(parts, continued(parts, first, retry_errors=False))
        assert [(each.state, each.output) for each in after] == [(each.state, each.output) for each in before]
        assert talker.asked == []

    on_loop(scene)


@settings(max_examples=40)
@given(
    rows=st.lists(
        st.fixed_dictionaries({"who": st.sampled_from("ab")}, optional={"q": st.integers(0, 4)}), max_size=7
    ),
    rejects=st.lists(st.integers(0, 4), max_size=3),
)
def test_a_turn_that_fails_or_is_invalid_is_the_last_of_its_conversation(
    rows: list[Any], rejects: list[int]
) -> None:
    async def scene(parts: WorkerParts) -> None:
        parts.provider.answer = Talker(rejects)
        run = talk(parts, [*rows, {"q": 9, "who": "c"}])
        records = (await played(parts, run))[::2]
        broken: dict[str, int] = {}
        for number, record in enumerate(records, start=1):
            who = record.row["who"]
            if who in broken:
                assert (record.error or "").startswith(LACKS.format(broken[who]))
            elif record.output is None:
                broken[who] = number
                assert LACKS.partition(":")[0] not in (record.error or "")
        asked_after = parts.provider.answer.asked
        assert not any(f"[{rejected}]" in each for rejected in rejects for each in asked_after)

    on_loop(scene)


def test_an_output_whose_name_cannot_be_made_is_still_a_turn() -> None:
    async def scene(parts: WorkerParts) -> None:
        parts.provider.answer = talker = Talker()
        rows = [{"q": 1, "who": "a"}, {"q": 2, "who": "a", "name": "x"}, {"q": 3, "who": "a"}]
        await played(parts, talk(parts, rows, store_output_as="{{ name }}"))
        assert talker.asked[::2] == ["1", "[1],2", "[1],[2],3"]

    on_loop(scene)


def test_a_run_that_an_earlier_version_fed_goes_on() -> None:
    async def scene(parts: WorkerParts) -> None:
        parts.provider.answer = talker = Talker()
        run = talk(parts, [{"q": 1, "who": "a"}, {"q": 2, "who": "a"}])
        field = 'conversation:0.0.0:"a"'
        parts.scheduler.redis.hset(parts.keys.memory(run.ref), field, '[{"output": "before"}]')
        await played(parts, run)
        assert talker.asked[::2] == ["before,1", "before,[1],2"]

    on_loop(scene)


def test_functions_store_no_turns_and_miss_none() -> None:
    async def scene(parts: WorkerParts) -> None:
        parts.providers["python"].answer = lambda request: Success("said")
        prompt = "{% if _conversation is defined %}told{% endif %}{{ q }}"
        run = parts.scheduler.admit(
            [{"q": 1}, {"q": 2}],
            model="python:m.f",
            prompts=((Message(role="user", content=prompt),),),
            order=Order(serial=True, conversation=True),
        )
        assert [each.output for each in await played(parts, run)] == ["said", "said"]

    on_loop(scene)
