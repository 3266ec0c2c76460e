"""A summary adds up what records tell: scores, failures, tokens and dollars."""

from __future__ import annotations

import json
import math
import statistics
import tracemalloc
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.client.views import tally
from fairlane.client.views.summary import TASK, Endings, Failure, Spending, Summary
from fairlane.client.views.tally import OTHER_ERRORS, summarise
from fairlane.core.errors import RunArchived
from fairlane.evaluators.builders import exact_match, llm_judge
from fairlane.evaluators.client_side import ClientScorer
from fairlane.evaluators.client_side import scored as record_scored
from fairlane.model.evaluators import Agent, Criterion, EvaluatorSpec, Judge
from fairlane.model.job import JobState
from fairlane.model.record import Record
from fairlane.model.run import RunState
from fairlane.model.run_status import Scores
from fairlane.model.sessions import SessionRecord
from fairlane.model.tokens import Price, Usage, cost_usd
from fairlane.pipeline.evaluations import NOT_JUDGED
from tests.support.records import make_record, spec_of

JUDGE = llm_judge("sim:judge", "{{ output }}", {"yes": 1, "no": 0}, name="judge")
SCORES = st.lists(st.floats(-1e6, 1e6), max_size=50)


def summed(
    *records: Record,
    evaluators: tuple[EvaluatorSpec, ...] = (JUDGE,),
    prices: Mapping[str, Price] = MappingProxyType({}),
) -> Summary:
    return summarise(spec_of(evaluators), RunState.COMPLETED, records, prices)


def scored(values: list[float], **fields: Any) -> list[Record]:
    return [make_record(n, scores={"judge": value}, **fields) for n, value in enumerate(values)]


@given(SCORES)
def test_mean_and_standard_error_are_those_of_the_statistics_module(values: list[float]) -> None:
    found = summed(*scored(values)).scores["judge"]
    assert (found.count, found.missing) == (len(values), 0)
    if not values:
        assert found == Scores(0, 0)
        return
    assert found.mean == pytest.approx(statistics.fmean(values), rel=1e-9, abs=1e-6)
    assert (found.minimum, found.maximum) == (min(values), max(values))
    if len(values) == 1:
        assert found.standard_error is None
    else:
        error = statistics.stdev(values) / math.sqrt(len(values))
        assert found.standard_error == pytest.approx(error, rel=1e-6, abs=1e-6)


@given(SCORES.filter(bool), st.floats(1e8, 1e9))
def test_a_large_offset_does_not_drown_the_standard_error(values: list[float], offset: float) -> None:
    moved = [value / 1e6 + offset for value in values]
    found = summed(*scored(moved)).scores["judge"].standard_error
    if len(moved) > 1:
        assert found == pytest.approx(statistics.stdev(moved) / math.sqrt(len(moved)), rel=1e-3, abs=1e-6)


@given(st.lists(st.tuples(st.sampled_from(["sim:a", "sim:b", "sim:c"]), st.floats(0, 1)), min_size=1))
def test_scores_by_model_are_those_of_its_items_alone(shown: list[tuple[str, float]]) -> None:
    records = [make_record(n, model=model, scores={"judge": value}) for n, (model, value) in enumerate(shown)]
    found = summed(*records).scores_by_model
    assert set(found) == {model for model, _ in shown}
    for model, scores in found.items():
        own = [value for name, value in shown if name == model]
        assert scores["judge"].count == len(own)
        assert scores["judge"].mean == pytest.approx(statistics.fmean(own))


def test_items_without_a_score_are_counted_as_missing() -> None:
    records = [
        make_record(0, scores={"judge": 1.0}),
        make_record(1, scores={"judge": None}, score_errors={"judge": "no verdict"}),
        make_record(2, state=JobState.FAILED, output=None, error="400", scores={"judge": None}),
    ]
    found = summed(*records)
    assert found.scores["judge"] == Scores(1, 2, 1.0, None, 1.0, 1.0, 1)
    assert found.by_state == {JobState.SUCCEEDED: 2, JobState.FAILED: 1}


