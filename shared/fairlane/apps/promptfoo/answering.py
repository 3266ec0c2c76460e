"""Calls providers that are not models (``echo`` and programs) in this process; a run scores their outputs."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from fairlane.apps.promptfoo.planning.plans import PlannedRun
from fairlane.apps.promptfoo.planning.rows import ASKED, DESCRIPTION
from fairlane.apps.promptfoo.programs.child import ProgramError
from fairlane.apps.promptfoo.programs.programs import Programs
from fairlane.apps.promptfoo.reading.places import is_number
from fairlane.apps.promptfoo.reading.providers import ANSWER, CALLED, Provider
from fairlane.apps.promptfoo.subjects import as_text
from fairlane.model.job import JobState
from fairlane.model.record import Record
from fairlane.model.tokens import Usage


@dataclass(frozen=True, slots=True)
class Answers:
    """Rows with the outputs that a run is to score, and the records of calls that failed."""

    rows: Sequence[Mapping[str, Any]]
    failed: Sequence[Record]


def answers(plan: PlannedRun, programs: Programs) -> Answers:
    """Call the provider of a plan once for each of its rows, one after the other."""
    (provider,) = plan.providers.values()
    rows, failed = list[Mapping[str, Any]](), list[Record]()
    for item, row in enumerate(plan.rows or ()):
        began = time.monotonic()
        try:
            output, said = _called(provider, row, programs)
        except ProgramError as error:
            failed.append(_record(item, row, provider, error=str(error)))
            continue
        spent = round((time.monotonic() - began) * 1000)
        own = {**said, "item": item, "ms": spent, "json": not isinstance(output, str)}
        rows.append({**row, ANSWER: as_text(output), CALLED: own})
    return Answers(rows, failed)


def as_called(record: Record) -> Record:
    """A record of a row that was answered here, as if a worker had called its provider."""
    said = record.row[CALLED]
    usage = Usage(said.get("prompt"), said.get("completion"))
    return replace(record, item=said["item"], model=said["provider"], usage=usage, latency_ms=said["ms"])


def unscored(plan: PlannedRun, found: Answers) -> list[Record]:
    """The records of outputs that need no evaluator on a worker."""
    (provider,) = plan.providers.values()
    return [as_called(_record(row[CALLED]["item"], row, provider, output=row[ANSWER])) for row in found.rows]


def _called(provider: Provider, row: Mapping[str, Any], programs: Programs) -> tuple[Any, dict[str, Any]]:
    """A provider's output, and the model, cost and tokens of its call. Raises `ProgramError`."""
    asked, known = row[ASKED], {"provider": provider.model}
    if provider.answers is None or provider.answers.path is None:
        return asked, known
    variables = {name: each for name, each in row.items() if not name.startswith("__")}
    context = {
        "vars": variables,
        "prompt": {"raw": asked, "label": asked},
        "test": {"vars": variables, "description": row.get(DESCRIPTION, "")},
    }
    options = {"id": provider.identity, "label": provider.label, "config": dict(provider.answers.config)}
    path, function = provider.answers.path, provider.answers.function
    found = programs.provider(path, function, options, asked, context)
    if not isinstance(found, Mapping):
        raise ProgramError(f"{path.name} returned no object with an output or an error")
    if found.get("error"):
        raise ProgramError(str(found["error"]))
    if found.get("output") is None:
        raise ProgramError(f"{path.name} returned no output")
    spent = found.get("tokenUsage")
    usage = spent if isinstance(spent, Mapping) else {}
    numbers = {
        "cost": found.get("cost"),
        "prompt": usage.get("prompt"),
        "completion": usage.get("completion"),
    }
    return found["output"], {**known, **{name: each for name, each in numbers.items() if is_number(each)}}


def _record(
    item: int,
    row: Mapping[str, Any],
    provider: Provider,
    *,
    output: str | None = None,
    error: str | None = None,
) -> Record:
    return Record(
        item=item,
        row=row,
        model=provider.model,
        prompt=0,
        repetition=0,
        state=JobState.FAILED if output is None else JobState.SUCCEEDED,
        output=output,
        scores={},
        score_errors={},
        usage=Usage(),
        attempts=1,
        error=error,
    )
