"""What a run's bounds come to when it is admitted."""

from __future__ import annotations

from typing import Any

import pytest

from fairlane.config.settings import Settings
from fairlane.core.errors import ConfigurationError
from fairlane.evaluators.builders import agent, criterion, exact_match, llm_judge
from fairlane.model.choices import Message
from fairlane.model.run import Plan, RunSpec
from fairlane.store.write.runs.runs import Fields, bounds_of, check_prices

JUDGE = llm_judge("sim:judge", "{{ output }}", {"yes": 1})


def plan(*evaluators: Any, models: tuple[str, ...] = ("sim:fast",), **bounds: Any) -> Plan:
    spec = RunSpec(
        run="r1",
        team="search",
        name="",
        prompts=((Message(role="user", content="x"),),),
        models=models,
        evaluators=evaluators,
        bounds=bounds,  # type: ignore[arg-type]
        rows=1,
        page_rows=1,
        submitted_ms=0,
    )
    return Plan(spec=spec)


def fields(*evaluators: Any, settings: dict[str, Any] | None = None, **bounds: Any) -> Fields:
    made = Settings.model_validate(settings or {})
    return bounds_of(plan(*evaluators, **bounds), made.prices, made.scheduler.max_concurrent)


CRITICS = agent("a", "sim:judge", "{{ output }}", [criterion("x", "x"), criterion("y", "y")])


def rates(*evaluators: Any, **bounds: Any) -> tuple[float | None, float | None]:
    """Starts a second of tasks and of evaluations, by the gaps that a run's state has."""
    made = fields(*evaluators, ahead=0, **bounds)
    task, evaluation = (made.get(name) for name in ("task_gap_ms", "eval_gap_ms"))
    return tuple(None if gap is None else pytest.approx(1000 / float(gap)) for gap in (task, evaluation))  # type: ignore[return-value]


@pytest.mark.parametrize("rate", [0, "auto"])
def test_zero_and_auto_are_no_bound_by_themselves(rate: float | str) -> None:
    assert fields(task_rate=rate, eval_rate=rate) == {}
    assert fields(JUDGE, task_rate=rate, eval_rate=rate, ahead=0) == {}


@pytest.mark.parametrize("automatic", [{}, {"eval_rate": "auto"}])
def test_an_automatic_eval_rate_is_the_task_rate_times_the_evaluations(automatic: dict[str, Any]) -> None:
    assert rates(JUDGE, CRITICS, exact_match("n"), task_rate=2, **automatic) == (2, 6)
    assert rates(JUDGE, CRITICS, task_rate=0, **automatic) == (None, None)


@pytest.mark.parametrize("automatic", [{}, {"task_rate": "auto"}])
def test_automatic_tasks_are_a_quarter_faster_than_the_rate_of_their_evaluations(
    automatic: dict[str, Any],
) -> None:
    assert rates(JUDGE, CRITICS, eval_rate=6, **automatic) == (2.5, 6)
    assert rates(JUDGE, eval_rate=0, **automatic) == (None, None)
    assert rates(exact_match("n"), eval_rate=6, **automatic) == (None, 6)


def test_zero_is_unlimited_whatever_the_rate_of_the_other_role() -> None:
    assert rates(JUDGE, task_rate=2, eval_rate=0) == (2, None)
    assert rates(JUDGE, task_rate=0, eval_rate=6) == (None, 6)


def test_numbers_stand_as_they_are() -> None:
    assert rates(JUDGE, task_rate=2, eval_rate=10) == (2, 10)


def test_the_deployments_cap_is_kept_as_it_is_at_admission() -> None:
    assert fields(settings={"scheduler": {"max_concurrent": 7}})["cap"] == 7


def test_a_run_that_has_evaluations_is_bound_in_how_far_its_tasks_run_ahead() -> None:
    assert fields(JUDGE) == {"bounded": 1}
    assert fields() == {}


def test_a_budget_of_dollars_brings_the_prices_of_each_kind_of_call() -> None:
    prices = {"sim:fast": {"input": 2, "output": 8}, "sim:*": {"input": 1, "output": 1}}
    made = fields(JUDGE, budget_usd=0.5, settings={"prices": prices})
    assert (made["price:0"], made["price:1"], made["budget_cost"]) == ("2 8", "1 1", 500_000)


@pytest.mark.parametrize(
    ("made", "lacking"),
    [
        (plan(budget_usd=5), "sim:fast"),
        (plan(models=("sim:{{ lane }}",), budget_usd=5), "sim:{{ lane }}"),
        (plan(JUDGE, models=("known:x",), budget_usd=5), "sim:judge"),
    ],
)
def test_a_budget_in_dollars_is_refused_where_a_model_has_no_price(made: Plan, lacking: str) -> None:
    prices = Settings.model_validate({"prices": {"known:*": {"input": 1, "output": 1}}}).prices
    with pytest.raises(ConfigurationError) as raised:
        check_prices(made.spec, prices)
    assert (raised.value.field, raised.value.value) == ("budget_usd", 5)
    assert lacking in str(raised.value)
    assert "prices" in raised.value.remedy


def test_functions_cost_nothing_and_free_models_say_so() -> None:
    prices = Settings.model_validate({"prices": {"sim:*": {"input": 0, "output": 0}}}).prices
    check_prices(plan(exact_match("n"), models=("python:f", "sim:fast"), budget_usd=5).spec, prices)
    check_prices(plan(models=("other:x",)).spec, prices)