def test_every_evaluator_of_a_run_is_listed_also_without_a_score() -> None:
    agent = Agent(
        name="critic",
        model="sim:judge",
        template="{{ output }}",
        criteria=(Criterion(id="style", description="?"), Criterion(id="facts", description="?")),
        batching=True,
    )
    found = summed(evaluators=(exact_match("answer"), JUDGE, agent))
    assert list(found.scores) == ["exact_match", "judge", "critic.style", "critic.facts"]
    assert all(scores == Scores(0, 0) for scores in found.scores.values())


def test_failures_are_grouped_by_step_and_error_most_first() -> None:
    failed: dict[str, Any] = {"state": JobState.FAILED, "output": None}
    records = [
        make_record(0, **failed, error="500: request req_011CSHoEeqs5C35K failed"),
        make_record(1, **failed, error="500: request req_011CSHoEeqs5C99X failed"),
        make_record(2, **failed, error="500: id 123e4567-e89b-12d3-a456-426614174000"),
        make_record(3, scores={"judge": None}, score_errors={"judge": "no verdict"}),
        make_record(4, state=JobState.CANCELLED, output=None),
    ]
    assert summed(*records).failures == (
        Failure(TASK, "500: request … failed", 2, 0),
        Failure("judge", "no verdict", 1, 3),
        Failure(TASK, "500: id …", 1, 2),
        Failure(TASK, "cancelled", 1, 4),
    )


def test_turns_that_conversations_lack_are_one_kind_of_failure() -> None:
    lacks = "its conversation lacks an earlier turn: row {} has no output. Continue the run"
    invalid: dict[str, Any] = {"state": JobState.INVALID, "output": None}
    records = [make_record(n, **invalid, error=lacks.format(row)) for n, row in enumerate((7, "1,007", 13))]
    (failure,) = summed(*records).failures
    assert (failure.count, failure.error) == (3, lacks.replace("row {}", "…"))


def test_evaluations_of_a_failed_task_are_no_failures() -> None:
    record = make_record(state=JobState.FAILED, error="400", score_errors={"judge": "no output to judge"})
    assert [failure.step for failure in summed(record).failures] == [TASK]
    assert summed(make_record(score_errors={"judge": NOT_JUDGED})).failures == ()


def test_kinds_of_failure_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tally, "MOST_FAILURES", 3)
    words = ["one", "two", "three", "four", "five"]
    records = [make_record(n, state=JobState.FAILED, error=word) for n, word in enumerate(words)]
    assert Failure(TASK, OTHER_ERRORS, 2, 3) in summed(*records).failures


def test_tokens_and_cost_are_reported_by_role_and_model() -> None:
    records = [
        make_record(0, usage=Usage(1000, 100, 400), eval_usage={"judge": Usage(50, 1)}),
        make_record(1, usage=Usage(1000, 100), eval_usage={"judge": Usage(50, 1)}),
        make_record(2, usage=Usage()),
    ]
    prices = {
        "sim:fast": Price(input=1.0, output=10.0, cached_input=0.5),
        "sim:judge": Price(input=100.0, output=0.0),
    }
    found = summed(*records, prices=prices)
    tasks, evaluations = found.tasks[0], found.evaluations[0]
    assert replace(tasks, cost_usd=None) == Spending("sim:fast", 2, 2000, 200, 400, None)
    assert replace(evaluations, cost_usd=None) == Spending("sim:judge", 2, 100, 2, 0, None)
    assert tasks.cost_usd == pytest.approx((1600 + 400 * 0.5 + 200 * 10) / 1e6)
    assert evaluations.cost_usd == pytest.approx(100 * 100 / 1e6)
    assert (found.task_tokens, found.evaluation_tokens) == (2200, 102)
    assert found.cost_usd == pytest.approx(0.0038 + 0.01)
    assert found.unpriced == ()


