"""Exporters are found by name, get a run with its messages, and say what they lack."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from redis import Redis

from fairlane.client.outputs import messages_of
from fairlane.core.errors import FairlaneError, MissingExtra, UnknownFormat
from fairlane.evaluators.builders import contains, exact_match
from fairlane.export.trackers import exported, inspect_logs
from fairlane.export.trackers.exported import Exported, ExportedRun, exporter_names, find_exporter
from fairlane.export.trackers.mlflow_runs import _metrics
from fairlane.model.record import Record
from fairlane.model.tokens import Usage
from tests.support.command_line import CommandLine
from tests.support.records import make_record, spec_of

TAKEN: list[tuple[ExportedRun, list[Record], str]] = []


def take(run: ExportedRun, records: Iterable[Record], target: str) -> Exported:
    TAKEN.append((run, list(records), target))
    return Exported(len(TAKEN[-1][1]), "a drawer")


def break_off(run: ExportedRun, records: Iterable[Record], target: str) -> Exported:
    raise RuntimeError("no such project")


@pytest.fixture
def cli(real_redis: Redis, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    points = [EntryPoint(name, f"{__name__}:{name}", exported.GROUP) for name in ("take", "break_off")]

    def found(group: str, **params: Any) -> EntryPoints:
        return EntryPoints(points).select(**params)

    monkeypatch.setattr(exported, "entry_points", found)
    monkeypatch.setitem(sys.modules, __name__, sys.modules[__name__])
    TAKEN.clear()
    return CommandLine(real_redis)


def test_our_own_exporters_are_installed() -> None:
    assert exporter_names() == ["inspect", "mlflow", "phoenix"]
    with pytest.raises(UnknownFormat, match="there are inspect, mlflow, phoenix"):
        find_exporter("excel")


@pytest.mark.parametrize(
    ("name", "package"), [("inspect", "inspect_ai.log"), ("mlflow", "mlflow"), ("phoenix", "phoenix.client")]
)
def test_without_its_package_an_exporter_names_the_extra(
    name: str, package: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, package.partition(".")[0], None)
    monkeypatch.setitem(sys.modules, package, None)

    def unread() -> Iterable[Record]:
        pytest.fail("must not be asked for")
        yield make_record()

    with pytest.raises(MissingExtra, match=rf"fairlane\[{name}\]"):
        find_exporter(name)(ExportedRun(spec_of()), unread(), str(tmp_path))
    assert not list(tmp_path.iterdir())


def test_records_are_sent_with_the_messages_of_their_tasks(cli: CommandLine) -> None:
    run = cli.completed(3)
    shown = cli("results", run, "--format", "take", "-o", "shelf")
    assert f"3 records of run {run} are in take: a drawer" in shown.stderr
    ((sent, records, target),) = TAKEN
    assert (sent.spec.run, [record.item for record in records], target) == (run, [0, 1, 2], "shelf")
    assert sent.messages(records[1]) == [{"role": "user", "content": "q1"}]


def test_what_a_tool_does_not_take_is_said_without_a_traceback(cli: CommandLine) -> None:
    run = cli.completed(1)
    shown = cli.refused("results", run, "--format", "break_off")
    assert "break_off did not take the records: RuntimeError: no such project" in shown
    assert "--follow" in cli.refused("results", run, "--format", "take", "--follow", code=2)


def test_a_wrong_exporter_is_refused_before_a_record_is_read(cli: CommandLine) -> None:
    with pytest.raises(UnknownFormat, match="there are break_off, take"):
        cli.stage.client.run(cli.completed(1)).export_to("excel")
    with pytest.raises(FairlaneError, match="RuntimeError"):
        cli.stage.client.run(cli.completed(1)).export_to("break_off")


def test_the_reference_is_that_of_the_first_evaluator_with_one() -> None:
    spec = spec_of([contains(text="x"), exact_match(expected="answer")])
    run = ExportedRun(spec)
    assert run.expected(make_record(row={"answer": 4})) == "4"
    assert run.expected(make_record(row={})) is None


def test_a_task_without_messages_has_none() -> None:
    function = messages_of(spec_of(models=("python:a.b:c",), prompts=()))
    assert function(make_record(model="python:a.b:c")) is None
    broken = messages_of(spec_of())
    assert broken(make_record(row={})) is None


def test_the_cache_s_answers_used_no_tokens_in_any_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    records = [make_record(n, usage=Usage(10, 5), cached=n > 0, scores={"s": 0.1}) for n in range(3)]
    metrics = _metrics(records)
    assert (metrics["input_tokens"], metrics["output_tokens"], metrics["s/mean"]) == (10, 5, 0.1)

    monkeypatch.setattr(inspect_logs, "library", lambda *_: AnyKind())
    monkeypatch.setattr(inspect_logs, "_sample", lambda *_: None)
    log = inspect_logs._log(ExportedRun(spec_of()), ("m", 0), records, datetime.now(UTC), 0)
    assert log.stats.model_usage["m"].total_tokens == 15


class AnyKind:
    """A package whose every class keeps what it is given."""

    def __getattr__(self, name: str) -> type[SimpleNamespace]:
        return SimpleNamespace
