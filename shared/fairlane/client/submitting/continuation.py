"""Continues a finished run: builds the new run's spec and finds its rows in the old run."""

import json
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from fairlane.client.deployment import Deployment
from fairlane.client.submitting.arguments import turn_fields_of
from fairlane.core.errors import SubmissionError
from fairlane.datasets.row_json import digest_of
from fairlane.model.choices import TURN_FIELDS_VERSION, Continuation
from fairlane.model.evaluators import EvaluatorSpec, FunctionScorer
from fairlane.model.run import Order, RunSpec, RunState
from fairlane.model.run_status import RunStatus

NO_ORDER = Order()


def require_finished(status: RunStatus) -> None:
    """Raise `SubmissionError` for a run that was refused or has not finished."""
    if status.state is RunState.REFUSED:
        raise SubmissionError("run", status.run, "was refused", "Correct what was wrong and submit it anew.")
    if not status.state.finished:
        remedy = "Wait for its end, or cancel it first."
        raise SubmissionError("run", status.run, f"is still {status.state}", remedy)


def rows_of(deployment: Deployment, spec: RunSpec, count: int) -> Iterator[dict[str, Any]]:
    """The ``count`` rows of a run, in order. Raises `ResultsLost` where Redis has lost one.

    Also reads the rows of a dataset by reference. Raises `SubmissionError` where it cannot, or if they
    changed.
    """
    return (dict(row) for row in deployment.records(spec).rows(count))


def continued_spec(
    old: RunSpec,
    run: str,
    submitted_ms: int,
    evaluators: Sequence[EvaluatorSpec] | None = None,
    *,
    retry_errors: bool = True,
) -> RunSpec:
    """Build the spec of a run that continues ``old``, with ``old``'s evaluators unless others are given."""
    spec = old.model_copy(
        update={
            "run": run,
            "submitted_ms": submitted_ms,
            "evaluators": old.evaluators if evaluators is None else tuple(evaluators),
            "source": None,
            "open": False,
            "short_results": True,
            **_turns_apart(old),
        }
    )
    fresh = RunSpec.model_validate_json(spec.model_dump_json())
    return fresh.model_copy(
        update={
            "continues": Continuation(
                run=old.run,
                prompts=tuple(range(len(old.prompts))),
                models=tuple(range(len(old.models))),
                steps=_old_steps(old, fresh),
                repetitions=old.repetitions,
                old_prompts=max(1, len(old.prompts)),
                old_models=max(1, len(old.models)),
                old_steps=old.steps,
                retry_errors=retry_errors,
            )
        }
    )


def _turns_apart(old: RunSpec) -> dict[str, Any]:
    """Updates that store each turn in its own field, even if ``old`` kept all turns in one."""
    if not old.order.conversation:
        return {}
    order = old.order.model_copy(update={"turn_fields": turn_fields_of(old.prompts)})
    return {"version": max(old.version, TURN_FIELDS_VERSION), "order": order}


def _old_steps(old: RunSpec, new: RunSpec) -> tuple[int, ...]:
    """For each evaluation of the new run, the step of the same scorer in the old one, else -1. A function is
    called again: its code may have changed under the same name.
    """
    before = {_identity(step): number for number, step in enumerate(old.evals, start=1)}
    return tuple(
        -1 if isinstance(step.evaluator, FunctionScorer) else before.get(_identity(step), -1)
        for step in new.evals
    )


def _identity(step: Any) -> str:
    parts = [step.name, step.batch, _json(step.evaluator), _json(step.criterion)]
    return json.dumps(parts)


def _json(part: BaseModel | None) -> str:
    return part.model_dump_json() if part is not None else ""


class Origins:
    """Finds rows in an earlier run by content, equal rows in order.

    Without ``old_rows`` a row keeps its number. If later items read outputs of earlier ones, rows are the
    same only as far as the two runs begin alike.
    """

    def __init__(self, old_rows: Iterable[Mapping[str, Any]] | None = None, order: Order = NO_ORDER) -> None:
        self._same, self._count, self._order = old_rows is None, 0, order
        self._places: defaultdict[bytes, deque[int]] = defaultdict(deque)
        self._old_count = 0
        for row in old_rows or ():
            self._places[digest_of(row)].append(self._old_count)
            self._old_count += 1
        self._rows: list[int] = []

    def watch(self, pages: Iterable[list[dict[str, Any]]]) -> Iterator[list[dict[str, Any]]]:
        """Yield the pages unchanged, and remember each row's old number."""
        for page in pages:
            self._rows += [self._take(row) for row in page]
            yield page

    def fields(self, page_rows: int) -> Iterator[tuple[str, bytes]]:
        """Fields to store beside the rows: for each page the old numbers of its rows, -1 for new rows."""
        alike = self._alike() if self._order.remembers and not self._same else self._count
        for number, first in enumerate(range(0, self._count, page_rows)):
            rows = self._rows[first : first + page_rows]
            kept, alike = rows[:alike], max(0, alike - len(rows))
            found = [*kept, *([-1] * (len(rows) - len(kept)))]
            yield f"from:{number}", json.dumps(found, separators=(",", ":")).encode()

    def _alike(self) -> int:
        """With how many equal rows the two runs begin. With a ``serial_field``, whose rows may stand
        anywhere, all old rows must match.
        """
        alike = next((place for place, old in enumerate(self._rows) if place != old), self._count)
        return 0 if self._order.serial_field is not None and alike < self._old_count else alike

    def _take(self, row: Mapping[str, Any]) -> int:
        self._count += 1
        if self._same:
            return self._count - 1
        places = self._places.get(digest_of(row))
        return places.popleft() if places else -1