def test_tokens_that_are_written_to_a_cache_have_their_own_price() -> None:
    records = [make_record(0, usage=Usage(1000, 100, 400, 500)), make_record(1, usage=Usage(1000, 100))]
    prices = {"sim:fast": Price(input=4.0, output=10.0, cached_input=0.5, cache_write=5.0)}
    (tasks,) = summed(*records, prices=prices).tasks
    assert tasks == Spending("sim:fast", 2, 2000, 200, 400, pytest.approx(0.0091), 500)
    assert tasks.cost_usd == pytest.approx((1100 * 4 + 400 * 0.5 + 500 * 5 + 200 * 10) / 1e6)
    assert cost_usd(Usage(1000, 100, 400, 500), Price(input=4, output=10)) == pytest.approx(5000 / 1e6)


def test_a_cached_answer_costs_nothing() -> None:
    price = Price(input=1e6, output=1e6)
    found = summed(make_record(0, cached=True), make_record(1, usage=Usage(1, 1)), prices={"sim:fast": price})
    assert (found.cached, found.task_tokens, found.cost_usd) == (1, 2, 2.0)


def test_models_without_a_price_are_named_and_not_guessed() -> None:
    record = make_record(usage=Usage(10, 5), eval_usage={"judge": Usage(1, 1)})
    found = summed(record)
    assert (found.cost_usd, found.unpriced) == (None, ("sim:fast", "sim:judge"))
    priced = summed(record, prices={"sim:fast": Price(input=1.0, output=1.0)})
    assert (priced.cost_usd, priced.unpriced) == (pytest.approx(15 / 1e6), ("sim:judge",))


def test_sessions_have_scores_failures_and_tokens_of_their_own() -> None:
    whole = Judge(
        name="whole", model="sim:judge", template="{{ session }}", choices={"y": 1}, level="session"
    )
    sessions = [
        SessionRecord("a", "sim:fast", 0, 0, (0, 1), {"whole": 1.0}, {}, {"whole": Usage(30, 1)}),
        SessionRecord("b", "sim:fast", 0, 0, (2,), {"whole": None}, {"whole": "no verdict"}),
    ]
    spec = spec_of([whole], session_field="s", sessions=2)
    found = summarise(spec, RunState.COMPLETED, [make_record(n) for n in range(3)], {}, sessions)
    assert (found.scores, found.items) == ({}, 3)
    assert found.session_scores == {"whole": Scores(1, 1, 1.0, None, 1.0, 1.0, 1)}
    assert found.failures == (Failure("whole", "no verdict", 1, 2),)
    assert found.evaluations == (Spending("sim:judge", 1, 30, 1, 0, None),)


def test_a_run_in_the_archive_has_no_scores_of_sessions() -> None:
    def archived() -> Any:
        raise RunArchived("r1")
        yield

    assert summarise(spec_of(), RunState.COMPLETED, [make_record()], {}, archived()).session_scores == {}


def invalid(item: int, model: str) -> Record:
    return make_record(item, state=JobState.INVALID, model=model, output=None, scores={}, error="no field")


def test_invalid_items_count_towards_a_model_that_is_known() -> None:
    odd = invalid(0, "whatever the row says")
    assert summed(odd).scores_by_model == {}
    records = [odd, invalid(1, "sim:fast"), make_record(2, scores={"judge": 1.0}), invalid(3, "sim:fast")]
    found = summed(*records)
    assert found.scores["judge"] == Scores(1, 3, 1.0, None, 1.0, 1.0, 1)
    assert found.scores_by_model == {"sim:fast": {"judge": Scores(1, 2, 1.0, None, 1.0, 1.0, 1)}}


