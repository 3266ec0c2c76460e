"""Sends a run to Phoenix: its rows as a dataset, each model and prompt as an experiment over it."""

from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from fairlane.export.extras import library
from fairlane.export.trackers.exported import Exported, ExportedRun, RecordSpool, Variant, plain
from fairlane.model.job import JobState
from fairlane.model.record import Record

BITS = 64
"""Phoenix' server fails at larger signed integers ("Internal Server Error")."""


def export_phoenix(run: ExportedRun, records: Iterable[Record], target: str) -> Exported:
    """Send records to the server that ``PHOENIX_BASE_URL`` names; ``target`` is the dataset's name.

    A dataset of that name gets a new version with the rows of this run. Each record is a request, each of its
    scores is another. Holds the rows, while it makes the dataset, and one record at a time. Raises
    `MissingExtra`, and what Phoenix's client raises.
    """
    client = library("phoenix.client", "Phoenix", "phoenix").Client()
    with RecordSpool(run.variant) as spool:
        spool.take(records)
        name, keys = _make_dataset(client, run, spool, target or run.spec.name)
        experiments: dict[Variant, str] = {}
        for variant in spool.keys:
            made = client.experiments.create(
                dataset_id=keys.dataset,
                dataset_version_id=keys.version,
                experiment_name=f"{run.spec.name}: {run.titled(variant)}",
                experiment_metadata={
                    "fairlane_run": run.spec.run,
                    "fairlane_team": run.spec.team,
                    **_asked(run),
                },
                repetitions=run.spec.repetitions,
            )
            experiments[variant] = made["id"]
            for record in spool.of(variant):
                example = keys.examples[run.row_number(record)]
                _send(client.experiments, experiments[variant], example, run, record)
        return Exported(spool.count, f"dataset {name}, experiments {', '.join(experiments.values())}")


class _Keys(NamedTuple):
    """The server's ids: of the dataset, its version, and its examples by their rows."""

    dataset: str
    version: str
    examples: dict[int, str]


def _make_dataset(client: Any, run: ExportedRun, spool: RecordSpool[Variant], name: str) -> tuple[str, _Keys]:
    """A dataset of the run's rows. Phoenix' client takes and returns all rows at once."""
    examples: dict[int, dict[str, Any]] = {}
    for record in spool.all():
        if (number := run.row_number(record)) not in examples:
            examples[number] = _example(run, number, record)
    dataset = client.datasets.create_dataset(
        name=name,
        examples=[examples[number] for number in sorted(examples)],
        dataset_description=f"Rows of Fairlane's run {run.spec.run}",
    )
    return dataset.name, _Keys(dataset.id, dataset.version_id, dict(_examples(dataset.examples)))


def _example(run: ExportedRun, number: int, record: Record) -> dict[str, Any]:
    expected = run.expected(record)
    output = {} if expected is None else {"expected": expected}
    return {
        "id": f"row-{number}",
        "input": plain(record.row, BITS),
        "output": output,
        "metadata": {"row": number},
    }


def _examples(given: Iterable[Mapping[str, Any]]) -> Iterator[tuple[int, str]]:
    """The server's ids of examples, by row: newer servers return their own id beside the given one."""
    for each in given:
        yield int(each["metadata"]["row"]), str(each.get("node_id") or each["id"])


def _asked(run: ExportedRun) -> dict[str, Any]:
    return {"params": plain(run.spec.params, BITS)} if run.spec.params else {}


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
