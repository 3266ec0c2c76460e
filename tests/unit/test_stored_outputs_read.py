"""An item reads those stored outputs that its prompt can name, and its call is as with all of them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.client.submitting.submission import build_spec
from fairlane.core.errors import TemplateError
from fairlane.model.choices import Message
from fairlane.model.job import JobState
from fairlane.model.outcome import Success
from fairlane.model.run import Cell, Order, Plan
from fairlane.pipeline.conversation import read_fields, recalled, turn_fields
from fairlane.pipeline.rendering import Rendering, RunItem
from tests.support.played_runs import played
from tests.support.worker_parts import WorkerParts, on_loop

CELL = Cell(row=0, prompt=0, model=0, repetition=0)
NAMES = ["a", "b", "answer_1", "output", "loop", "row", "größe"]
PARTS = [
    *("{{ a }}", "{{a|default('-')}}", "{%- if b is defined %}{{ b }}{% endif -%}", "{{ größe }}"),
    *("{{ row.a }}", "{{ row['answer_' ~ 1] }}", "{{ row }}", "{% for x in [a, b] %}{{ x }}{% endfor %}"),
    *("{% set a = answer_1 %}{{ a }}", "{% macro m(b) %}{{ b ~ a }}{% endmacro %}{{ m(1) }}", "{# a #}b"),
    *("{{ q.a }}", "{% raw %}{{ a }}{% endraw %}", "{{ 'a' }}", "{{ output[:2] }}", "{% if %}"),
    "{% for t in _conversation %}{{ t.output }}{% endfor %}",
]


def called(rendering: Rendering, row: dict[str, Any], stored: dict[bytes, bytes]) -> Any:
    try:
        return rendering.task(CELL, row, recalled(RunItem(rendering, 0, CELL, row), stored)).messages
    except TemplateError as error:
        return str(error)


@given(
    st.lists(st.sampled_from(PARTS), min_size=1, max_size=4).map(" ".join),
    st.dictionaries(st.sampled_from([*NAMES, "q"]), st.sampled_from(["own", None, 7]), max_size=3),
    st.dictionaries(st.sampled_from(NAMES), st.text(max_size=4), max_size=5),
    st.booleans(),
)
def test_a_call_is_as_with_all_stored_outputs(
    prompt: str, row: dict[str, Any], outputs: dict[str, str], talks: bool
) -> None:
    order = Order(
        serial=True, store_output_as="x", conversation=talks, conversation_field="q" if talks else None
    )
    spec = build_spec("r1", "search", 1, prompt="-", model="sim:fast")
    prompts = ((Message(role="user", content=prompt),),)
    rendering = Rendering(
        Plan(spec=spec.model_copy(update={"order": order, "prompts": prompts})), checked=True
    )
    stored = {f"register:{name}".encode(): output.encode() for name, output in outputs.items()}
    fields = read_fields(RunItem(rendering, 0, CELL, row))
    assert turn_fields(rendering, fields, {b"changed": b"1"}) == ()
    read = stored if fields is None else {name: stored[name] for name in stored if name.decode() in fields}
    assert called(rendering, row, read) == called(rendering, row, stored)


def test_an_item_reads_no_output_that_its_prompt_cannot_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """The leader read all of them for each item, by the square of the rows."""

    async def scene(parts: WorkerParts) -> None:
        parts.provider.answer = lambda request: Success(request.messages[-1]["content"] + "!")
        monkeypatch.setattr(parts.scheduler.runs, "memory", lambda ref: pytest.fail("reads all of them"))
        prompts = ((Message(role="user", content="{{ answer_1 | default('') }}{{ q }}"),),)
        order = Order(serial=True, store_output_as="answer_{{ q }}")
        run = parts.scheduler.admit([{"q": n} for n in range(4)], prompts=prompts, order=order)
        assert [each.state for each in await played(parts, run)] == [JobState.SUCCEEDED] * 4
        asked = [each.messages[0]["content"] for each in parts.provider.requests]
        assert asked == ["0", "1", "1!2", "1!3"]

    on_loop(scene)
