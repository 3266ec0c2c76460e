"""What a run's own bounds come to, as fields of its state: `lib/bounds.lua` keeps to them."""

from __future__ import annotations

from collections.abc import Iterator

from fairlane.choices import Rate
from fairlane.prices import price_of
from fairlane.run import Plan, RunSpec
from fairlane.settings import Settings

Fields = dict[str, int | float | str]


def bounds_of(plan: Plan, settings: Settings) -> Fields:
    """The fields of a run that is admitted now; the deployment's cap stays with it as it is now.

    Rates are kept as milliseconds between starts. ``bounded`` is there where any bound is. Prices are for its
    own budget and its team's.
    """
    spec, bounds = plan.spec, plan.spec.bounds
    fields: Fields = dict(_prices(spec, settings))
    if spec.order.serial or spec.order.serial_field is not None:
        fields["serial"] = 1
    limits: Fields = {
        name: value
        for name, value in {
            "max_concurrent": bounds.max_concurrent,
            "cap": settings.scheduler.max_concurrent,
            "task_gap_ms": _gap_ms(bounds.task_rate),
            "eval_gap_ms": _gap_ms(eval_rate(spec)),
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


def eval_rate(spec: RunSpec) -> Rate:
    """Starts of evaluations a second: what is stated, else as many as keep up with the tasks."""
    bounds = spec.bounds
    if bounds.eval_rate is not None:
        return bounds.eval_rate
    return bounds.task_rate if bounds.task_rate == "auto" else bounds.task_rate * max(1, len(spec.evals))


def _gap_ms(rate: Rate) -> float | None:
    return None if rate == "auto" or rate == 0 else 1000 / rate


def _prices(spec: RunSpec, settings: Settings) -> Iterator[tuple[str, str]]:
    """Prices of a run's kinds of calls, in millionths of a dollar a token: ``"input output"``."""
    steps = (*spec.evals, *spec.session_evals)
    models = [*(spec.models or ("",)), *(step.model for step in steps)]
    for kind, model in enumerate(models):
        price = price_of(model, settings.prices)
        if price is not None:
            yield f"price:{kind}", f"{price.input:.9g} {price.output:.9g}"
