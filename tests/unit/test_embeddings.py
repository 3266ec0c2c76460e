"""Embeddings: written, read, compared, and scored by an evaluator."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

import fairlane
from fairlane import similarity
from fairlane.core.errors import SubmissionError, TemplateError
from fairlane.evaluators.embeddings import BrokenEmbeddings, cosine, pack, read_embeddings
from fairlane.model.choices import Message
from fairlane.model.evaluators import EvaluatorSpec
from fairlane.model.job import JobState
from fairlane.model.outcome import Success
from fairlane.model.run import Plan, RunSpec
from fairlane.model.tokens import Usage
from fairlane.pipeline.evaluations import FinishedJob, evaluation_result
from fairlane.pipeline.rendering import Rendering

FLOATS = st.floats(-1000, 1000, width=32)
SERVERS = {"sim": "one"}
MODEL = "sim:embedder"


def rendering(evaluator: EvaluatorSpec) -> Rendering:
    spec = RunSpec(
        run="r1",
        team="t",
        name="r1",
        prompts=((Message(role="user", content="{{ q }}"),),),
        models=("sim:m",),
        evaluators=(evaluator,),
        rows=1,
        page_rows=1,
        submitted_ms=0,
    )
    return Rendering(Plan(spec=spec, eval_lanes=(MODEL,)))


def test_a_record_without_embeddings_has_none_to_read() -> None:
    with pytest.raises(ValueError, match="no embeddings"):
        fairlane.read_embeddings(None)


@given(st.lists(st.lists(FLOATS, min_size=1, max_size=50), max_size=5))
def test_what_is_packed_is_unpacked(vectors: list[list[float]]) -> None:
    assert [list(vector) for vector in read_embeddings(pack(vectors))] == vectors


@given(st.lists(st.tuples(FLOATS, FLOATS), min_size=1, max_size=50))
def test_a_cosine_is_that_of_the_angle(pairs: list[tuple[float, float]]) -> None:
    a, b = [x for x, _ in pairs], [y for _, y in pairs]
    if not any(a) or not any(b) or math.hypot(*a) * math.hypot(*b) == 0:
        with pytest.raises(BrokenEmbeddings):
            cosine(a, b)
        return
    value = cosine(a, b)
    assert -1 <= value <= 1
    assert value == pytest.approx(cosine(b, a))
    assert cosine(a, a) == pytest.approx(1)
    assert cosine(a, [-x for x in a]) == pytest.approx(-1)


@pytest.mark.parametrize("text", ["", "x", "3", "[3]", '["AAA"]', '["äöü"]', '[["a"]]', "{}" * 3])
def test_a_text_without_embeddings_is_named_so(text: str) -> None:
    with pytest.raises(BrokenEmbeddings):
        read_embeddings(text)


@pytest.mark.parametrize(("a", "b"), [([], []), ([1.0], [1.0, 2.0]), ([0.0], [1.0])])
def test_vectors_without_an_angle_are_named_so(a: list[float], b: list[float]) -> None:
    with pytest.raises(BrokenEmbeddings):
        cosine(a, b)


def test_one_call_embeds_the_output_and_what_is_expected() -> None:
    made = rendering(similarity(MODEL, "answer", params={"dimensions": 8}))
    call = made.evaluation(made.spec.evals[0], {"answer": 42}, "forty-two")
    assert (call.model, call.inputs, call.messages) == (MODEL, ("forty-two", "42"), [])
    assert call.params == {"dimensions": 8}
    assert call.tokens.output == 0 < call.tokens.input


def test_calls_for_other_texts_have_other_digests() -> None:
    made = rendering(similarity(MODEL, text="yes"))
    calls = [made.evaluation(made.spec.evals[0], {}, output) for output in ("a", "b", "a")]
    first, second, third = (call.digest("", SERVERS) for call in calls)
    assert first == third != second


def test_a_row_without_the_field_is_reported() -> None:
    made = rendering(similarity(MODEL, "answer"))
    with pytest.raises(TemplateError, match="the row has no field 'answer'"):
        made.evaluation(made.spec.evals[0], {}, "x")


@pytest.mark.parametrize(
    ("threshold", "reference", "score"),
    [(None, [1.0, 1.0], math.sqrt(0.5)), (0.7, [1.0, 1.0], 1.0), (0.72, [1.0, 1.0], 0.0)],
)
def test_the_score_is_the_cosine_or_whether_it_is_enough(
    threshold: float | None, reference: list[float], score: float
) -> None:
    made = rendering(similarity(MODEL, "answer", threshold=threshold))
    answer = Success(pack([[1.0, 0.0], reference]), Usage(5, 0))
    result = evaluation_result(made.spec.evals[0], FinishedJob(answer, attempts=1))
    assert (result.state, result.error, result.answer) == (JobState.SUCCEEDED, None, None)
    assert result.score == pytest.approx(score)
    assert result.usage == Usage(5, 0)


@pytest.mark.parametrize("text", ["no", pack([[1.0]]), pack([[1.0], [1.0, 2.0]])])
def test_an_answer_that_cannot_be_compared_fails_the_evaluation(text: str) -> None:
    made = rendering(similarity(MODEL, "answer"))
    result = evaluation_result(made.spec.evals[0], FinishedJob(Success(text), attempts=1))
    assert (result.state, result.score) == (JobState.FAILED, None)
    assert result.error


@pytest.mark.parametrize("texts", [{}, {"expected": "a", "text": "b"}])
def test_one_text_to_compare_with_is_asked_for(texts: dict[str, str]) -> None:
    with pytest.raises(SubmissionError, match="one of expected and text"):
        similarity(MODEL, **texts)  # type: ignore[arg-type]
