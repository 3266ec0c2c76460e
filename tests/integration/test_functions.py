"""Python functions as tasks and scorers, on real workers that allow one module."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fairlane import JobState, exact_match
from fairlane.config.environment import process_environment
from fairlane.evaluators.function_scorers import scorer
from tests.support.cluster import Cluster, all_succeeded, cluster, numbered, whole

ROOT = Path(__file__).parents[2]
HERE = "tests.support.user_functions"


@pytest.fixture(scope="module")
def allowed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A worker whose operator allows the functions of the tests."""
    worker: dict[str, Any] = {"modules": [HERE]}
    path = os.pathsep.join([str(ROOT), process_environment().get("PYTHONPATH", "")])
    environment = {"PYTHONPATH": path}
    with cluster(tmp_path_factory.mktemp("functions"), worker=worker, workers=1, env=environment) as made:
        yield made


@pytest.mark.parametrize(("function", "output"), [("shout", "HELLO"), ("whisper", "hello")])
def test_a_function_is_a_task_whether_it_blocks_or_awaits(
    allowed: Cluster, function: str, output: str
) -> None:
    rows = [{"text": "Hello"}] * 20
    run = allowed.client.submit(rows, task=f"{HERE}:{function}", evaluators=[exact_match("text")])

    records = all_succeeded(run)

    assert {record.output for record in records} == {output}
    assert {record.model for record in records} == {f"python:{HERE}:{function}"}
    assert [lane.lane for lane in run.status().lanes] == [f"python:{HERE}:{function}"]


def test_a_function_that_blocks_never_runs_on_the_workers_loop(allowed: Cluster) -> None:
    (record,) = all_succeeded(allowed.client.submit(numbered(1), task=f"{HERE}:thread_name"))

    assert record.output == "fairlane-function"


def test_functions_score_outputs_on_lanes_of_their_own(allowed: Cluster) -> None:
    model = allowed.new_model()
    evaluators = [scorer(f"{HERE}:length"), scorer(f"{HERE}:agrees", name="agrees", lane="checks")]
    rows = numbered(10, expected="no model says this")
    run = allowed.client.submit(rows, "question {{ n }}", model=f"sim:{model}", evaluators=evaluators)

    for record in all_succeeded(run):
        assert record.scores == {"length": len(record.output or ""), "agrees": 0.0}
    lanes = {lane.lane for lane in run.status().lanes}
    assert lanes == {f"sim:{model}", f"python:{HERE}:length", "python:checks"}


def test_a_function_that_raises_rate_limited_is_called_again_at_no_cost(
    allowed: Cluster, tmp_path: Path
) -> None:
    rows = [{"marker": str(tmp_path / "seen")}]
    run = allowed.client.submit(rows, task=f"{HERE}:busy_once", lane="busy")

    (record,) = all_succeeded(run)

    assert (record.output, record.attempts) == ("served", 1)
    assert run.status().rate_limits == 1


def test_a_function_of_a_module_that_is_not_allowed_is_refused_by_name(allowed: Cluster) -> None:
    run = allowed.client.submit(numbered(2), task="os:getcwd")

    for record in whole(run):
        assert record.state is JobState.FAILED
        assert record.error == "module 'os' is not in worker.modules of this worker"


def test_an_exception_fails_only_its_item_and_reports_type_and_message(allowed: Cluster) -> None:
    (record,) = whole(allowed.client.submit([{"text": "oops"}], task=f"{HERE}:crash"))

    assert (record.state, record.error) == (JobState.FAILED, "KeyError: 'oops'")
    allowed.process("worker-1")  # it lives
    assert allowed.stack.poll() == []


def test_workers_that_allow_no_modules_take_no_functions(tmp_path: Path) -> None:
    with cluster(tmp_path, workers=1) as bare:
        waits = bare.client.submit(numbered(1), task=f"{HERE}:shout")
        model = bare.new_model()
        all_succeeded(bare.client.submit(numbered(5), "question {{ n }}", model=f"sim:{model}"))

        assert f"python:{HERE}:shout" not in bare.beats()[0].info.lanes
        assert waits.status().jobs_done == 0
        waits.cancel()
        whole(waits)
