"""What a run's bounds come to when it is admitted."""

from __future__ import annotations

from typing import Any

import pytest

from fairlane.evaluators import agent, criterion, exact_match, llm_judge
from fairlane.run import Message, Plan, RunSpec
from fairlane.settings import Settings
from fairlane_scheduler.bounds import Fields, bounds_of

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
    return bounds_of(plan(*evaluators, **bounds), Settings.model_validate(settings or {}))


@pytest.mark.parametrize("rate", [0, "auto"])
def test_zero_and_auto_are_no_bound(rate: float | str) -> None:
    assert fields(task_rate=rate) == {}
    assert fields(JUDGE, task_rate=rate, ahead=0) == {}


def test_an_eval_rate_left_out_is_the_task_rate_times_the_evaluations() -> None:
    critics = agent("a", "sim:judge", "{{ output }}", [criterion("x", "x"), criterion("y", "y")])
    made = fields(JUDGE, critics, exact_match("n"), task_rate=2)
    assert (made["task_gap_ms"], made["eval_gap_ms"]) == (500, 1000 / 6)


def test_a_stated_eval_rate_stands() -> None:
    assert fields(JUDGE, task_rate=2, eval_rate=10)["eval_gap_ms"] == 100
    assert "eval_gap_ms" not in fields(JUDGE, task_rate=2, eval_rate="auto")


def test_the_deployments_cap_is_kept_as_it_is_at_admission() -> None:
    assert fields(settings={"scheduler": {"max_concurrent": 7}})["cap"] == 7


def test_a_run_that_has_evaluations_is_bound_in_how_far_its_tasks_run_ahead() -> None:
    assert fields(JUDGE) == {"bounded": 1}
    assert fields() == {}


def test_a_budget_of_dollars_brings_the_prices_of_each_kind_of_call() -> None:
    prices = {"sim:fast": {"input": 2, "output": 8}, "sim:*": {"input": 1, "output": 1}}
    made = fields(JUDGE, budget_usd=0.5, settings={"prices": prices})
    assert (made["price:0"], made["price:1"], made["budget_cost"]) == ("2 8", "1 1", 500_000)
