"""Sends a run to MLflow: parameters, scores, a table of all records, and results of ``mlflow.genai``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from statistics import fmean
from typing import Any

from fairlane.export.columns import Columns, fitted
from fairlane.export.extras import library
from fairlane.export.trackers.exported import Exported, ExportedRun, plain
from fairlane.model.job import JobState
from fairlane.model.results import Record

TABLE = "records.json"
_LONGEST_PARAM = 6000


def export_mlflow(run: ExportedRun, records: Iterable[Record], target: str) -> Exported:
    """Send records to the server that ``MLFLOW_TRACKING_URI`` names; ``target`` is the experiment's name.

    Without one, the experiment is MLflow's present one. Each model and prompt becomes a run of MLflow. Raises
    `MissingExtra`, and what MLflow raises.
    """
    mlflow = library("mlflow", "MLflow", "mlflow")
    library("mlflow.genai", "MLflow", "mlflow")
    if target:
        mlflow.set_experiment(target)
    by_variant: dict[tuple[str, int], list[Record]] = {}
    for record in records:
        by_variant.setdefault(run.variant(record), []).append(record)
    ids = [_send(mlflow, run, variant, some) for variant, some in by_variant.items()]
    return Exported(sum(map(len, by_variant.values())), f"MLflow runs {', '.join(ids)}")


def evaluation_data(run: ExportedRun, records: Iterable[Record]) -> list[dict[str, Any]]:
    """Answered records as ``mlflow.genai.evaluate`` takes them; ``inputs`` name the item."""
    return [
        {
            "inputs": {"item": record.item, "model": record.model, **_inputs(run, record)},
            "outputs": record.output,
            **_expectations(run, record),
        }
        for record in records
        if record.output is not None
    ]


def given_scores(mlflow: Any, records: Sequence[Record]) -> list[Any]:
    """Scorers that give the scores which records have already, with the reason or the error of each."""
    held = {record.item: record for record in records}
    names = dict.fromkeys(name for record in records for name in record.scores)
    return [mlflow.genai.scorer(_scorer(mlflow, name, held), name=name) for name in names]


def feedback(mlflow: Any, name: str, record: Record) -> Any:
    """A record's score of that name as MLflow's ``Feedback``, with the reason or the error."""
    source = "LLM_JUDGE" if name in record.eval_usage else "CODE"
    return mlflow.entities.Feedback(
        name=name,
        value=record.scores.get(name),
        rationale=record.arguments.get(name),
        error=record.score_errors.get(name),
        source=mlflow.entities.AssessmentSource(source_type=source, source_id=f"fairlane:{name}"),
    )


def _scorer(mlflow: Any, name: str, held: dict[int, Record]) -> Callable[[dict[str, Any]], Any]:
    def given(inputs: dict[str, Any]) -> Any:
        return feedback(mlflow, name, held[inputs["item"]])

    return given


def _send(mlflow: Any, run: ExportedRun, variant: tuple[str, int], records: list[Record]) -> str:
    spec = run.spec
    with mlflow.start_run(run_name=f"{spec.name}: {run.titled(variant)}") as begun:
        mlflow.set_tags({"fairlane.run": spec.run, "fairlane.team": spec.team})
        mlflow.log_params(
            {name: str(value)[:_LONGEST_PARAM] for name, value in _params(run, variant).items()}
        )
        mlflow.log_metrics(_metrics(records))
        mlflow.log_table(_table(records), TABLE)
        data, scorers = evaluation_data(run, records), given_scores(mlflow, records)
        if data and scorers:
            mlflow.genai.evaluate(data=data, scorers=scorers)
        return str(begun.info.run_id)


def _params(run: ExportedRun, variant: tuple[str, int]) -> dict[str, Any]:
    spec, (model, prompt) = run.spec, variant
    prompts = {"prompt": [each.model_dump() for each in spec.prompts[prompt]]} if spec.prompts else {}
    evaluators = [each.name for each in spec.evaluators]
    return {
        "model": model,
        **prompts,
        **spec.params,
        "evaluators": evaluators,
        "repetitions": spec.repetitions,
    }


def _metrics(records: Sequence[Record]) -> dict[str, float]:
    """The means of scores, counts of items by their state, and tokens."""
    values: dict[str, list[float]] = {}
    for record in records:
        for name, score in record.scores.items():
            if score is not None:
                values.setdefault(name, []).append(score)
    states = Counter(record.state for record in records)
    usage = [record.usage for record in records]
    return {
        **{f"{name}/mean": fmean(scores) for name, scores in values.items()},
        "items": len(records),
        **{
            f"items_{state}": states[state]
            for state in sorted({JobState.SUCCEEDED, JobState.FAILED, *states})
        },
        "input_tokens": sum(each.input_tokens or 0 for each in usage),
        "output_tokens": sum(each.output_tokens or 0 for each in usage),
    }


def _table(records: Sequence[Record]) -> dict[str, list[Any]]:
    columns = Columns()
    rows = [columns.learn(record) for record in records]
    return {name: [fitted(row.get(name), kind) for row in rows] for name, kind in columns.all()}


def _inputs(run: ExportedRun, record: Record) -> dict[str, Any]:
    messages = run.messages(record)
    return {"row": plain(record.row), **({"messages": plain(messages)} if messages else {})}


def _expectations(run: ExportedRun, record: Record) -> dict[str, Any]:
    expected = run.expected(record)
    return {} if expected is None else {"expectations": {"expected_response": expected}}
