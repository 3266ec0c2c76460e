"""Submissions that would pay for the same answer twice, or for a text that names no row, are refused."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane import SubmissionError, llm_judge, numeric_match, regex
from fairlane.client.submitting.arguments import take_models, take_prompts
from fairlane.client.submitting.parameters import check_repetitions
from fairlane.evaluators.builders import similarity
from fairlane.model.evaluators import Judge
from tests.support.stage import Stage

ROWS = [{"question": "1 + 1?", "id": n} for n in range(2)]


def submit(stage: Stage, prompt: str | None = "{{ question }}", rows: Any = ROWS, **options: Any) -> Any:
    return stage.client.submit(rows, prompt, **{"model": "sim:fast"} | options)


@pytest.mark.parametrize(
    "params",
    [
        {"seed": 42},
        {"seed": 0},
        {"random_seed": 1},
        {"generationConfig": {"seed": 7}},
        {"options": {"seed": 7}},
    ],
)
def test_a_seed_with_repetitions_buys_one_answer_several_times(stage: Stage, params: Any) -> None:
    with pytest.raises(SubmissionError, match="its 3 repetitions would be equal") as caught:
        submit(stage, params=params, repetitions=3)
    assert "check=False" in str(caught.value)
    submit(stage, params=params)
    submit(stage, params=params, repetitions=3, check=False)


def test_a_seed_in_a_rows_own_request_is_seen_too(stage: Stage) -> None:
    rows = [{"r": {"messages": [{"role": "user", "content": "q"}], "seed": 1}}]
    with pytest.raises(SubmissionError, match="repetitions would be equal"):
        submit(stage, None, rows, request="r", repetitions=2)
    submit(stage, None, rows, request="r")


def test_a_null_seed_is_accepted_with_repetitions() -> None:
    check_repetitions(5, "params", {"seed": None, "temperature": 1, "options": {"num_ctx": 1}})


@pytest.mark.parametrize(
    "prompt", ["Q: {question}", "Q: { question }?", "Q: {}", "Q: {0}.", "Q: %s", "Q: %(question)s, is it %d?"]
)
def test_braces_of_other_tools_are_no_variables(stage: Stage, prompt: str) -> None:
    with pytest.raises(SubmissionError, match=r"Write \{\{ question \}\}"):
        submit(stage, prompt)
    submit(stage, prompt, check=False)


@pytest.mark.parametrize(
    ("prompt", "rows"),
    [
        ("Answer in JSON, like {answer}", ROWS),  # no field of the rows
        ("{question} is {{ question }}", ROWS),  # names one, so the braces are meant
        ("Say {question}", ROWS[:1]),  # one row
        ("Say hello", ROWS),  # a sample of one prompt
        ("Say {}, or %s", ROWS[:1]),
        ("Is 5 %, or 5%surplus, {{ question }}, %s?", ROWS),
        ("A sale of 20%, and 30%down", ROWS),
        ('{"question": 1}', ROWS),
    ],
)
def test_other_braces_are_sent_as_they_are(stage: Stage, prompt: str, rows: Any) -> None:
    submit(stage, prompt, rows)


def test_several_prompts_are_looked_at_one_by_one(stage: Stage) -> None:
    with pytest.raises(SubmissionError, match=r"prompts\[1\]"):
        submit(stage, None, prompts=["{{ question }}", "{question}"])


@given(st.lists(st.sampled_from(["sim:a", "sim:b", " sim:a", "sim:{{ m }}"]), min_size=1, max_size=4))
def test_models_are_taken_once(models: list[str]) -> None:
    if len({each.strip() for each in models}) == len(models):
        assert take_models(None, models) == tuple(models)
    else:
        with pytest.raises(SubmissionError, match="repetitions="):
            take_models(None, models)


CHATS = ["{{ q }}", "q", [{"role": "user", "content": "q"}], [{"role": "system", "content": "q"}]]


@given(st.lists(st.integers(0, 3), min_size=1, max_size=4))
def test_prompts_are_taken_once(chosen: list[int]) -> None:
    same = {2: 1}  # a text is one user message
    prompts: list[Any] = [CHATS[each] for each in chosen]
    if len({same.get(each, each) for each in chosen}) == len(chosen):
        assert len(take_prompts(None, None, prompts)) == len(chosen)
    else:
        with pytest.raises(SubmissionError, match="is the same as prompts"):
            take_prompts(None, None, prompts)


@pytest.mark.parametrize(
    "build",
    [
        lambda: numeric_match("a", tolerance=True),
        lambda: numeric_match("a", tolerance=float("nan")),
        lambda: regex(""),
        lambda: similarity("sim:embed", text=""),
        lambda: similarity("sim:embed", text=" "),
    ],
)
def test_evaluators_that_say_the_same_of_every_output_are_refused(build: Any) -> None:
    with pytest.raises(SubmissionError):
        build()


@pytest.mark.parametrize(
    ("choices", "taken"),
    [
        ({1: 1, 0: 0}, {"1": 1.0, "0": 0.0}),
        ({0.5: 0.5, 1.0: 1}, {"0.5": 0.5, "1": 1.0}),
        ({True: 1, False: 0}, {"true": 1.0, "false": 0.0}),
        ({"yes": True, "no": False}, {"yes": 1.0, "no": 0.0}),
    ],
)
def test_choices_that_are_no_texts_stand_for_their_texts(choices: Any, taken: dict[str, float]) -> None:
    judge = llm_judge("sim:judge", "{{ output }}", choices)
    assert isinstance(judge, Judge)
    assert judge.choices == taken


@pytest.mark.parametrize(
    "choices", [{1: 1, "1": 0}, {None: 1}, {(1,): 1}, {"yes": "1"}, {"yes": float("inf")}]
)
def test_choices_without_texts_or_scores_are_refused(choices: Any) -> None:
    with pytest.raises(SubmissionError):
        llm_judge("sim:judge", "{{ output }}", choices)
