"""What an item's end means for its session: evaluations that the session's last item makes ready. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from fairlane.errors import TemplateError
from fairlane.evaluators.spec import FunctionScorer, Similarity
from fairlane.evaluators.steps import Step
from fairlane.rendering import Rendering, Row
from fairlane.run import Plan
from fairlane.sessions import Seat, session_job
from fairlane.store.entry import Entry
from fairlane.store.sessions import Joined
from fairlane.tokens import Estimate, estimate_call
from fairlane.verdict import Place


def joined(place: Place, seat: Seat | None, output: str | None) -> Joined | None:
    """What an item that ends tells its session; ``output`` is ``None`` where it has none."""
    if seat is None:
        return None
    tokens = [
        _tokens(place.rendering, step, seat.size, place.row, output)
        for step in place.rendering.spec.session_evals
    ]
    return _joined(place.rendering.plan, place.item, seat, output is not None, tokens)


def given_up(plan: Plan, item: int, seat: Seat | None, *, answered: bool) -> Joined | None:
    """The same where the item's row is not at hand."""
    if seat is None:
        return None
    tokens = [_template_tokens(step) for step in plan.spec.session_evals]
    return _joined(plan, item, seat, answered, tokens)


def _joined(plan: Plan, item: int, seat: Seat, answered: bool, tokens: Sequence[Estimate]) -> Joined:
    spec, cell = plan.spec, item % plan.spec.cells_per_row
    first_kind = max(1, len(spec.models)) + len(spec.evals)
    entries = [
        Entry(session_job(spec, seat.session, cell, step), each, first_kind + step)
        for step, each in enumerate(tokens)
    ]
    evaluations = tuple(zip(entries, plan.session_lanes, strict=True))
    return Joined(seat.session, cell, seat.size, answered, evaluations)


def _tokens(rendering: Rendering, step: Step, size: int, row: Row, output: str | None) -> Estimate:
    """As many as a session would need whose turns were all like this one."""
    try:
        empty = rendering.session(step, []).tokens
        one = rendering.session(step, [{"row": dict(row), "output": output}]).tokens
    except TemplateError:
        return _template_tokens(step)
    return Estimate(empty.input + size * max(0, one.input - empty.input), empty.output)


def _template_tokens(step: Step) -> Estimate:
    if isinstance(step.evaluator, FunctionScorer | Similarity):  # the latter looks at no session
        return Estimate(0, 0)
    return estimate_call([{"content": step.evaluator.template}], step.evaluator.params)
