"""Sends a run to an MLflow store, and reads it back with MLflow's own package."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import mlflow

from fairlane.export.trackers.exported import find_exporter
from tests.edge.trackers.programs.example import RECORDS, RUN

if __name__ == "__main__":
    os.chdir(sys.argv[1])  # MLflow writes artifacts into the present folder
    mlflow.set_tracking_uri(f"sqlite:///{Path(sys.argv[1]) / 'mlflow.db'}")
    sent = find_exporter("mlflow")(RUN, iter(RECORDS), "nightly")
    assert sent.count == 4, sent
    experiment = mlflow.get_experiment_by_name("nightly")
    assert experiment is not None
    runs = mlflow.search_runs([experiment.experiment_id], output_format="list", order_by=["start_time"])
    assert sorted(run.data.params["model"] for run in runs) == sorted(RUN.spec.models)
    small = next(run for run in runs if run.data.params["model"] == "sim:small")
    assert small.data.tags["fairlane.run"] == "01example"
    assert small.data.params["temperature"] == "0.5"
    assert small.data.metrics["exact_match/mean"] == 0.5
    assert (small.data.metrics["items"], small.data.metrics["items_failed"]) == (2, 0)
    table = mlflow.load_table("records.json", run_ids=[small.info.run_id])
    assert list(table["output"]) == ["Paris", "2"]
    assert list(table["row.question"]) == ["France?", "Größe?"]
    traces = mlflow.search_traces(
        locations=[experiment.experiment_id], run_id=small.info.run_id, return_type="list"
    )
    assert len(traces) == 2, traces
    found = {
        (trace.data.spans[0].inputs["item"], each.name): each.feedback
        for trace in traces
        for each in trace.info.assessments
        if each.feedback is not None
    }
    assert found[0, "llm_judge"].value == 1.0
    assert found[2, "exact_match"].value == 0.0
    assert found[2, "llm_judge"].error is not None
