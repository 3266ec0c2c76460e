"""A run's status as text and as JSON."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from fairlane.cli.output import ago, at_local_time, clip, fields_of, iso, print_fields, print_table
from fairlane.core.figures import counted, figure, took
from fairlane.model.job import JobState
from fairlane.model.run import RunState
from fairlane.model.run_status import RunStatus, Scores, failed_of

LONGEST_NAME = 20


def run_document(status: RunStatus) -> dict[str, Any]:
    """Every field of a status; ``progress`` is 0 to 1, times are ISO 8601."""
    return {
        **fields_of(status, "run", "team", "name", "state", "progress"),
        **fields_of(status, "items", "items_done", "jobs", "jobs_done"),
        "by_state": dict(status.by_state),
        **fields_of(status, "failed", "in_flight", "retries", "rate_limits", "late_reports"),
        "lanes": [asdict(part) for part in status.lanes],
        "submitted_at": iso(status.submitted_ms),
        "started_at": iso(status.started_ms),
        "finished_at": iso(status.finished_ms),
        "reason": status.reason,
        "paused": status.paused is not None,
        "paused_at": iso(status.paused.since_ms) if status.paused else None,
        "paused_by": status.paused.by or None if status.paused else None,
        "rejected_by": [{"lane": each.lane, "words": each.words} for each in status.rejections],
        "client_scores": {name: asdict(each) for name, each in status.client_scores.items()},
    }


def print_runs(statuses: list[RunStatus], now_ms: int) -> None:
    """Runs as a table, in the order given."""
    columns = ["run", "name", "state", ">done", ">jobs", ">failed", "submitted"]
    rows = (
        (
            status.run,
            "" if status.name == status.run else clip(status.name, LONGEST_NAME),
            state_in_a_word(status),
            share(status),
            f"{status.jobs:,}",
            f"{status.failed:,}",
            ago(status.submitted_ms, now_ms),
        )
        for status in statuses
    )
    print_table(columns, rows)


def print_run(status: RunStatus, now_ms: int) -> None:
    """One run: its fields, then its lanes."""
    print_fields(_fields(status, now_ms))
    if status.lanes:
        rows = (
            (part.lane, f"{part.done:,}", f"{part.known:,}", _percent(part.done, part.known))
            for part in status.lanes
        )
        print_table(["lane", ">done", ">of known", ">share"], rows, apart=True)


def share(status: RunStatus) -> str:
    """The share of finished jobs, rounded down: 100 % only if none is left."""
    if not status.jobs:
        return "100 %" if status.state.finished else "0 %"
    return _percent(status.jobs_done, status.jobs)


def state_in_a_word(status: RunStatus) -> str:
    """``"paused"`` for a paused run, ``"lost"`` for one that will never start, else its state."""
    lost = status.state is RunState.SUBMITTED and status.reason
    return "paused" if status.paused is not None else "lost" if lost else str(status.state)


def pause_in_words(status: RunStatus, now_ms: int) -> str | None:
    """``"by ann@host since 14:05:09"``; ``None`` for a run that is not paused."""
    if status.paused is None:
        return None
    by = f"by {status.paused.by} " if status.paused.by else ""
    return f"{by}since {at_local_time(status.paused.since_ms, now_ms)}"


def ending(status: RunStatus) -> str:
    """How a finished run ended, as the end of a sentence: ``"completed: 5 jobs"``."""
    if status.state is RunState.REFUSED:
        return f"was refused: {status.reason}"
    lost: dict[JobState, int] = {
        state: count for state, count in status.by_state.items() if state is not JobState.SUCCEEDED
    }
    ended = "completed" if status.state is RunState.COMPLETED else f"was {status.state}"
    counts = states_in_words(lost)
    jobs = f"{ended}: {counted(status.jobs, 'job')}" + (f", {counts}" if counts else "")
    return f"{jobs} ({status.reason})" if status.reason else jobs


def states_in_words(by_state: Mapping[JobState, int]) -> str:
    """Counts by state, invalid ones among the failed: ``"3 cancelled, 15 failed (5 invalid)"``."""
    invalid = by_state.get(JobState.INVALID, 0)
    merged = {**by_state, JobState.FAILED: failed_of(by_state), JobState.INVALID: 0}
    words = {state: f"{count:,} {state}" for state, count in sorted(merged.items()) if count}
    if invalid:
        words[JobState.FAILED] += f" ({invalid:,} invalid)"
    return ", ".join(words.values())


def _fields(status: RunStatus, now_ms: int) -> list[tuple[str, object]]:
    counts = states_in_words(status.by_state)
    late = (
        f"{counted(status.late_reports, 'report')} that came too late to count"
        if status.late_reports
        else None
    )
    return [
        ("run", status.run),
        ("name", None if status.name == status.run else status.name),
        ("team", status.team),
        ("state", f"{status.state}, {share(status)} done"),
        ("paused", pause_in_words(status, now_ms)),
        ("reason", status.reason or None),
        *(("rejected by", f"{each.lane}: {each.words}") for each in status.rejections),
        ("items", f"{status.items_done:,} of {status.items:,}"),
        ("jobs", f"{status.jobs_done:,} of {status.jobs:,}" + (f": {counts}" if counts else "")),
        ("in flight", f"{status.in_flight:,}"),
        ("retries", f"{status.retries:,}"),
        ("rate limits", f"{counted(status.rate_limits, 'call')} rejected with 429"),
        ("late", late),
        *((name, _in_words(each)) for name, each in status.client_scores.items()),
        ("submitted", ago(status.submitted_ms, now_ms)),
        ("started", None if status.started_ms is None else ago(status.started_ms, now_ms)),
        ("finished", _finish(status, now_ms)),
    ]


def _in_words(scores: Scores) -> str:
    """A client's scores in a line."""
    rows = f" for {counted(scores.rows, 'row')}" if 0 < scores.rows < scores.count else ""
    of_items = f"{counted(scores.count, 'score')} of a client{rows}, {scores.missing:,} missing"
    if scores.mean is None:
        return of_items
    error = "" if scores.standard_error is None else f" ± {figure(scores.standard_error, 2)}"
    return f"{figure(scores.mean)}{error}, {of_items}"


def _finish(status: RunStatus, now_ms: int) -> str | None:
    if status.finished_ms is None:
        return None
    since = status.submitted_ms if status.started_ms is None else status.started_ms
    return f"{ago(status.finished_ms, now_ms)}, after {took(status.finished_ms - since)}"


def _percent(part: int, whole: int) -> str:
    return f"{100 * part // whole if whole else 0} %"
