"""A client uploads what sessions its rows form, and reads their records back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fairlane.core.errors import SubmissionError
from fairlane.datasets.references import Reference
from fairlane.evaluators.builders import llm_judge
from fairlane.model.job import JobState
from fairlane.model.results import JudgeResult
from fairlane.model.run import RunRef
from fairlane.model.sessions import (
    SessionMembership,
    SessionRecord,
    decode_members,
    decode_memberships,
    members_field,
    memberships_field,
    session_job,
)
from tests.support.contents import read_contents
from tests.support.stage import Stage

JUDGE = llm_judge("sim:judge", "{{ session }}", {"yes": 1, "no": 0}, level="session", name="whole")
ROWS = [{"q": n, "s": each} for n, each in enumerate(["a", "b", "a"])]


def submit(stage: Stage, dataset: Any = ROWS, **arguments: Any) -> Any:
    given = {"prompt": "{{ q }}", "model": "sim:fast", "evaluators": [JUDGE], "session": "s"}
    return stage.client.submit(dataset, **given | arguments)


def score(stage: Stage, run: str, session: int, cell: int, result: JudgeResult) -> None:
    """Record a session's only evaluation in one of its cells."""
    job = session_job(stage.spec(run), session, cell, 0)
    stage.redis.hset(stage.keys.results(RunRef("search", run)), str(job), result.to_json())


def test_sessions_are_written_beside_the_rows_and_counted(stage: Stage) -> None:
    run = submit(stage)
    fields: Any = stage.redis.hgetall(stage.keys.rows(RunRef("search", run.id)))
    assert decode_memberships(fields[memberships_field(0).encode()], 2) == [
        SessionMembership(0, 2),
        SessionMembership(1, 1),
        SessionMembership(0, 2),
    ]
    assert decode_members(fields[members_field(0).encode()], 3) == [[0, 2], [1]]
    assert (run.status().items, run.status().jobs) == (3, 3 + 2)


def test_a_row_without_its_session_leaves_nothing_behind(stage: Stage) -> None:
    before = read_contents(stage.redis)
    with pytest.raises(SubmissionError, match="row 4"):
        submit(stage, [*ROWS, {"q": 3}])
    assert read_contents(stage.redis) == before


def test_a_dataset_without_rows_has_no_sessions(stage: Stage) -> None:
    run = submit(stage, [], check=False)
    assert run.status().jobs == 0


def test_a_session_record_reports_its_value_its_cell_its_items_and_its_scores(stage: Stage) -> None:
    run = submit(stage, repetitions=2)
    stage.admit()
    stage.deployment.cancel(RunRef("search", run.id))
    score(stage, run.id, 0, 0, JudgeResult(JobState.SUCCEEDED, 1.0))
    score(stage, run.id, 0, 1, JudgeResult(JobState.FAILED, error="no choice"))
    score(stage, run.id, 1, 0, JudgeResult(JobState.SUCCEEDED, 0.0))

    common: dict[str, Any] = {"model": "sim:fast", "prompt": 0}
    assert list(run.sessions()) == [
        SessionRecord("a", repetition=0, items=(0, 4), scores={"whole": 1.0}, score_errors={}, **common),
        SessionRecord(
            "a",
            repetition=1,
            items=(1, 5),
            scores={"whole": None},
            score_errors={"whole": "no choice"},
            **common,
        ),
        SessionRecord("b", repetition=0, items=(2,), scores={"whole": 0.0}, score_errors={}, **common),
        SessionRecord(
            "b",
            repetition=1,
            items=(3,),
            scores={"whole": None},
            score_errors={"whole": "the run was cancelled"},
            **common,
        ),
    ]


def test_records_of_many_sessions_come_block_by_block_in_order(stage: Stage) -> None:
    run = submit(stage, [{"q": n, "s": n // 2} for n in range(700)], models=["sim:a", "sim:b"], model=None)
    stage.admit()
    stage.deployment.cancel(RunRef("search", run.id))
    found = list(run.sessions())
    assert [record.session for record in found] == [n // 2 for n in range(700)]
    assert [record.model for record in found[:2]] == ["sim:a", "sim:b"]
    assert found[-1].items == (1397, 1399)


def test_a_run_with_a_session_field_alone_shows_which_items_belong_together(stage: Stage) -> None:
    run = submit(stage, evaluators=[])
    stage.admit()
    stage.answer(run.id, 3)
    assert [(each.session, each.items, each.scores) for each in run.sessions()] == [
        ("a", (0, 2), {}),
        ("b", (1,), {}),
    ]
    assert run.status().progress == 1


def test_a_run_that_was_not_reported_of_sessions_has_no_records_of_them(stage: Stage) -> None:
    run = submit(stage, evaluators=[], session=None)
    stage.admit()
    stage.answer(run.id, 3)
    assert list(run.sessions()) == []


def test_sessions_of_rows_that_follow_cannot_be_evaluated(stage: Stage, tmp_path: Path) -> None:
    whole: dict[str, Any] = {"prompt": "{{ q }}", "model": "sim:fast", "evaluators": [JUDGE], "session": "s"}
    for hand_over in (
        lambda: stage.client.open(**whole),
        lambda: stage.client.submit(Reference(str(tmp_path / "rows.jsonl")), **whole),
    ):
        with pytest.raises(SubmissionError, match=r"sessions.*'whole'.*Submit the rows themselves"):
            hand_over()
