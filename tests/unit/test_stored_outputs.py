"""Stored outputs take the place of a row's field; prompts that no first item can fill are refused."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane import SubmissionError
from fairlane.client.submitting.submission import build_spec
from fairlane.client.submitting.trial import FIRST_ROWS, check_rows
from fairlane.config.settings import Settings
from fairlane.core.errors import TemplateError
from fairlane.model.run import Cell, Plan, RunSpec
from fairlane.pipeline.rendering import Rendering
from tests.support.stage import Stage

ROWS = [{"q": "a"}, {"q": "b"}]
TURNS = "{% for turn in _conversation %}{{ turn.output }}{% endfor %}"
CELL = Cell(row=0, prompt=0, model=0, repetition=0)


def submit(stage: Stage, prompt: Any, rows: Any = ROWS, **options: Any) -> Any:
    key = "prompts" if isinstance(prompt, list) else "prompt"
    return stage.client.submit(rows, **{"model": "sim:fast", key: prompt} | options)


@given(st.text(max_size=8), st.text(max_size=8), st.one_of(st.none(), st.text(max_size=8), st.integers()))
def test_a_stored_output_takes_the_place_of_a_field(stored: str, q: str, own: object) -> None:
    spec = build_spec("r1", "search", 1, prompt="<{{ s }}>{{ q }}", model="sim:fast", store_output_as="s")
    rendering = Rendering(Plan(spec=spec))
    row = {"q": q, "s": own}
    call = rendering.task(CELL, row, {"s": stored})
    assert call.messages[0]["content"] == f"<{stored}>{q}"
    assert row == {"q": q, "s": own}
    chars = rendering.task_chars(CELL, row, {"s": stored})
    assert chars is None or chars >= len(stored)


@pytest.mark.parametrize(
    ("prompt", "options"),
    [
        ("{{ summary }} {{ q }}", {"store_output_as": "summary"}),
        (["{{ s }} {{ q }}", "{{ s }}"], {"store_output_as": "s"}),
        ("{{ s }} {{ q }}", {"store_output_as": "{{ '' if q == 'a' else 's' }}"}),
        ("{{ sumary | default('') }} {{ qu }}", {"store_output_as": "summary"}),
        (TURNS + "{{ qu }}", {}),
        (TURNS + "{{ qu }}", {"conversation": "q"}),
        ("{{ _conversation[-1].output }} {{ q }}", {}),
        ("{{ qu }}", {"run_serially": True}),
    ],
)
def test_a_prompt_that_no_first_item_can_fill_is_refused(
    stage: Stage, prompt: Any, options: dict[str, Any]
) -> None:
    with pytest.raises(SubmissionError, match="prompt"):
        submit(stage, prompt, **options)
    submit(stage, prompt, **options, check=False)


def test_a_turn_before_the_first_is_named_as_such(stage: Stage) -> None:
    with pytest.raises(SubmissionError, match=r"list that is empty.*A first item has no earlier turns"):
        submit(stage, "{{ _conversation[-1].output }} {{ q }}")
    with pytest.raises(SubmissionError, match="list that is empty") as refused:
        submit(stage, "{{ tags[0] }} {{ q }}", [{"q": "a", "tags": []}, {"q": "b", "tags": []}])
    assert "earlier turns" not in str(refused.value)


@pytest.mark.parametrize(
    ("prompt", "rows", "options"),
    [
        ("{{ s | default('') }} {{ q }}", ROWS, {"store_output_as": "s"}),
        ("{{ s }} {{ q }}", [{"q": "a", "s": ""}, {"q": "b"}], {"store_output_as": "s"}),
        (["{{ q }}", "{{ s }}"], ROWS, {"store_output_as": "s"}),
        (["{{ q }}", "{{ s[3] }}"], ROWS, {"store_output_as": "s"}),
        ("{{ s_a | default(q) }}", ROWS, {"store_output_as": "s_{{ q }}"}),
        (["{{ q }}", "{{ s_a }}"], ROWS, {"store_output_as": "s_{{ q }}"}),
        (TURNS + "{{ q }}", ROWS, {}),
        ("{{ _conversation | length }}{{ q }}", ROWS, {}),
        (
            "{{ _conversation[-1].output if _conversation }}{{ q }}",
            ROWS,
            {"run_serially": True},
        ),
    ],
)
def test_a_prompt_that_an_item_can_fill_is_taken(
    stage: Stage, prompt: Any, rows: Any, options: dict[str, Any]
) -> None:
    submit(stage, prompt, rows, **options)


def test_a_prompt_that_reads_what_is_not_stored_yet_needs_a_default(stage: Stage) -> None:
    with pytest.raises(SubmissionError, match=r"\{\{ summary \| default\(''\) \}\}"):
        submit(stage, "{{ summary }} {{ q }}", store_output_as="summary")


def test_a_field_of_run_serially_that_no_row_has_is_refused(stage: Stage) -> None:
    with pytest.raises(SubmissionError, match=r"run_serially.*'alone'"):
        submit(stage, "{{ q }}", run_serially="aloen", rows=[{"q": "a", "alone": True}])
    submit(stage, "{{ q }}", run_serially="alone", rows=[{"q": "a", "alone": False}, {"q": "b"}])


def test_marked_rows_behind_the_first_may_store_what_these_read(stage: Stage) -> None:
    rows = [{"q": str(n), "first": False} for n in range(FIRST_ROWS)] + [{"q": "x", "s": "", "first": True}]
    submit(stage, "{{ s }} {{ q }}", rows, store_output_as="s", run_serially="first")


PARTS = st.sampled_from(
    ["{{ a }}", "{{ b }}", "{{ s_1 }}", "{{ s_2 | default('-') }}", "{% if a %}{{ s_1 }}{% endif %}", "x"]
)
VALUES = st.dictionaries(st.sampled_from(["a", "b", "s_1"]), st.sampled_from([1, 2, "", None]), max_size=3)
NAMES = st.sampled_from(["s_1", "s_{{ a }}", "s_{{ b | default(1) }}"])


@given(
    st.lists(PARTS.map("q{}".format), min_size=1, max_size=3, unique=True),
    st.lists(VALUES, max_size=4),
    NAMES,
)
def test_what_is_refused_would_have_had_no_output(
    prompts: list[str], rows: list[dict[str, Any]], name: str
) -> None:
    rows = [{"id": number, **row} for number, row in enumerate([{}, *rows])]
    spec = build_spec("r1", "search", 1, prompts=prompts, model="sim:fast", store_output_as=name)
    refused = None
    try:
        check_rows(spec, rows, Settings())
    except SubmissionError as error:
        refused = error.field
    outputs = played(spec, rows)
    if refused is not None and refused.startswith("prompt"):
        number = int(refused[8:-1]) if "[" in refused else 0
        assert outputs[number] == 0
    elif refused is None and len(prompts) == 1:
        assert outputs[0]


def played(spec: RunSpec, rows: list[dict[str, Any]]) -> list[int]:
    """How many outputs each prompt has, item by item in the order of a serial run."""
    rendering, memory, outputs = Rendering(Plan(spec=spec)), dict[str, Any](), [0] * len(spec.prompts)
    for row in rows:
        for prompt in range(len(spec.prompts)):
            with suppress(TemplateError):
                rendering.task(Cell(row=0, prompt=prompt, model=0, repetition=0), row, memory)
                outputs[prompt] += 1
                memory[rendering.register(row)] = "out"
    return outputs