def test_a_model_all_of_whose_items_are_invalid_is_listed() -> None:
    spec = spec_of((JUDGE,), models=("sim:fast", "sim:slow", "sim:{{ lane }}"))
    records = [make_record(0, scores={"judge": 1.0}), invalid(1, "sim:slow"), invalid(2, "sim:{{ lane }}")]
    found = summarise(spec, RunState.COMPLETED, records, {}).scores_by_model
    assert {model: scores["judge"].missing for model, scores in found.items()} == {
        "sim:fast": 0,
        "sim:slow": 1,
    }


MODELS = st.sampled_from(["sim:fast", "sim:other", "any text"])


@given(st.lists(st.tuples(MODELS, st.sampled_from([JobState.SUCCEEDED, JobState.FAILED, JobState.INVALID]))))
def test_missing_items_by_model_add_up_in_any_order(items: list[tuple[str, JobState]]) -> None:
    records = [
        make_record(
            n, model=model, state=state, scores={"judge": 1.0 if state is JobState.SUCCEEDED else None}
        )
        for n, (model, state) in enumerate(items)
    ]
    for found in (summed(*records), summed(*reversed(records))):
        known = {"sim:fast"} | {model for model, state in items if state is not JobState.INVALID}
        for model, scores in found.scores_by_model.items():
            count = sum(name == model for name, _ in items)
            assert (model in known, scores["judge"].count + scores["judge"].missing) == (True, count)
        assert found.scores_by_model.keys() == known & {model for model, _ in items}


def test_models_of_invalid_items_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tally, "MOST_MODELS", 3)
    summing = tally.Tally(spec_of((JUDGE,)), {})
    for n in range(10):
        summing.add(invalid(n, f"text {n}"))
    assert len(summing._invalid_by_model) == 3
    assert summing.summary(RunState.COMPLETED).scores["judge"] == Scores(0, 10)


def test_a_scorer_of_the_client_that_fails_on_all_items_is_listed() -> None:
    def failing(output: str) -> float:
        raise KeyError(output)

    mine = ClientScorer("mine", failing)
    records = [record_scored(make_record(n, scores={"judge": 1.0}), (mine,)) for n in range(2)]
    records.append(record_scored(invalid(2, "sim:fast"), (mine,)))
    found = summed(*records)
    assert found.scores["mine"] == Scores(0, 3)
    assert found.scores_by_model["sim:fast"] == {
        "judge": Scores(2, 1, 1.0, 0.0, 1.0, 1.0, 2),
        "mine": Scores(0, 3),
    }


def test_outputs_that_were_cut_or_are_empty_are_counted_by_model() -> None:
    records = [
        make_record(0, finish_reason="stop"),
        make_record(1, finish_reason="length"),
        make_record(2, finish_reason="MAX_TOKENS", cached=True),
        make_record(3, finish_reason="length", output=""),
        make_record(4, finish_reason="stop", output=" \n", model="sim:slow"),
        make_record(5, finish_reason=None, model="sim:whole"),
        make_record(6, state=JobState.FAILED, output=None, model="sim:whole"),
    ]
    found = summed(*records)
    assert found.endings == {"sim:fast": Endings(4, 3, 1), "sim:slow": Endings(1, 0, 1)}
    assert [each.in_words() for each in found.endings.values()] == [
        "3 of 4 cut at max_tokens, 1 empty",
        "1 of 1 empty",
    ]
    assert found.to_dict()["endings"]["sim:fast"] == {
        "outputs": 4,
        "cut": 3,
        "empty": 1,
        "refused": 0,
        "prompts_cut": 0,
    }
    assert "Outputs of sim:fast: 3 of 4 cut at max_tokens, 1 empty." in found._repr_html_()
    assert summed(records[0]).endings == {}


