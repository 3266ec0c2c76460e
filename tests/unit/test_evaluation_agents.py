"""Agents: what their constructors refuse, what they ask for, and how their answers are read."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from fairlane import SubmissionError, agent, criterion, llm_judge
from fairlane.evaluators.agents import Opinion, flaw, read_batch, read_opinion
from fairlane.evaluators.builders import check_names
from fairlane.evaluators.rubrics import answer_format, instruction
from fairlane.model.evaluators import Agent, Criterion, EvaluatorSpec
from fairlane.model.steps import item_steps

CLARITY, DEPTH = criterion("clarity", "Is it clear?"), criterion("depth", "Is it deep?", 0, 10)
BOTH = (CLARITY, DEPTH)


def reviewer(criteria: Sequence[Criterion] = BOTH, **changes: Any) -> EvaluatorSpec:
    return agent(
        **{"name": "reviewer", "model": "sim:judge", "template": "{{ output }}", "criteria": criteria}
        | changes
    )


def entry(criterion_id: object, score: object, **more: object) -> dict[str, object]:
    return {"criterion_id": criterion_id, "score": score, "argument": "so", **more}


def batch(*entries: object) -> str:
    return json.dumps({"evaluations": entries})


def test_an_agent_travels_as_json() -> None:
    adapter: TypeAdapter[EvaluatorSpec] = TypeAdapter(EvaluatorSpec)
    made = reviewer(batching=True)
    assert adapter.validate_json(adapter.dump_json(made)) == made
    assert isinstance(made, Agent)
    assert (made.params, made.batching, made.criteria) == ({}, True, BOTH)
    assert reviewer(params={"seed": 1}).params == {"seed": 1}  # type: ignore[union-attr]  # pyright: ignore


def test_a_criterion_is_scored_from_one_to_five_unless_stated() -> None:
    assert (CLARITY.minimum, CLARITY.maximum) == (1, 5)
    assert (DEPTH.minimum, DEPTH.maximum) == (0, 10)


def test_three_agents_of_ten_criteria_make_thirty_scores_of_their_own() -> None:
    ten = [criterion(f"c{n}", "…") for n in range(10)]
    agents = [reviewer(ten, name=name) for name in ("ethics", "style", "facts")]
    steps = item_steps(agents)
    assert len({step.name for step in steps}) == len(steps) == 30
    assert {step.after for step in steps} == {0}
    assert steps[0].labels == {"agent": "ethics", "dimension": "c0"}
    batched = item_steps([each.model_copy(update={"batching": True}) for each in agents])
    assert [step.labels["dimension"] for step in batched if step.after == 0] == ["*", "*", "*"]
    assert [step.name for step in batched if step.scored] == [step.name for step in steps]


@pytest.mark.parametrize(
    ("build", "shown"),
    [
        (lambda: reviewer([CLARITY, CLARITY]), "two criteria with the id 'clarity'"),
        (lambda: criterion("a", "…", 5, 5), "minimum (5) is not below maximum (5)"),
        (lambda: criterion("a", "…", 6, 5), "minimum (6) is not below maximum (5)"),
        (lambda: criterion("a", "…", float("nan"), 5), "minimum: "),
        (lambda: criterion("two words", "…"), "id: "),
        (lambda: reviewer([]), "agent 'reviewer' has no criteria"),
        (lambda: reviewer(CLARITY), "criteria is no list of criteria"),  # type: ignore[arg-type]
        (lambda: reviewer(["clarity"]), "criteria is no list of criteria"),  # type: ignore[list-item]
        (lambda: reviewer(3), "criteria is no list of criteria"),  # type: ignore[arg-type]
        (lambda: reviewer(name="two words"), "name: "),
        (lambda: reviewer(batching="perhaps"), "batching: "),
    ],
)
def test_a_constructor_says_what_is_wrong(build: Any, shown: str) -> None:
    with pytest.raises(SubmissionError) as raised:
        build()
    assert shown in str(raised.value)


def test_a_score_may_not_be_called_as_another_is() -> None:
    judge = llm_judge("sim:judge", "{{ output }}", {"yes": 1}, name="reviewer.clarity")
    for pair in ((reviewer(), judge), (judge, reviewer())):
        with pytest.raises(
            SubmissionError, match=r"two (scores|evaluators) have this name.*reviewer.clarity"
        ):
            check_names(pair)
    with pytest.raises(SubmissionError, match="two evaluators have this name"):
        check_names((reviewer(), reviewer([DEPTH])))
    check_names((reviewer(), reviewer(name="other"), llm_judge("sim:judge", "…", {"yes": 1}, name="clarity")))


def test_an_agent_is_reported_its_criteria_with_their_scales_and_the_form_of_the_answer() -> None:
    for batched in (False, True):
        shown = instruction(BOTH, batch=batched)
        assert "clarity (1 to 5): Is it clear?" in shown
        assert "depth (0 to 10): Is it deep?" in shown
        assert ("evaluations" in shown) == batched


def test_fr_005_the_schema_of_a_batch_names_every_criterion_and_allows_nothing_else() -> None:
    schema = answer_format(BOTH, batch=True)["json_schema"]["schema"]
    items = schema["properties"]["evaluations"]["items"]
    assert items["properties"]["criterion_id"]["enum"] == ["clarity", "depth"]
    for each in (schema, items, answer_format((DEPTH,), batch=False)["json_schema"]["schema"]):
        assert each["additionalProperties"] is False
        assert set(each["required"]) == set(each["properties"])


@pytest.mark.parametrize(
    "answer",
    [
        '{"score": 4, "argument": "so"}',
        '```json\n{"score": 4.0, "argument": "so"}\n```',
        '<think>{"score": 1}</think> {"score": "4", "argument": "so", "confidence": 1}',
    ],
)
def test_an_opinion_is_read_from_json_fenced_or_after_reasoning(answer: str) -> None:
    assert read_opinion(answer, CLARITY) == Opinion(4, "so")
    assert flaw(answer, CLARITY) is None


TEXTS = [f'{{"score": "{text}"}}' for text in ("1_0", "0_4", "٤", "\uff14", "inf", "0x4", "")]


@pytest.mark.parametrize(
    "answer",
    ["", "4", "four", "null", '{"argument": "so"}', '{"score": 6}', '{"score": 0}', '{"score": NaN}', *TEXTS],
)
def test_an_opinion_outside_its_scale_or_form_is_none(answer: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_opinion(answer, CLARITY)
    assert flaw(answer, CLARITY)


def test_fr_005_the_valid_entries_of_a_batch_count_and_the_malformed_are_kept_as_they_were() -> None:
    wrong: list[object] = [
        entry("depth", "high"),
        entry("depth", 11),
        entry("width", 3),
        {"score": 3},
        "clarity: 4",
        7,
    ]
    read = read_batch(batch(entry("clarity", 4), *wrong), BOTH)
    assert read.opinions == {"clarity": Opinion(4, "so")}
    assert [json.loads(raw) for raw in read.malformed] == wrong


def test_fr_005_a_batch_that_lacks_criteria_is_read_as_far_as_it_goes() -> None:
    assert read_batch(batch(entry("depth", 7)), BOTH).opinions == {"depth": Opinion(7, "so")}
    assert read_batch(batch(), BOTH).opinions == {}
    assert read_batch(json.dumps([entry("depth", 7)]), BOTH).opinions == {"depth": Opinion(7, "so")}


def test_a_criterion_that_is_scored_twice_and_differently_has_no_opinion() -> None:
    read = read_batch(batch(entry("depth", 7), entry("clarity", 4), entry("depth", 1)), BOTH)
    assert read.opinions == {"clarity": Opinion(4, "so")}
    assert [json.loads(raw) for raw in read.malformed] == [entry("depth", 7), entry("depth", 1)]


@pytest.mark.parametrize(
    "answer", ["", "all good", '{"evaluations": {}}', "[" * 100_000, '{"evaluations": [{"cri']
)
def test_fr_005_a_batch_that_is_no_json_is_malformed_as_a_whole(answer: str) -> None:
    read = read_batch(answer, BOTH)
    assert (read.opinions, read.malformed) == ({}, (answer,))


json_values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
entries = st.lists(
    json_values
    | st.builds(
        entry, st.sampled_from(["clarity", "depth", "width"]) | json_values, st.integers(-3, 12) | json_values
    ),
    max_size=6,
)


@given(st.text() | entries.map(lambda found: json.dumps({"evaluations": found})))
def test_whatever_a_batch_answers_every_criterion_has_one_opinion_within_its_scale_or_none(
    answer: str,
) -> None:
    read = read_batch(answer, BOTH)
    for each in BOTH:
        opinion = read.opinions.get(each.id)
        assert opinion is None or each.minimum <= opinion.score <= each.maximum
    assert set(read.opinions) <= {"clarity", "depth"}
