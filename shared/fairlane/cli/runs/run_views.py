"""A run's status as people read it, and as programs do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from fairlane.cli.output import (
    ago,
    at_local_time,
    clip,
    fields_of,
    iso,
    print_fields,
    print_line,
    print_table,
    took,
)
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
    print_table(
        columns,
        (
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
        ),
    )


def print_run(status: RunStatus, now_ms: int) -> None:
    """One run: its fields, then its lanes."""
    print_fields(_fields(status, now_ms))
    if status.lanes:
        print_line("")
        print_table(
            ["lane", ">done", ">of known", ">share"],
            (
                (part.lane, f"{part.done:,}", f"{part.known:,}", _percent(part.done, part.known))
                for part in status.lanes
            ),
        )


def share(status: RunStatus) -> str:
    """How much of the run is over, rounded down: 100 % is said when nothing is left."""
    if not status.jobs:
        return "100 %" if status.state.finished else "0 %"
    return _percent(status.jobs_done, status.jobs)


def state_in_a_word(status: RunStatus) -> str:
    """Its state, or that it is paused."""
    return "paused" if status.paused is not None else str(status.state)


def pause_in_words(status: RunStatus, now_ms: int) -> str | None:
    """``"by ann@host since 14:05:09"``; ``None`` for a run that is not paused."""
    if status.paused is None:
        return None
    by = f"by {status.paused.by} " if status.paused.by else ""
    return f"{by}since {at_local_time(status.paused.since_ms, now_ms)}"


def ending(status: RunStatus) -> str:
    """How a run that is over ended: the rest of a sentence that begins with its name."""
    if status.state is RunState.REFUSED:
        return f"was refused: {status.reason}"
    lost: dict[JobState, int] = {
        state: count for state, count in status.by_state.items() if state is not JobState.SUCCEEDED
    }
    ended = "completed" if status.state is RunState.COMPLETED else f"was {status.state}"
    counts = states_in_words(lost)
    return f"{ended}: {counted(status.jobs, 'job')}" + (f", {counts}" if counts else "")


def counted(count: int, noun: str) -> str:
    """``"1 job"``, ``"1,200 jobs"``."""
    return f"{count:,} {noun}" if count == 1 else f"{count:,} {noun}s"


def states_in_words(by_state: Mapping[JobState, int]) -> str:
    """Counts by state, invalid ones among the failed: ``"3 cancelled, 15 failed (5 invalid)"``."""
    invalid = by_state.get(JobState.INVALID, 0)
    merged = {**by_state, JobState.FAILED: failed_of(by_state), JobState.INVALID: 0}
    words = {state: f"{count:,} {state}" for state, count in sorted(merged.items()) if count}
    if invalid:
        words[JobState.FAILED] += f" ({invalid:,} invalid)"
    return ", ".join(words.values())


def _fields(status: RunStatus, now_ms: int) -> list[tuple[str, object]]:
    fields: list[tuple[str, object]] = [("run", status.run)]
    if status.name != status.run:
        fields.append(("name", status.name))
    fields += [("team", status.team), ("state", f"{status.state}, {share(status)} done")]
    if (paused := pause_in_words(status, now_ms)) is not None:
        fields.append(("paused", paused))
    if status.reason:
        fields.append(("reason", status.reason))
    fields += [("rejected by", f"{each.lane}: {each.words}") for each in status.rejections]
    fields += [
        ("items", f"{status.items_done:,} of {status.items:,}"),
        ("jobs", f"{status.jobs_done:,} of {status.jobs:,}{_by_state(status)}"),
        ("in flight", f"{status.in_flight:,}"),
        ("retries", f"{status.retries:,}"),
        ("rate limits", f"{status.rate_limits:,} calls rejected with 429"),
    ]
    if status.late_reports:
        fields.append(("late", f"{status.late_reports:,} reports that came too late to count"))
    fields += [(name, _in_words(each)) for name, each in status.client_scores.items()]
    return [*fields, ("submitted", ago(status.submitted_ms, now_ms)), *_times(status, now_ms)]


def _in_words(scores: Scores) -> str:
    """A client's scores in a line."""
    rows = f" for {scores.rows:,} rows" if 0 < scores.rows < scores.count else ""
    of_items = f"{scores.count:,} scores of a client{rows}, {scores.missing:,} missing"
    if scores.mean is None:
        return of_items
    error = "" if scores.standard_error is None else f" ± {scores.standard_error:.2g}"
    return f"{scores.mean:.4g}{error}, {of_items}"


def _times(status: RunStatus, now_ms: int) -> list[tuple[str, object]]:
    times: list[tuple[str, object]] = []
    if status.started_ms is not None:
        times.append(("started", ago(status.started_ms, now_ms)))
    if status.finished_ms is not None:
        since = status.started_ms if status.started_ms is not None else status.submitted_ms
        times.append(
            ("finished", f"{ago(status.finished_ms, now_ms)}, after {took(status.finished_ms - since)}")
        )
    return times


def _by_state(status: RunStatus) -> str:
    counts = states_in_words(status.by_state)
    return f": {counts}" if counts else ""


def _percent(part: int, whole: int) -> str:
    return f"{100 * part // whole if whole else 0} %"
