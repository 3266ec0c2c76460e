"""Resources of KEDA and of Prometheus' operator, which Kubernetes' own schemas do not have."""

from __future__ import annotations

import copy
import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.edge.deploy.test_deploy_kubernetes import EXTENSIONS, Manifest, built
from tests.support.npm import install
from tests.support.promptfoo import path_with_node

PACKAGES = ("@kubernetes-models/keda@2.0.0", "@kubernetes-models/prometheus-operator@6.0.0")
PROGRAM = Path(__file__).with_name("operators.mjs")

pytestmark = pytest.mark.operators


def problems(folder: Path, resources: list[Manifest]) -> list[str]:
    program = shutil.copy(PROGRAM, folder)
    ended = subprocess.run(
        [shutil.which("node") or "node", program],
        input=json.dumps(resources),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    return ended.stdout.splitlines()


@pytest.mark.timeout(700)
def test_resources_of_operators_are_ones_that_their_models_take(
    pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, cache = path_with_node(), pytestconfig.cache
    if path is None:
        pytest.skip("this test needs Node.js")
    assert cache is not None
    monkeypatch.setenv("PATH", path)
    folder = install(cache.mkdir("operators") / "models", *PACKAGES).parent
    resources = [each for each in built("overlays/production") if each["kind"] in EXTENSIONS]
    assert {each["kind"] for each in resources} == set(EXTENSIONS)
    wrong = copy.deepcopy(resources)
    for each in wrong:
        each["spec"]["maxReplicaCount" if each["kind"] == "ScaledObject" else "podMetricsEndpoints"] = "x"
    assert problems(folder, resources) == []
    assert len(problems(folder, wrong)) == len(wrong)
