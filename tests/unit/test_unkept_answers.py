"""Answers that were paid and not kept: their tokens are with the job's result, and in the summary's cost."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fairlane.client.views.tally import summarise
from fairlane.export.lines import read_record, record_line
from fairlane.export.spool import Columns
from fairlane.model.decision import RetryPolicy
from fairlane.model.ending import Ending
from fairlane.model.evaluators import Judge
from fairlane.model.job import JobState
from fairlane.model.outcome import FlawedAnswer, InvalidResponse, Outcome, PermanentFailure, Success
from fairlane.model.results import JudgeResult, TaskResult, assemble
from fairlane.model.run import Bounds, RunState
from fairlane.model.tokens import Price, Unkept, Usage
from fairlane.store.read.reading import RecordReader
from fairlane_workers.providers.answers.answer import Answer
from fairlane_workers.providers.answers.classify import Reading, conclude
from fairlane_workers.providers.contract import Request
from tests.support.played_runs import played
from tests.support.records import make_record, spec_of
from tests.support.worker_parts import WorkerParts, on_loop

PRICES = {"sim:fast": Price(input=1.0, output=2.0), "sim:judge": Price(input=10.0, output=20.0)}
OFTEN = RetryPolicy(max_attempts=3, initial_delay=0.0, max_delay=0.0)
counts = st.integers(0, 1000)
usages = st.builds(Usage, counts, counts, st.none() | counts, st.none() | counts)
unkept = st.builds(Unkept, st.integers(1, 100), usages) | st.just(Unkept())


def drawn(seed: int) -> Any:
    """Answers with usage, of which some are no answers, refusals, or have no usable form."""
    rng = random.Random(seed)

    def answer(request: Request) -> Outcome:
        usage = Usage(rng.randrange(1, 30), rng.randrange(1, 20))
        outcomes: list[Outcome] = [
            Success("yes", usage, "stop"),
            FlawedAnswer("no JSON", 200, usage=usage),
            PermanentFailure("I cannot help", 200, content=True, usage=usage),
        ]
        return rng.choices(outcomes, weights=[3, 3, 1])[0]

    return answer


@settings(max_examples=25)
@given(st.integers(0, 2**32), st.integers(1, 6))
def test_the_tokens_of_a_summary_are_those_that_the_runs_budget_counts(seed: int, rows: int) -> None:
    async def scene(parts: WorkerParts) -> None:
        parts.provider.answer = drawn(seed)
        bounds = Bounds(budget_tokens=10**9)
        ask: dict[str, Any] = {"judges": ["sim:judge"], "retry": OFTEN, "bounds": bounds}
        run = parts.scheduler.admit(rows, **ask)
        records = await played(parts, run)
        summary = summarise(run.plan.spec, RunState.COMPLETED, records, PRICES)
        counted = float(parts.scheduler.state(run.ref)["tokens"])
        assert summary.task_tokens + summary.evaluation_tokens == counted
        spent = (*summary.tasks, *summary.evaluations)
        assert sum(each.calls for each in spent) == len(parts.provider.requests)
        assert read_back(records) == records

    on_loop(scene)


def read_back(records: list[Any]) -> list[Any]:
    return [read_record(record_line(each)) for each in records]


def test_a_run_that_ends_early_keeps_the_tokens_of_jobs_that_waited_for_a_retry() -> None:
    async def scene(parts: WorkerParts) -> None:
        parts.provider.answer = FlawedAnswer("no JSON", 200, usage=Usage(10, 5, 3))
        (attempt,) = parts.grant(1, retry=OFTEN, bounds=Bounds(budget_tokens=10**9))
        await parts.executor.execute(attempt)
        (run,) = parts.scheduler.backlog.runs()
        ending = Ending(RunState.STOPPED, JobState.CANCELLED, "the next call would exceed its budget")
        parts.scheduler.runs.end(
            run.ref, ["sim:fast"], ending, parts.scheduler.leader.epoch, parts.scheduler.now_ms
        )
        reader = RecordReader(parts.scheduler.redis, parts.keys, run.plan.spec)
        (record,) = reader.records(range(1))
        assert (record.state, record.unkept) == (JobState.CANCELLED, {"task": Unkept(1, Usage(10, 5, 3))})
        summary = summarise(run.plan.spec, RunState.STOPPED, [record], PRICES)
        assert summary.cost_usd == pytest.approx(20e-6)

    on_loop(scene)


@pytest.mark.parametrize("state", [JobState.SKIPPED, JobState.CANCELLED, JobState.TIMED_OUT])
def test_a_job_without_an_end_shows_nothing_but_their_tokens(state: JobState) -> None:
    judge = Judge(name="j", model="sim:judge", template="{{ output }}", choices={"yes": 1.0})
    spec = spec_of((judge,))
    stored = json.dumps({"s": state, "w": [2, 20, 10, 0]})
    for before in (TaskResult(JobState.SUCCEEDED, "out").to_json(), None):
        jobs = [before or stored, stored]
        found = assemble(spec, 0, {}, jobs, state)
        assert set(found.unkept) == ({"j"} if before else {"task", "j"})
        assert replace(found, unkept={}) == assemble(spec, 0, {}, [before, None], state)


def test_the_cost_has_what_was_not_kept_and_says_how_much_that_is() -> None:
    record = make_record(
        usage=Usage(100, 50),
        eval_usage={"judge": Usage(10, 1)},
        unkept={"task": Unkept(3, Usage(300, 150)), "judge": Unkept(1, Usage(20, 2))},
    )
    summary = summarise(spec_of(), RunState.COMPLETED, [record], PRICES)
    (task,) = summary.tasks
    assert (task.calls, task.tokens, task.unkept, task.unkept_tokens) == (4, 600, 3, 450)
    assert task.cost_usd == pytest.approx(800e-6)
    assert task.unkept_usd == pytest.approx(600e-6)
    assert summary.waste == "4 answers, 472 tokens, $0.0006"
    assert summary.to_dict()["tasks"][0]["unkept"] == 3
    assert "Of these, not kept: 4 answers" in summary._repr_html_()


def test_where_all_answers_were_kept_nothing_is_said() -> None:
    summary = summarise(spec_of(), RunState.COMPLETED, [make_record()], PRICES)
    assert (summary.waste, summary.tasks[0].unkept_usd) == ("", None)


@given(unkept, st.sampled_from([JobState.SUCCEEDED, JobState.FAILED]), st.booleans())
def test_a_stored_result_keeps_them_in_either_form(some: Unkept, state: JobState, short: bool) -> None:
    task, judged = TaskResult(state, "out", unkept=some), JudgeResult(state, 1.0, unkept=some)
    assert TaskResult.from_json(task.to_json(short=short)) == task
    assert JudgeResult.from_json(judged.to_json(short=short)) == judged
    record = assemble(spec_of(), 0, {}, [task.to_json(short=short)])
    assert record.unkept == ({"task": some} if some.answers else {})


@pytest.mark.parametrize("old", ['["out",10,5,1,20,"stop"]', '{"s":"failed","e":"no JSON","a":3}'])
def test_results_of_earlier_versions_have_none(old: str) -> None:
    assert TaskResult.from_json(old).unkept == Unkept()
    assert assemble(spec_of(), 0, {}, [old]).unkept == {}


def test_lines_of_earlier_versions_have_none() -> None:
    fields = json.loads(record_line(make_record()))
    del fields["unkept"]
    assert read_record(json.dumps(fields)) == make_record()


def test_tables_have_a_column_for_each_count() -> None:
    columns = Columns()
    row = columns.learn(make_record(unkept={"task": Unkept(3, Usage(300, 150))}))
    assert row["unkept.task.answers"] == 3
    assert row["unkept.task.usage.input_tokens"] == 300


@pytest.mark.parametrize(
    ("answer", "usage"),
    [
        (Answer(refusal="I cannot help", finish_reason="stop"), Usage(10, 5)),
        (Answer(finish_reason="tool_calls"), Usage(10, 5)),
        (Answer(ended=True), Usage(10, 5)),
        (Answer(parts=["The ans"]), Usage(10, None)),
    ],
)
def test_an_answer_of_no_use_has_the_tokens_that_were_counted(answer: Answer, usage: Usage) -> None:
    answer.input_tokens, answer.output_tokens = 10, 5
    outcome = conclude(answer, 200, {}, Reading(), now_ms=0)
    assert isinstance(outcome, PermanentFailure | FlawedAnswer | InvalidResponse)
    assert outcome.usage == usage
