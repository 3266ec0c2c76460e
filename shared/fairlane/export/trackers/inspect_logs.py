"""Writes a run as logs of Inspect, one for each model and prompt, for ``inspect view``."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from fairlane.core.paths import at_home
from fairlane.export.extras import library
from fairlane.export.files import naming_a_full_disk
from fairlane.export.finish_reasons import openai_reason
from fairlane.export.moments import Moments, OpenRows
from fairlane.export.trackers.exported import Exported, ExportedRun, RecordSpool, Variant, as_text, plain
from fairlane.model.job import JobState
from fairlane.model.record import Record
from fairlane.model.tokens import Usage

DEFAULT_FOLDER = "logs"
"""The default folder of ``inspect view``."""

_STOP_REASONS: Mapping[str, str] = {"length": "max_tokens", "function_call": "tool_calls"}
"""Inspect's names for reasons that have another name there."""


def export_inspect(run: ExportedRun, records: Iterable[Record], target: str) -> Exported:
    """Write logs into the folder ``target``. A sample is a row, an epoch a repetition.

    Inspect writes a log from memory, so this holds the records of one model and prompt at a time.
    Each log appears complete or not at all. Raises `MissingExtra`, and ``OSError`` for a folder that cannot
    be written.
    """
    log = library("inspect_ai.log", "an Inspect log", "inspect")
    folder = at_home(Path(target or DEFAULT_FOLDER))
    folder.mkdir(parents=True, exist_ok=True)
    created = datetime.fromtimestamp(run.spec.submitted_ms / 1000, UTC)
    with RecordSpool(run.variant) as spool:
        spool.take(records)
        for number, variant in enumerate(spool.keys):
            name = (
                f"{created:%Y-%m-%dT%H-%M-%S+00-00}_{_file_name(run.spec.name)}_{run.spec.run}-{number}.eval"
            )
            written = _log(run, variant, list(spool.of(variant)), created, number)
            path = folder / name
            with naming_a_full_disk(path), TemporaryDirectory(prefix=".", dir=folder) as partial:
                log.write_eval_log(written, str(Path(partial) / name))
                (Path(partial) / name).replace(path)
        return Exported(spool.count, str(folder))


def _log(run: ExportedRun, variant: Variant, records: Sequence[Record], created: datetime, n: int) -> Any:
    log, spec = library("inspect_ai.log", "an Inspect log", "inspect"), run.spec
    rows = {run.row_number(record) for record in records}
    done = [record for record in records if record.state is JobState.SUCCEEDED]
    return log.EvalLog(
        status="success",
        eval=log.EvalSpec(
            created=created.isoformat(),
            task=spec.name,
            task_id=f"{spec.run}-{n}",
            run_id=spec.run,
            eval_id=f"{spec.run}-{n}",
            dataset=log.EvalDataset(name=spec.name, samples=len(rows), sample_ids=sorted(rows)),
            model=variant[0] or "none",
            model_args=plain(spec.params),
            config=log.EvalConfig(epochs=spec.repetitions),
            metadata={"fairlane_run": spec.run, "fairlane_team": spec.team, "prompt": variant[1]},
        ),
        results=log.EvalResults(
            total_samples=len(records), completed_samples=len(done), scores=list(_means(run, records))
        ),
        stats=log.EvalStats(
            started_at=created.isoformat(),
            completed_at=created.isoformat(),
            model_usage={
                variant[0] or "none": _usage([record.usage for record in records if not record.cached])
            },
        ),
        samples=[_sample(run, record) for record in records],
    )


