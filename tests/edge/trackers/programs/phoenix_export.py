"""Starts Phoenix, sends it a run, and reads dataset and experiments back with Phoenix' own client."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import islice
from pathlib import Path

import httpx

from fairlane.embedded.ports import free_ports
from fairlane.export.trackers.exported import find_exporter
from tests.edge.trackers.programs.example import RECORDS, RUN
from tests.support.wait import wait_until

ENVIRONMENT = os.environ  # noqa: TID251  handed on to Phoenix


def answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/healthz", timeout=5).status_code == 200
    except httpx.HTTPError:
        return False


def check(url: str) -> None:
    from phoenix.client import Client

    exporter, client = find_exporter("phoenix"), Client()
    sent = exporter(RUN, iter(RECORDS), "capitals")
    assert sent.count == 4, sent
    dataset = client.datasets.get_dataset(dataset="capitals")
    assert [each["input"]["question"] for each in dataset.examples] == ["France?", "Größe?"]
    assert dataset.examples[0]["output"] == {"expected": "Paris"}
    experiments = {each["name"]: each for each in client.experiments.list(dataset_id=dataset.id)}
    assert sorted(experiments) == sorted(f"capitals, nightly: {model}" for model in RUN.spec.models)
    small = client.experiments.get_experiment(experiment_id=experiments["capitals, nightly: sim:small"]["id"])
    outputs = {each["dataset_example_id"]: each["output"] for each in small["task_runs"]}
    assert sorted(outputs.values()) == ["2", "Paris"]
    judged = [each for each in small["evaluation_runs"] if each.name == "llm_judge"]
    assert [each.result["score"] for each in judged if each.result] == [1.0]
    # Phoenix' client leaves out evaluations that are an error alone.
    rows = httpx.get(f"{url}/v1/experiments/{small['experiment_id']}/json", timeout=60).json()
    errors = [each["error"] for row in rows for each in row["annotations"] if each["error"]]
    assert errors == ["the judge said maybe"], rows
    exporter(RUN, iter(RECORDS), "capitals")
    assert len(client.datasets.get_dataset(dataset="capitals").examples) == 2


if __name__ == "__main__":
    port, grpc = islice(free_ports(), 2)
    url = f"http://127.0.0.1:{port}"
    ENVIRONMENT |= {
        "PHOENIX_PORT": str(port),
        "PHOENIX_GRPC_PORT": str(grpc),
        "PHOENIX_HOST": "127.0.0.1",
        "PHOENIX_WORKING_DIR": sys.argv[1],
        "PHOENIX_SQL_DATABASE_URL": "sqlite:///:memory:",
        "PHOENIX_TELEMETRY_ENABLED": "false",
        "PHOENIX_BASE_URL": url,
        "PHOENIX_COLLECTOR_ENDPOINT": url,
    }
    with (Path(sys.argv[1]) / "phoenix.log").open("w") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", "phoenix.server.main", "serve"], stdout=log, stderr=log
        )
        try:
            wait_until(lambda: answers(url) or server.poll() is not None, timeout=600)
            assert server.poll() is None, log.name
            check(url)
        finally:
            server.terminate()
            server.wait()
