"""Calls ``evaluate`` as MLflow's users do, beside Fairlane's processes, and looks at MLflow's result."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import mlflow

from fairlane import Client, exact_match
from fairlane.compat.mlflow import evaluate
from tests.support.wait import wait_until

ENVIRONMENT = os.environ  # noqa: TID251  handed on to Fairlane's processes
SETTINGS = """
[connections.sim]
protocol = "openai"
base_url = "http://127.0.0.1:1/v1"
[worker]
modules = ["cities"]
"""
FUNCTION = """
def capital(question):
    if question == "Atlantis?":
        raise ValueError("no such country")
    return {"France?": "Paris"}.get(question, "Rome")
"""
DATA = [
    {"inputs": {"question": "France?"}, "expectations": {"expected_response": "Paris"}},
    {"inputs": {"question": "Spain?"}, "expectations": {"expected_response": "Madrid"}},
]
CHATS = [{"inputs": {"messages": [{"role": "user", "content": text}]}} for text in ("one", "two")]


@mlflow.genai.scorer
def length(outputs: Any) -> int:
    return len(outputs)


def check() -> None:
    import cities  # of the folder that the program got

    same = exact_match(expected="expected_response", name="same")
    with Client() as client:
        result = evaluate(DATA, [length, same], cities.capital, client=client)
        assert result.metrics["length/mean"] == 4.5, result.metrics
        assert result.metrics["same/mean"] == 0.5, result.metrics
        bounds = client.runs(limit=2)
        assert [status.name for status in bounds] == ["mlflow scores", "mlflow predict"]
        answered = evaluate(CHATS, [length], "sim:echo", client=client)
        assert answered.metrics["length/mean"] == 3, answered.metrics
    given = [
        {"inputs": {"question": "x"}, "outputs": "Paris", "expectations": {"expected_response": "Paris"}}
    ]
    assert evaluate(given, [same]).metrics["same/mean"] == 1


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    os.chdir(folder)  # MLflow writes artifacts into the present folder
    (folder / "fairlane.toml").write_text(SETTINGS)
    (folder / "simulator.toml").write_text('[models.echo]\noutput = "echo"\nlatency_ms = 10\n')
    (folder / "cities.py").write_text(FUNCTION)
    sys.path.insert(0, str(folder))
    ENVIRONMENT |= {
        "PYTHONPATH": os.pathsep.join([str(folder), *sys.path]),
        "MLFLOW_GENAI_EVAL_MAX_RETRIES": "1",
        "MLFLOW_GENAI_EVAL_PREDICT_RATE_LIMIT": "50",
    }
    mlflow.set_tracking_uri(f"sqlite:///{folder / 'mlflow.db'}")
    command = [sys.executable, "-m", "fairlane.cli", "up", "--simulate-config", "simulator.toml"]
    with (folder / "up.log").open("w") as log:
        up = subprocess.Popen([*command, "--ready-file", "ready.json"], cwd=folder, stdout=log, stderr=log)
        try:
            wait_until(lambda: (folder / "ready.json").exists() or up.poll() is not None)
            found = json.loads((folder / "ready.json").read_text())
            ENVIRONMENT["FAIRLANE_REDIS__URL"] = found["redis_url"]
            check()
        finally:
            up.send_signal(signal.SIGINT)
            up.wait()