def _sample(run: ExportedRun, record: Record) -> Any:
    log, model = library("inspect_ai.log", "", "inspect"), library("inspect_ai.model", "", "inspect")
    asked = run.messages(record) or []
    question = [_message(each) for each in asked]
    output = model.ModelOutput(model=record.model)
    if record.output is not None:
        reason = openai_reason(record.finish_reason, calls=False)
        stop_reason = _STOP_REASONS.get(reason, reason)
        output = model.ModelOutput.from_content(record.model, record.output, stop_reason=stop_reason)
        output.usage = _usage([record.usage])
        output.time = None if record.latency_ms is None else record.latency_ms / 1000
    error = None
    if record.state is not JobState.SUCCEEDED:
        words = record.error or str(record.state)
        error = log.EvalError(message=words, traceback=words, traceback_ansi=words)
    return log.EvalSample(
        id=run.row_number(record),
        epoch=record.repetition + 1,
        input=as_text(asked[-1]["content"]) if asked else as_text(plain(record.row)),
        target=run.expected(record) or "",
        messages=[*question, *(choice.message for choice in output.choices)],
        output=output,
        events=[_call(run, question, output)],
        scores=_scores(record),
        error=error,
        metadata={
            "row": plain(record.row),
            "state": str(record.state),
            "attempts": record.attempts,
            **({"score_errors": dict(record.score_errors)} if record.score_errors else {}),
        },
    )


def _call(run: ExportedRun, question: Sequence[Any], output: Any) -> Any:
    """The call as an event: ``messages_df`` reads events alone."""
    event, model = library("inspect_ai.event", "", "inspect"), library("inspect_ai.model", "", "inspect")
    return event.ModelEvent(
        timestamp=datetime.fromtimestamp(run.spec.submitted_ms / 1000, UTC),
        model=output.model,
        input=list(question),
        tools=[],
        tool_choice="none",
        config=model.GenerateConfig(),
        output=output,
    )


def _message(message: Mapping[str, Any]) -> Any:
    model = library("inspect_ai.model", "", "inspect")
    kinds = {
        "user": model.ChatMessageUser,
        "assistant": model.ChatMessageAssistant,
        "tool": model.ChatMessageTool,
    }
    kind = kinds.get(str(message.get("role")), model.ChatMessageSystem)
    return kind(content=as_text(message.get("content") or ""))


def _scores(record: Record) -> dict[str, Any]:
    scorer = library("inspect_ai.scorer", "", "inspect")
    return {
        name: scorer.Score(value=value, answer=record.output, explanation=record.arguments.get(name))
        for name, value in record.scores.items()
        if value is not None
    }


def _means(run: ExportedRun, records: Sequence[Record]) -> Iterable[Any]:
    """Means, with their standard errors over rows as in a summary: epochs of a row are one observation."""
    log = library("inspect_ai.log", "", "inspect")
    sums = {name: Moments() for record in records for name in record.scores}
    rows = OpenRows(run.spec.repetitions)
    for record in records:
        found = [(sums[name], value) for name, value in record.scores.items() if value is not None]
        rows.add(run.row_number(record) * run.spec.repetitions, found)
    for name, moments in sums.items():
        scores = moments.scores(len(records), rows.of(moments))
        metrics = {"mean": scores.mean, "stderr": scores.standard_error}
        yield log.EvalScore(
            name=name,
            scorer=name,
            scored_samples=scores.count,
            unscored_samples=scores.missing,
            metrics={
                key: log.EvalMetric(name=key, value=value)
                for key, value in metrics.items()
                if value is not None
            },
        )


def _usage(usages: Sequence[Usage]) -> Any:
    model = library("inspect_ai.model", "", "inspect")
    return model.ModelUsage(
        input_tokens=sum(each.input_tokens or 0 for each in usages),
        output_tokens=sum(each.output_tokens or 0 for each in usages),
        total_tokens=sum(each.total or 0 for each in usages),
        input_tokens_cache_read=sum(each.cached_tokens or 0 for each in usages),
        input_tokens_cache_write=sum(each.written_tokens or 0 for each in usages),
    )


def _file_name(text: str) -> str:
    return "".join(sign if sign.isalnum() or sign in "-." else "-" for sign in text)[:80]