def test_refusals_in_the_models_words_are_counted_by_model() -> None:
    records = [
        make_record(0, finish_reason="refusal", output="I cannot."),
        make_record(1, finish_reason="length"),
        make_record(2, finish_reason="stop", model="sim:slow"),
        make_record(3, finish_reason="refusal", output="No.", model="sim:slow"),
    ]
    found = summed(*records)
    assert found.endings == {"sim:fast": Endings(2, 1, 0, 1), "sim:slow": Endings(2, 0, 0, 1)}
    assert [each.in_words() for each in found.endings.values()] == [
        "1 of 2 cut at max_tokens, 1 refused",
        "1 of 2 refused",
    ]


REASONS = [None, "stop", "length", "Max_Tokens", "incomplete", "odd"]


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(REASONS), st.sampled_from(["", " ", "x"]))))
def test_each_output_is_counted_once(outputs: list[tuple[str, str | None, str]]) -> None:
    made = [make_record(n, model=m, finish_reason=r, output=o) for n, (m, r, o) in enumerate(outputs)]
    found = summed(*made).endings
    for model in "ab":
        of_model = [(reason, output) for name, reason, output in outputs if name == model]
        cut = sum(reason in ("length", "Max_Tokens", "incomplete") for reason, _ in of_model)
        empty = sum(not output.strip() for _, output in of_model)
        assert found.get(model, Endings(len(of_model), 0, 0)) == Endings(len(of_model), cut, empty)
        assert (model in found) == bool(cut or empty)


def test_made_up_finish_reasons_take_bounded_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tally, "MOST_REASONS", 2)
    reasons = ["a", "length", *map(str, range(50)), "length"]
    found = summed(*(make_record(n, finish_reason=reason) for n, reason in enumerate(reasons)))
    assert found.endings == {"sim:fast": Endings(53, 2, 0)}


def test_calls_without_a_number_of_tokens_are_counted() -> None:
    price = {"sim:fast": Price(input=1.0, output=1.0)}
    records = [
        make_record(0, usage=Usage(10, 5)),
        make_record(1, usage=Usage()),
        make_record(2, usage=Usage(), cached=True),
        make_record(3, usage=Usage(), state=JobState.FAILED, output=None),
        make_record(4, usage=Usage(), model="python:app.answer"),
    ]
    found = summed(*records, prices=price)
    assert (found.unreported, found.gaps) == ({"sim:fast": 1}, "1 call reported no tokens")
    assert found.to_dict()["unreported"] == {"sim:fast": 1}
    assert "1 call reported no tokens" in found._repr_html_()
    assert summed(*records).gaps == "without sim:fast, 1 call reported no tokens"
    assert summed(records[0], prices=price).gaps == ""
    judged = summarise(
        spec_of((JUDGE,), output_field="output", models=(), prompts=()), RunState.COMPLETED, records, {}
    )
    assert judged.unreported == {}


def test_evaluations_without_a_number_of_tokens_are_counted() -> None:
    price = {"sim:*": Price(input=1.0, output=1.0)}
    silent = {"eval_usage": {"judge": Usage()}, "scores": {"judge": 1.0}}
    found = summed(make_record(0, usage=Usage(10, 5), **silent), make_record(1, **silent), prices=price)
    assert (found.unreported, found.gaps) == ({"sim:judge": 2}, "2 calls reported no tokens")
    assert found.evaluations == ()


def test_a_summary_is_ready_for_json() -> None:
    shown = json.loads(json.dumps(summed(*scored([0.0, 1.0])).to_dict()))
    assert shown["scores"]["judge"]["standard_error"] == pytest.approx(0.5)
    assert shown["by_state"] == {"succeeded": 2}
    assert (shown["task_tokens"], shown["cost_usd"], shown["unpriced"]) == (30, None, ["sim:fast"])


def test_memory_does_not_grow_with_records() -> None:
    def peak(count: int) -> int:
        tracemalloc.start()
        records = (make_record(n, output="x" * 1000) for n in range(count))
        summarise(spec_of(), RunState.COMPLETED, records, {})
        found = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return found

    assert peak(5_000) < 1_000_000, "the outputs alone are five times that"
