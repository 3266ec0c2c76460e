"""Sends a run to MLflow: parameters, scores, a table of all records, and results of ``mlflow.genai``."""

from __future__ import annotations

import json
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

from fairlane.export.extras import library
from fairlane.export.moments import Moments
from fairlane.export.spool import Spool
from fairlane.export.trackers.exported import Exported, ExportedRun, RecordSpool, Variant, plain
from fairlane.model.job import JobState
from fairlane.model.record import Record
from fairlane.model.tokens import Usage

TABLE = "records.json"
BATCH = 1_000
"""Records of one MLflow evaluation, which holds them and their traces in memory."""

_LONGEST_PARAM = 6000


def export_mlflow(run: ExportedRun, records: Iterable[Record], target: str) -> Exported:
    """Send records to the server that ``MLFLOW_TRACKING_URI`` names; ``target`` is the experiment's name.

    By default it is MLflow's current experiment. Each model and prompt becomes a run of MLflow. Holds `BATCH`
    records at a time. Raises `MissingExtra`, and what MLflow raises.
    """
    mlflow = library("mlflow", "MLflow", "mlflow")
    library("mlflow.genai", "MLflow", "mlflow")
    if target:
        mlflow.set_experiment(target)
    with RecordSpool(run.variant) as spool:
        spool.take(records)
        ids = [_send(mlflow, run, variant, spool) for variant in spool.keys]
        return Exported(spool.count, f"MLflow runs {', '.join(ids)}")


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
    """MLflow scorers that return the records' existing scores, with the reason or the error of each."""
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


def _send(mlflow: Any, run: ExportedRun, variant: Variant, spool: RecordSpool[Variant]) -> str:
    spec = run.spec
    with mlflow.start_run(run_name=f"{spec.name}: {run.titled(variant)}") as begun:
        mlflow.set_tags({"fairlane.run": spec.run, "fairlane.team": spec.team})
        mlflow.log_params(
            {name: str(value)[:_LONGEST_PARAM] for name, value in _params(run, variant).items()}
        )
        _log_table(mlflow, spool.of(variant))
        rest = spool.of(variant)
        while _evaluate(mlflow, run, list(islice(rest, BATCH))):
            pass
        # Last, since each evaluation logs the means of its own batch under the same names.
        mlflow.log_metrics(_metrics(spool.of(variant)))
        return str(begun.info.run_id)


def _evaluate(mlflow: Any, run: ExportedRun, records: Sequence[Record]) -> bool:
    """Pass records and their scores to MLflow's evaluation; false if there are no records."""
    data, scorers = evaluation_data(run, records), given_scores(mlflow, records)
    if data and scorers:
        mlflow.genai.evaluate(data=data, scorers=scorers)
    return bool(records)


def _log_table(mlflow: Any, records: Iterable[Record]) -> None:
    """Log the records as a table of MLflow. MLflow writes tables from memory only. So this logs an empty
    table, and replaces its file by a full one in the same format: that of pandas' ``orient="split"``.
    """
    with Spool() as spool, tempfile.TemporaryDirectory() as folder:
        spool.take(records)
        names = [name for name, _ in spool.columns]
        mlflow.log_table({name: [] for name in names}, TABLE)
        path = Path(folder) / TABLE
        with path.open("w", encoding="utf-8") as file:
            file.write(f'{{"columns":{json.dumps(names)},"data":[')
            for number, row in enumerate(chain.from_iterable(spool.batches())):
                file.write(("," if number else "") + json.dumps(row))
            file.write("]}")
        mlflow.log_artifact(str(path))


def _params(run: ExportedRun, variant: Variant) -> dict[str, Any]:
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


def _metrics(records: Iterable[Record]) -> dict[str, float]:
    """The means of scores, counts of items by their state, and tokens; the cache's answers used none."""
    sums = defaultdict[str, Moments](Moments)
    states, tokens = Counter[JobState](), Counter[str]()
    for record in records:
        for name, score in record.scores.items():
            if score is not None:
                sums[name].add(score)
        states[record.state] += 1
        used = Usage() if record.cached else record.usage
        tokens["input_tokens"] += used.input_tokens or 0
        tokens["output_tokens"] += used.output_tokens or 0
    return {
        **{f"{name}/mean": each.mean for name, each in sums.items()},
        "items": states.total(),
        **{
            f"items_{state}": states[state]
            for state in sorted({JobState.SUCCEEDED, JobState.FAILED, *states})
        },
        **tokens,
    }


def _inputs(run: ExportedRun, record: Record) -> dict[str, Any]:
    messages = run.messages(record)
    return {"row": plain(record.row), **({"messages": plain(messages)} if messages else {})}


def _expectations(run: ExportedRun, record: Record) -> dict[str, Any]:
    expected = run.expected(record)
    return {} if expected is None else {"expectations": {"expected_response": expected}}
