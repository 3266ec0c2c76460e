"""Datasets larger than memory: rows that are written while their run goes on, and rows that the scheduler
reads.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fairlane import Reference, RunState, SubmissionError
from fairlane.testing import SimulatedModel
from tests.support.cluster import Cluster, all_succeeded, cluster, numbered, whole


def test_a_run_begins_before_its_last_row_is_written(deployment: Cluster) -> None:
    model = deployment.new_model(output="echo", latency_ms=1)
    with deployment.client.open("{{ n }}", model=f"sim:{model}") as rows:
        rows.extend(numbered(1024))
        seen = [record.item for record, _ in zip(rows.run.stream(), range(10), strict=False)]
        assert len(seen) == 10
        rows.write({"n": 1024})
    records = all_succeeded(rows.run)
    assert [record.output for record in records] == [str(n) for n in range(1025)]
    assert rows.run.status().progress == 1.0


def test_a_block_that_raises_cancels_its_run(deployment: Cluster) -> None:
    model = deployment.new_model(latency_ms=1)
    with pytest.raises(KeyError), deployment.client.open("{{ n }}", model=f"sim:{model}") as rows:  # noqa: PT012
        rows.write({"n": 1})
        raise KeyError("the source broke")
    assert rows.run.wait(timeout=60.0).state is RunState.CANCELLED


def test_no_rows_at_all_complete_the_run(deployment: Cluster) -> None:
    with deployment.client.open("{{ n }}", model="sim:none") as rows:
        pass
    assert rows.run.wait(timeout=60.0).state is RunState.COMPLETED


def test_a_row_that_is_none_is_refused_where_it_is_written(deployment: Cluster) -> None:
    with pytest.raises(SubmissionError, match="row"), deployment.client.open("x", model="sim:none") as rows:
        rows.write("no row")  # type: ignore[arg-type]


@pytest.mark.timeout(180)
def test_a_dataset_by_reference_is_read_by_the_scheduler_and_its_pages_are_forgotten(tmp_path: Path) -> None:
    rows, inside = 1300, tmp_path / "data"
    inside.mkdir()
    path = inside / "rows.jsonl"
    path.write_text("".join(json.dumps({"n": n}) + "\n" for n in range(rows)))
    (tmp_path / "elsewhere.jsonl").write_text("{}\n")
    scheduler = {"datasets": [str(inside)]}
    models = {"echo": SimulatedModel(output="echo", latency_ms=1)}
    (tmp_path / "deployment").mkdir()
    with cluster(tmp_path / "deployment", models, scheduler=scheduler, workers=1, slots=50) as made:
        run = made.client.submit(Reference(path), "{{ n }}", model="sim:echo")
        records = whole(run, timeout=120)
        assert [record.output for record in records] == [str(n) for n in range(rows)]
        assert [record.row for record in records] == [{"n": n} for n in range(rows)]
        kept = made.redis.hkeys(made.keys.rows(run._ref))
        assert sum(field.isdigit() for field in kept) <= 2, "and a digest of each page"
        refused = made.client.submit(Reference(tmp_path / "elsewhere.jsonl"), "x", model="sim:echo")
        status = refused.wait(timeout=60.0)
        assert (status.state, "scheduler.datasets" in str(status.reason)) == (RunState.REFUSED, True)
        missing = made.client.submit(Reference(inside / "missing.csv"), "x", model="sim:echo")
        status = missing.wait(timeout=60.0)
        assert (status.state, "no such file" in str(status.reason)) == (RunState.STOPPED, True)
