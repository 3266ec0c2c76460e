"""Writes a run's records as the Batch API's output and error lines, in files that are complete or absent."""

import json
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from fairlane.apps.batchfile.reading import ID_FIELD, REQUEST_FIELD
from fairlane.client.completions import chat_completion, embeddings, response
from fairlane.core.errors import FairlaneError
from fairlane.evaluators.embeddings import BrokenEmbeddings
from fairlane.export.files import remove_earlier, whole_file
from fairlane.model.job import JobState
from fairlane.model.record import Record
from fairlane.pipeline.requests import EMBEDDINGS_URL, RESPONSES_URL, URL_FIELD

_SUFFIXES = (".jsonl", ".ndjson", ".json")

_BODIES = {EMBEDDINGS_URL: embeddings, RESPONSES_URL: response}
"""Makes the body of an answer, by the URL of every API but chat."""

ERROR_CODES: Mapping[JobState, tuple[str, str]] = {
    JobState.FAILED: ("request_failed", "the request failed"),
    JobState.INVALID: ("invalid_request", "the request could not be made"),
    JobState.CANCELLED: ("batch_cancelled", "the run was cancelled before this request was answered"),
    JobState.TIMED_OUT: ("batch_expired", "the run's time was over before this request was answered"),
    JobState.SKIPPED: ("request_skipped", "the run ended before this request was made"),
}
"""The code of an error line, and its message where the record has no error."""


class Written(NamedTuple):
    """Lines written: answers, and requests without one."""

    answers: int
    errors: int


class BatchWriter:
    """Writes the records of one run. ``ended_s``: when it ended, in Unix seconds.

    ``params`` are the run's, for requests that do not set them: they may declare tools.
    """

    def __init__(self, run: str, ended_s: int, params: Mapping[str, Any] | None = None) -> None:
        self._run, self._ended_s, self._params = run, ended_s, params or {}

    def write(self, records: Iterable[Record], output: Path, errors: Path, *, always: bool) -> Written:
        """Both files, in the order of the records, one record in memory at a time.

        It writes an errors file if there are errors, or ``always``; else it removes an earlier one. It
        replaces files only once both are complete. Raises ``OSError`` that names a file which cannot be
        written, and `FairlaneError` for a run that is no batch.
        """
        answers = failed = 0
        with ExitStack() as files:
            out = files.enter_context(whole_file(output))
            bad: TextIO | None = files.enter_context(whole_file(errors)) if always else None
            for record in records:
                if record.state is JobState.SUCCEEDED:
                    out.write(_line(self.answer(record)))
                    answers += 1
                    continue
                if bad is None:
                    bad = files.enter_context(whole_file(errors))
                bad.write(_line(self.error(record)))
                failed += 1
        if not failed and not always:
            remove_earlier(errors)
        return Written(answers, failed)

    def answer(self, record: Record) -> dict[str, Any]:
        """The output line of a request that was answered."""
        named, request = self._named(record), {**self._params, **_object(record.row[REQUEST_FIELD])}
        make = _BODIES.get(str(record.row.get(URL_FIELD)), chat_completion)
        try:
            body = make(record, request, f"{self._run}-{record.item}", self._ended_s)
        except BrokenEmbeddings as broken:
            raise FairlaneError(f"run {self._run}, item {record.item}: the output holds {broken}") from None
        response = {"status_code": 200, "request_id": f"{self._run}/{record.item}", "body": body}
        return {**named, "response": response, "error": None}

    def error(self, record: Record) -> dict[str, Any]:
        """The error line of a request without an answer."""
        code, words = ERROR_CODES.get(record.state, (f"request_{record.state}", f"it is {record.state}"))
        problem = {"code": code, "message": record.error or words}
        return {**self._named(record), "response": None, "error": problem}

    def _named(self, record: Record) -> dict[str, Any]:
        name = record.row.get(ID_FIELD)
        if not isinstance(name, str) or REQUEST_FIELD not in record.row:
            raise FairlaneError(
                f"run {self._run} is no batch: its rows have no {ID_FIELD} and {REQUEST_FIELD}"
            )
        return {"id": f"batch_req_{self._run}-{record.item}", ID_FIELD: name}


def default_errors(output: Path) -> Path:
    """The default file for errors: ``out.jsonl`` → ``out.errors.jsonl``."""
    name = output.stem if output.suffix.lower() in _SUFFIXES else output.name
    return output.with_name(f"{name}.errors.jsonl")


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _line(document: Mapping[str, Any]) -> str:
    return json.dumps(document, ensure_ascii=False) + "\n"
