"""Exporters and data frames hold few records at a time, however many there are."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fairlane.export import tables
from fairlane.export.lines import read_record, record_line
from fairlane.export.spool import BATCH_ROWS
from fairlane.export.trackers import exported, mlflow_runs, phoenix_experiments
from fairlane.export.trackers.exported import Exported, ExportedRun, RecordSpool
from fairlane.model.job import JobState
from fairlane.model.record import Record
from fairlane.model.tokens import Usage
from tests.support.records import make_record, spec_of

COUNT = 6_000
MODELS = ("sim:a", "sim:b")


class Row(dict[str, Any]):
    """A record's row, which counts those that are alive."""

    alive = most = 0

    def __init__(self, given: Any) -> None:
        super().__init__(given)
        Row.alive += 1
        Row.most = max(Row.most, Row.alive)

    def __del__(self) -> None:
        Row.alive -= 1


def records(count: int = COUNT) -> Iterator[Record]:
    for item in range(count):
        yield make_record(
            item=item,
            row=Row({"question": item // 2}),
            model=MODELS[item % 2],
            scores={"exact": float(item % 4 == 0)},
            usage=Usage(2, 1),
        )


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> ExportedRun:
    """A run whose records are counted also where they come from disk."""

    def counted(line: bytes) -> Record:
        record = read_record(line)
        return replace(record, row=Row(record.row))

    monkeypatch.setattr(exported, "read_record", counted)
    Row.most = Row.alive
    return ExportedRun(spec_of(models=MODELS, rows=COUNT // 2))


class Mlflow:
    """MLflow, as far as the exporter uses it; it keeps figures alone."""

    def __init__(self) -> None:
        self.metrics: list[dict[str, float]] = []
        self.tables: list[tuple[list[str], int]] = []
        self.evaluated: list[int] = []
        self.logged: list[list[str]] = []
        self.genai = SimpleNamespace(scorer=lambda function, name: name, evaluate=self.evaluate)
        self.set_experiment = self.set_tags = self.log_params = lambda *_: None

    def start_run(self, run_name: str) -> Any:
        return nullcontext(SimpleNamespace(info=SimpleNamespace(run_id=run_name)))

    def log_metrics(self, metrics: dict[str, float]) -> None:
        self.metrics.append(metrics)

    def log_table(self, data: dict[str, Any], name: str) -> None:
        self.logged.append(list(data))

    def log_artifact(self, path: str) -> None:
        table = json.loads(Path(path).read_text())
        self.tables.append((table["columns"], len(table["data"])))
        assert all(len(row) == len(table["columns"]) for row in table["data"])

    def evaluate(self, data: list[Any], scorers: list[str]) -> None:
        self.evaluated.append(len(data))


def test_mlflow_gets_batches_a_whole_table_and_the_means_of_all(
    run: ExportedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = Mlflow()
    monkeypatch.setattr(mlflow_runs, "library", lambda *_: fake)
    sent = mlflow_runs.export_mlflow(run, records(), "nightly")
    assert sent.count == COUNT
    assert fake.evaluated == [mlflow_runs.BATCH] * (COUNT // mlflow_runs.BATCH)
    assert [metrics["exact/mean"] for metrics in fake.metrics] == [0.5, 0.0]
    assert [metrics["items"] for metrics in fake.metrics] == [COUNT / 2] * 2
    assert [metrics["input_tokens"] for metrics in fake.metrics] == [COUNT] * 2
    assert [(columns, rows) for columns, rows in fake.tables] == [
        (columns, COUNT // 2) for columns in fake.logged
    ]
    assert Row.most <= mlflow_runs.BATCH + 2


class Phoenix:
    """Phoenix' client, as far as the exporter uses it."""

    def __init__(self) -> None:
        self.datasets, self.experiments = SimpleNamespace(create_dataset=self.made), self
        self.sent: dict[str, int] = {}
        self.inputs = list[Any]()

    def made(self, name: str, examples: list[dict[str, Any]], dataset_description: str) -> Any:
        self.inputs = [each["input"] for each in examples]
        shown = [{"id": f"node-{each['metadata']['row']}", "metadata": each["metadata"]} for each in examples]
        return SimpleNamespace(name=name, id="d", version_id="v", examples=shown)

    def create(self, experiment_name: str, **_: Any) -> dict[str, str]:
        self.sent[experiment_name] = 0
        return {"id": experiment_name}

    def log_run(self, experiment_id: str, dataset_example_id: str, **_: Any) -> dict[str, str]:
        assert dataset_example_id == f"node-{self.sent[experiment_id]}"
        self.sent[experiment_id] += 1
        return {"id": "r"}

    def log_evaluation(self, **_: Any) -> None: ...


def test_phoenix_gets_its_rows_at_once_and_its_records_one_by_one(
    run: ExportedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = Phoenix()
    monkeypatch.setattr(phoenix_experiments, "library", lambda *_: SimpleNamespace(Client=lambda: fake))
    assert phoenix_experiments.export_phoenix(run, records(), "rows").count == COUNT
    assert list(fake.sent.values()) == [COUNT // 2] * 2
    assert Row.most <= 2


def test_phoenix_gets_integers_beyond_64_bits_as_texts(
    run: ExportedRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its server answered them with "Internal Server Error"."""
    fake, most = Phoenix(), 2**63 - 1
    monkeypatch.setattr(phoenix_experiments, "library", lambda *_: SimpleNamespace(Client=lambda: fake))
    row = {"ends": [most, -most - 1, True], "beyond": {"a": [most + 1, -most - 2]}, "digits": 10**400}
    phoenix_experiments.export_phoenix(run, [make_record(model=MODELS[0], row=row)], "rows")
    beyond = {"a": [str(most + 1), str(-most - 2)]}
    assert fake.inputs == [{"ends": [most, -most - 1, True], "beyond": beyond, "digits": str(10**400)}]


@pytest.mark.parametrize(
    ("package", "make"), [("pandas", tables.to_frame), ("polars", tables.to_polars_frame)]
)
def test_a_data_frame_is_made_from_batches(package: str, make: Any, run: ExportedRun) -> None:
    pytest.importorskip(package)
    count = BATCH_ROWS + 3
    made = make(records(count))
    assert made.shape[0] == count
    assert list(made["row.question"][-2:]) == [(count - 2) // 2, (count - 1) // 2]
    assert str(made["scores.exact"].dtype) == "Float64"
    assert Row.most <= 2
    assert make(records(0)).shape[0] == 0
    assert list(make(records(0)).columns)[:2] == ["item", "model"]


def test_a_record_is_the_same_after_a_while_on_disk() -> None:
    whole = make_record(
        item=3,
        row={"question": "Größe \ud800?", "tags": ["a", {"b": None}]},
        state=JobState.FAILED,
        output=None,
        error="400: \u2028",
        eval_usage={"judge": Usage(5, 1)},
        scores={"judge": None},
        score_errors={"judge": "maybe"},
    )
    assert read_record(record_line(whole)) == whole
    with RecordSpool[int](lambda record: record.item % 2) as spool:
        spool.take(replace(whole, item=item) for item in (4, 1, 2, 7))
        assert [record.item for record in spool.all()] == [4, 1, 2, 7]
        assert {key: [each.item for each in spool.of(key)] for key in spool.keys} == {0: [4, 2], 1: [1, 7]}
        assert spool.count == 4


def test_nothing_is_exported_from_no_records(run: ExportedRun, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mlflow_runs, "library", lambda *_: Mlflow())
    assert mlflow_runs.export_mlflow(run, iter(()), "") == Exported(0, "MLflow runs ")
