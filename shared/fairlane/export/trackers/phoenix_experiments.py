"""Sends a run to Phoenix: its rows as a dataset, each model and prompt as an experiment over it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from fairlane.export.extras import library
from fairlane.export.trackers.exported import Exported, ExportedRun, plain
from fairlane.model.job import JobState
from fairlane.model.results import Record


def export_phoenix(run: ExportedRun, records: Iterable[Record], target: str) -> Exported:
    """Send records to the server that ``PHOENIX_BASE_URL`` names; ``target`` is the dataset's name.

    A dataset of that name gets a new version with the rows of this run. Each record is a request, each of its
    scores is another. Raises `MissingExtra`, and what Phoenix's client raises.
    """
    client = library("phoenix.client", "Phoenix", "phoenix").Client()
    held = list(records)
    rows = {run.row_number(record): record for record in reversed(held)}
    dataset = client.datasets.create_dataset(
        name=target or run.spec.name,
        examples=[_example(run, number, rows[number]) for number in sorted(rows)],
        dataset_description=f"Rows of Fairlane's run {run.spec.run}",
    )
    examples = dict(_examples(dataset.examples))
    experiments: dict[tuple[str, int], str] = {}
    for record in held:
        variant = run.variant(record)
        if variant not in experiments:
            made = client.experiments.create(
                dataset_id=dataset.id,
                dataset_version_id=dataset.version_id,
                experiment_name=f"{run.spec.name}: {run.titled(variant)}",
                experiment_metadata={
                    "fairlane_run": run.spec.run,
                    "fairlane_team": run.spec.team,
                    **_asked(run),
                },
                repetitions=run.spec.repetitions,
            )
            experiments[variant] = made["id"]
        _send(client.experiments, experiments[variant], examples[run.row_number(record)], run, record)
    return Exported(len(held), f"dataset {dataset.name}, experiments {', '.join(experiments.values())}")


def _example(run: ExportedRun, number: int, record: Record) -> dict[str, Any]:
    expected = run.expected(record)
    output = {} if expected is None else {"expected": expected}
    return {"id": _key(number), "input": plain(record.row), "output": output, "metadata": {"row": number}}


def _examples(given: Iterable[Mapping[str, Any]]) -> Iterator[tuple[int, str]]:
    """The server's ids of examples, by row: newer servers have theirs beside the one that was given."""
    for each in given:
        yield int(each["metadata"]["row"]), str(each.get("node_id") or each["id"])


def _asked(run: ExportedRun) -> dict[str, Any]:
    return {"params": plain(run.spec.params)} if run.spec.params else {}


def _send(experiments: Any, experiment: str, example: str, run: ExportedRun, record: Record) -> None:
    started = datetime.fromtimestamp(run.spec.submitted_ms / 1000, UTC)
    failed = None if record.state is JobState.SUCCEEDED else record.error or str(record.state)
    made = experiments.log_run(
        experiment_id=experiment,
        dataset_example_id=example,
        output=record.output,
        start_time=started,
        end_time=started + timedelta(milliseconds=record.latency_ms or 0),
        repetition_number=record.repetition + 1,
        error=failed,
    )
    for name, score in record.scores.items() if failed is None else ():
        problem = record.score_errors.get(name)
        if score is None and problem is None:
            continue
        experiments.log_evaluation(
            experiment_run_id=made["id"],
            name=name,
            annotator_kind="LLM" if name in record.eval_usage else "CODE",
            score=score,
            explanation=record.arguments.get(name),
            error=problem,
        )


def _key(row: int) -> str:
    return f"row-{row}"
