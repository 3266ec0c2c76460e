"""Calls and completions as JSON, on their way back from a child."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from fairlane.model.ending import ReadyJob, RecordedJob, SessionCompletion
from fairlane.model.job import JobState
from fairlane.model.tokens import Entry
from fairlane.pipeline.completion import Completion
from fairlane.pipeline.evaluations import NextJob
from fairlane.pipeline.rendering import Call


def written_call(call: Call) -> bytes:
    """A call as JSON."""
    optional, inputs = sorted(call.optional), None if call.inputs is None else [*call.inputs]
    return as_json([call.model, call.messages, dict(call.params), call.arguments, inputs, optional])


def read_call(text: bytes) -> Call:
    """The call that `written_call` wrote."""
    model, messages, params, arguments, inputs, optional = json.loads(text)
    return Call(
        str(model),
        [*messages],
        dict(params),
        None if arguments is None else dict(arguments),
        None if inputs is None else tuple(map(str, inputs)),
        frozenset(map(str, optional)),
    )


def written_completion(done: Completion) -> bytes:
    """A completion as JSON."""
    session = done.session
    return as_json(
        [
            done.state,
            done.payload,
            [_written_job(job) for job in done.follow],
            done.malformed,
            dict(done.memory),
            None
            if session is None
            else [*session[:-1], [[str(entry), lane] for entry, lane in session.evaluations]],
        ]
    )


def read_completion(text: bytes) -> Completion:
    """The completion that `written_completion` wrote."""
    state, payload, follow, malformed, memory, session = json.loads(text)
    return Completion(
        JobState(state),
        str(payload),
        tuple(_read_job(job) for job in follow),
        tuple(map(str, malformed)),
        {str(name): str(value) for name, value in memory.items()},
        None if session is None else _read_session(*session),
    )


def _written_job(job: NextJob) -> list[object]:
    if isinstance(job, ReadyJob):
        return [str(job.entry), job.lane]
    return [job.job, job.state, job.payload, job.lane]


def _read_job(written: Sequence[Any]) -> NextJob:
    match written:
        case [str(entry), str(lane)]:
            return ReadyJob(Entry.parse(entry), lane)
        case [int(job), str(state), str(payload), str(lane)]:
            return RecordedJob(job, "given" if state == "given" else JobState(state), payload, lane)
    raise ValueError(f"{written!r:.100} is no job")


def _read_session(
    session: int, cell: int, size: int, answered: bool, evaluations: Sequence[tuple[str, str]]
) -> SessionCompletion:
    entries = tuple((Entry.parse(entry), str(lane)) for entry, lane in evaluations)
    return SessionCompletion(int(session), int(cell), int(size), bool(answered), entries)


def as_json(value: object) -> bytes:
    """A value as compact JSON."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")
