"""A run's own bounds and prices, and the jobs that it makes known, as fields of its state."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from fairlane.core.errors import ConfigurationError
from fairlane.model.lane import FUNCTIONS
from fairlane.model.run import Plan, RunSpec
from fairlane.model.tokens import Price, price_of

Fields = dict[str, int | float | str]

PACE_SLACK_MS = 100
"""As in ``lib/run/bounds.lua``: how much lost time a pace may make up for."""


def known_jobs(plan: Plan, items: int) -> dict[str, int]:
    """Evaluations that ``items`` more items make known, by lane, as fields of a run's state."""
    known: dict[str, int] = {}
    for lane in plan.eval_lanes:
        known[f"known:{lane}"] = known.get(f"known:{lane}", 0) + items
    for lane in plan.session_lanes:
        count = plan.spec.sessions * plan.spec.cells_per_row
        known[f"known:{lane}"] = known.get(f"known:{lane}", 0) + count
    return known


def bounds_of(plan: Plan, prices: Mapping[str, Price], max_concurrent: int | None) -> Fields:
    """A run's own bounds as fields of its state, which ``lib/run/bounds.lua`` enforces.

    ``max_concurrent`` is the deployment's bound; the run keeps it even if the configuration changes. Rates
    are stored as milliseconds between starts. ``bounded`` is set if there is any bound. Prices serve the
    budgets of the run and of its team.
    """
    spec, bounds = plan.spec, plan.spec.bounds
    task_rate, eval_rate = spec.role_rates
    fields: Fields = dict(_prices(spec, prices))
    if spec.order.serial or spec.order.serial_field is not None:
        fields["serial"] = 1
    limits: Fields = {
        name: value
        for name, value in {
            "max_concurrent": bounds.max_concurrent,
            "cap": max_concurrent,
            "task_gap_ms": _gap_ms(task_rate),
            "eval_gap_ms": _gap_ms(eval_rate),
            **_start(bounds.start_ms, {"task_gap_ms": task_rate, "eval_gap_ms": eval_rate}),
            "delay_ms": round(bounds.delay * 1000) or None,
            "budget_tokens": bounds.budget_tokens,
            "budget_cost": None if bounds.budget_usd is None else bounds.budget_usd * 1e6,
        }.items()
        if value is not None
    }
    runs_ahead = bool(spec.evals) and spec.calls_tasks and bounds.ahead != 0
    if not limits and not runs_ahead:
        return fields
    return fields | limits | {"bounded": 1}


def _start(start_ms: int | None, rates: Mapping[str, float | None]) -> Fields:
    """The moment before which no role starts; a gap of 0 paces nothing after it."""
    if start_ms is None:
        return {}
    gaps: Fields = {name: 0 for name, rate in rates.items() if rate is None}
    first = start_ms + PACE_SLACK_MS  # a pace may be that much early
    return gaps | {"task_next_ms": first, "eval_next_ms": first}


def _gap_ms(rate: float | None) -> float | None:
    return None if rate is None else 1000 / rate


def _prices(spec: RunSpec, prices: Mapping[str, Price]) -> Iterator[tuple[str, str]]:
    """Prices by call kind, in millionths of a dollar per token: ``"input output"``."""
    for kind, model in enumerate(_called(spec)):
        price = price_of(model, prices)
        if price is not None:
            yield f"price:{kind}", f"{price.input:.9g} {price.output:.9g}"


def _called(spec: RunSpec) -> list[str]:
    """The model, or its template, of each call kind."""
    steps = (*spec.evals, *spec.session_evals)
    return [*(spec.models or ("",)), *(step.model for step in steps)]


def check_prices(spec: RunSpec, prices: Mapping[str, Price]) -> None:
    """Raise `ConfigurationError` if a run has a budget in dollars and calls a model without a price."""
    if spec.bounds.budget_usd is None:
        return
    for model in _called(spec):
        if model and not model.startswith(f"{FUNCTIONS}:") and price_of(model, prices) is None:
            raise ConfigurationError(
                "budget_usd",
                spec.bounds.budget_usd,
                f"{model} has no price, so that its calls cannot be counted",
                f"add [prices.{json.dumps(model)}] to the scheduler's settings, or use budget_tokens",
            )
