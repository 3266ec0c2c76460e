"""Writes logs, and reads them with Inspect's own package."""

from __future__ import annotations

import errno
import sys
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

from inspect_ai.analysis import messages_df
from inspect_ai.log import EvalLog, list_eval_logs, read_eval_log, recompute_metrics

from fairlane.export.trackers.exported import ExportedRun, find_exporter
from tests.edge.trackers.programs.example import RECORDS, RUN, SPEC


def check_repeated(folder: Path) -> None:
    """Four epochs of each of five rows: Inspect computes the standard error that the log has."""
    spec = SPEC.model_copy(update={"models": ("sim:small",), "rows": 5, "repetitions": 4})
    repeated = [
        replace(RECORDS[0], item=n, repetition=n % 4, scores={"exact_match": n // 4 % 2}) for n in range(20)
    ]
    find_exporter("inspect")(ExportedRun(spec), iter(repeated), str(folder))
    log = read_eval_log(list_eval_logs(str(folder))[0])
    assert log.results is not None
    errors = [log.results.scores[0].metrics["stderr"].value]
    recompute_metrics(log)
    errors.append(log.results.scores[0].metrics["stderr"].value)
    assert abs(errors[0] - errors[1]) < 1e-9 < errors[0], errors


def check_full_disk(folder: Path) -> None:
    """The error names the log, of which nothing is left."""

    def write_half(_: EvalLog, location: str) -> None:
        Path(location).write_bytes(b"PK")
        raise OSError(errno.ENOSPC, "No space left on device")

    caught = None
    with patch("inspect_ai.log.write_eval_log", write_half):
        try:
            find_exporter("inspect")(RUN, iter(RECORDS), str(folder))
        except OSError as error:
            caught = Path(error.filename)
    assert caught is not None
    assert (caught.parent, caught.suffix) == (folder, ".eval")
    assert list(folder.iterdir()) == []


if __name__ == "__main__":
    check_full_disk(Path(sys.argv[1]) / "full")
    folder = Path(sys.argv[1]) / "logs"
    sent = find_exporter("inspect")(RUN, iter(RECORDS), str(folder))
    assert (sent.count, sent.where) == (4, str(folder)), sent
    logs = sorted(
        (read_eval_log(info) for info in list_eval_logs(str(folder))), key=lambda log: log.eval.task_id
    )
    assert [log.eval.model for log in logs] == list(RUN.spec.models)
    small, large = logs
    assert (small.status, small.eval.task) == ("success", "capitals, nightly")
    assert small.eval.model_args == {"temperature": 0.5}
    assert small.results is not None
    by_name = {score.name: score for score in small.results.scores}
    assert by_name["exact_match"].metrics["mean"].value == 0.5
    assert (by_name["llm_judge"].scored_samples, by_name["llm_judge"].unscored_samples) == (1, 1)
    first, second = small.samples or []
    assert (first.id, first.input, first.target, first.output.completion) == (0, "France?", "Paris", "Paris")
    assert [message.role for message in first.messages] == ["user", "assistant"]
    assert first.output.stop_reason == "max_tokens"
    assert first.output.usage is not None
    assert first.output.usage.input_tokens_cache_read == 1
    assert first.scores is not None
    assert (first.scores["llm_judge"].value, first.scores["llm_judge"].explanation) == (1.0, "It is so.")
    assert second.metadata["score_errors"] == {"llm_judge": "the judge said maybe"}
    failed = (large.samples or [])[1]
    assert failed.error is not None
    assert failed.error.message == "400: refused"
    said = messages_df(str(folder), quiet=True)
    assert list(said["content"]) == ["France?", "Paris", "Größe?", "2", "France?", "Paris", "Größe?"], said
    check_repeated(Path(sys.argv[1]) / "repeated")
