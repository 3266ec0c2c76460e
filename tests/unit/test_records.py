"""Records of runs whose size was not known at submit, and records of answers from the cache."""

from __future__ import annotations

import json
from typing import Any

import pytest
from redis import Redis

from fairlane.client.deployment import Blocking
from fairlane.client.following.records import Records
from fairlane.evaluators.builders import llm_judge
from fairlane.export.lines import record_line
from fairlane.model.choices import Source
from fairlane.model.job import JobState
from fairlane.model.results import JudgeResult, TaskResult, assemble
from fairlane.model.run import RunRef
from fairlane.model.sessions import session_job
from fairlane.model.tokens import Usage
from tests.support.records import spec_of
from tests.support.stage import Stage

UNTOLD = [{"open": True}, {"source": Source(url="/data/rows.jsonl", format="jsonl")}]


@pytest.mark.parametrize("untold", UNTOLD, ids=["open", "source"])
def test_a_run_whose_spec_has_no_number_of_rows_is_read_whole(
    fake_redis: Redis, untold: dict[str, Any]
) -> None:
    stage = Stage(fake_redis)
    run = stage.client.submit([{"question": f"q{n}"} for n in range(20)], "{{ question }}", model="sim:fast")
    stage.admit()
    stage.answer(run.id, 20, last_first=True)
    spec = stage.spec(run.id).model_copy(update={"rows": 0, **untold})
    records = Records(stage.client._deployment, spec)
    assert [record.item for record in Blocking(records.item_steps(), stage)] == list(range(20))
    assert [record.item for record in records.as_they_finish()] == list(range(19, -1, -1))


@pytest.mark.parametrize(("cached", "shown"), [(False, {"judge": Usage(7, 1)}), (True, {})])
def test_an_evaluation_from_the_cache_used_nothing(cached: bool, shown: dict[str, Usage]) -> None:
    judge = llm_judge("sim:judge", "{{ output }}", {"yes": 1}, name="judge")
    task = TaskResult(JobState.SUCCEEDED, "out", usage=Usage(10, 5), cached=cached)
    result = JudgeResult(JobState.SUCCEEDED, 1.0, "yes", usage=Usage(7, 1), cached=cached)
    record = assemble(spec_of([judge], rows=1), 0, {}, [task.to_json(), result.to_json()])
    assert (record.cached, record.scores, record.eval_usage) == (cached, {"judge": 1.0}, shown)


@pytest.mark.parametrize(
    ("result", "shown"),
    [
        (JudgeResult(JobState.SUCCEEDED, 1.0, "yes", attempts=1), {"judge": Usage()}),
        (JudgeResult(JobState.FAILED, None, "hm", "no verdict", attempts=1), {"judge": Usage()}),
        (JudgeResult(JobState.FAILED, None, None, "500", attempts=3), {}),
        (JudgeResult(JobState.SUCCEEDED, 1.0, "yes", attempts=1, cached=True), {}),
        (JudgeResult(JobState.SUCCEEDED, 1.0, "a batch call's answer"), {}),
    ],
)
def test_an_answer_without_a_number_of_tokens_is_known_as_one(
    result: JudgeResult, shown: dict[str, Usage]
) -> None:
    judge = llm_judge("sim:judge", "{{ output }}", {"yes": 1}, name="judge")
    stored = [TaskResult(JobState.SUCCEEDED, "out").to_json(), result.to_json()]
    assert assemble(spec_of([judge], rows=1), 0, {}, stored).eval_usage == shown


def test_a_record_has_what_its_stored_result_has_in_every_cell() -> None:
    spec = spec_of([], rows=2).model_copy(update={"models": ("sim:a", "sim:b"), "repetitions": 2})
    task = TaskResult(
        JobState.FAILED,
        error="500",
        usage=Usage(3, None, 1),
        attempts=3,
        latency_ms=12,
        model="sim:other",
        scores={"exact": None},
        score_errors={"exact": "no output"},
        finish_reason="stop",
        left_out=("seed",),
    )
    record = assemble(spec, 7, {"n": 1}, [task.to_json()])
    assert (record.model, record.prompt, record.repetition) == ("sim:other", 0, 1)
    assert (record.state, record.output, record.error) == (JobState.FAILED, None, "500")
    assert (record.scores, record.score_errors) == ({"exact": None}, {"exact": "no output"})
    assert (record.usage, record.attempts, record.latency_ms) == (Usage(3, None, 1), 3, 12)
    assert (record.finish_reason, record.cached) == ("stop", False)
    assert record.notes == {"task": "sent without seed: the model does not support it"}
    assert assemble(spec, 3, {}, [None]).model == "sim:b"


def test_half_a_surrogate_pair_in_an_output_is_read_as_it_was_stored() -> None:
    text = TaskResult(JobState.SUCCEEDED, "half \ud83d").to_json()
    assert TaskResult.from_json(text.encode()).output == "half \ud83d"
    record = assemble(spec_of([], rows=1), 0, {}, [text.encode()])
    assert json.loads(record_line(record))["output"] == "half \ud83d"


def test_a_summary_counts_sessions_with_the_tokens_of_their_evaluations(fake_redis: Redis) -> None:
    stage, template = Stage(fake_redis), "{{ session }}"
    judge = llm_judge("sim:judge", template, {"yes": 1, "no": 0}, level="session", name="whole")
    rows = [{"q": n, "s": each} for n, each in enumerate(["a", "b", "c", "a"])]
    run = stage.client.submit(rows, "{{ q }}", model="sim:fast", evaluators=[judge], session="s")
    stage.admit()
    stage.deployment.cancel(RunRef("search", run.id))
    results = [
        JudgeResult(JobState.SUCCEEDED, 1.0, usage=Usage(30, 1)),
        JudgeResult(JobState.SUCCEEDED, 0.0, usage=Usage(30, 1), cached=True),
    ]
    for session, result in enumerate(results):
        job = session_job(stage.spec(run.id), session, 0, 0)
        stage.redis.hset(stage.keys.results(RunRef("search", run.id)), str(job), result.to_json())
    found = run.summary()
    assert (found.session_scores["whole"].count, found.session_scores["whole"].missing) == (2, 1)
    assert [(each.model, each.calls, each.tokens) for each in found.evaluations] == [("sim:judge", 1, 31)]
