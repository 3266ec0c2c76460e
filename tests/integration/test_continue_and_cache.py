"""Nothing is done twice: continued runs, cached answers, existing outputs."""

from __future__ import annotations

import pytest

from fairlane import JobState, RunState, SubmissionError
from fairlane.evaluators.builders import exact_match, llm_judge
from tests.support.cluster import Cluster, all_succeeded, numbered, whole


def judged(model: str, name: str = "judge") -> object:
    return llm_judge(f"sim:{model}", "{{ output }}", {"yes": 1, "no": 0}, name=name)


def test_a_continued_run_does_missing_and_failed_items_and_repeats_none(deployment: Cluster) -> None:
    model = deployment.new_model(output="echo", latency_ms=1)
    rows = [{"n": n, "m": model if n % 2 else "missing-model"} for n in range(10)]
    first = deployment.client.submit(rows, "{{ n }}", model="sim:{{ m }}")
    assert {record.state for record in whole(first)} == {JobState.SUCCEEDED, JobState.FAILED}
    before = deployment.served(model).requests
    second = deployment.client.continue_run(first.id)
    records = whole(second)
    assert deployment.served(model).requests == before
    assert [record.output for record in records if record.row["m"] == model] == ["1", "3", "5", "7", "9"]
    assert [record.item for record in whole(first)] == list(range(10)), "history is kept"


def test_a_run_is_continued_after_the_dataset_grew_and_was_reordered(deployment: Cluster) -> None:
    model = deployment.new_model(output="echo", latency_ms=1)
    first = deployment.client.submit(numbered(6), "{{ n }}", model=f"sim:{model}")
    all_succeeded(first)
    grown = [{"n": 9}, *reversed(numbered(6)), {"n": 8}]
    second = deployment.client.continue_run(first.id, grown)
    assert [record.output for record in all_succeeded(second)] == ["9", "5", "4", "3", "2", "1", "0", "8"]
    assert deployment.served(model).requests == 8


def test_a_continued_run_scores_existing_outputs_with_another_evaluator(deployment: Cluster) -> None:
    model, judge = (
        deployment.new_model(output="echo", latency_ms=1),
        deployment.new_model(output="fixed", fixed_text="yes"),
    )
    first = deployment.client.submit(
        numbered(4), "{{ n }}", model=f"sim:{model}", evaluators=[judged(judge, "old")]
    )
    all_succeeded(first)
    second = deployment.client.continue_run(first.id, evaluators=[judged(judge, "old"), judged(judge, "new")])
    assert [dict(record.scores) for record in all_succeeded(second)] == [{"old": 1.0, "new": 1.0}] * 4
    assert (deployment.served(model).requests, deployment.served(judge).requests) == (4, 8)


def test_a_cancelled_run_is_continued_to_its_end(deployment: Cluster) -> None:
    model = deployment.new_model(output="echo", latency_ms=150)
    first = deployment.client.submit(numbered(12), "{{ n }}", model=f"sim:{model}", max_concurrent=2)
    next(first.stream())
    first.cancel()
    assert first.wait(timeout=60.0).state is RunState.CANCELLED
    done = sum(record.state is JobState.SUCCEEDED for record in first.results())
    second = deployment.client.continue_run(first.id)
    assert [record.output for record in all_succeeded(second)] == [str(n) for n in range(12)]
    assert 0 < done < 12


def test_errors_are_kept_where_they_are_not_to_be_tried_again(deployment: Cluster) -> None:
    first = deployment.client.submit(numbered(3), "{{ n }}", model="sim:missing-model")
    failed = [record.error for record in whole(first)]
    second = deployment.client.continue_run(first.id, retry_errors=False)
    assert [(record.state, record.error) for record in whole(second)] == [
        (JobState.FAILED, error) for error in failed
    ]


def test_an_unfinished_run_cannot_be_continued(deployment: Cluster) -> None:
    model = deployment.new_model(latency_ms=60_000)
    run = deployment.client.submit(numbered(1), "{{ n }}", model=f"sim:{model}")
    with pytest.raises(SubmissionError, match="still"):
        deployment.client.continue_run(run.id)
    run.cancel()
    run.wait(timeout=60.0)


def test_a_cache_hit_takes_no_permit(deployment: Cluster) -> None:
    model, judge = (
        deployment.new_model(output="echo", latency_ms=1),
        deployment.new_model(output="fixed", fixed_text="yes"),
    )
    client = deployment.client

    def submit(cache: str) -> list[tuple[str | None, dict[str, float | None], bool]]:
        run = client.submit(
            numbered(5),
            "cached {{ n }}",
            model=f"sim:{model}",
            evaluators=[judged(judge), exact_match("n", name="exact")],
            cache=cache,  # type: ignore[arg-type]
        )
        return [(record.output, dict(record.scores), record.cached) for record in all_succeeded(run)]

    first = submit("read_write")
    assert (deployment.served(model).requests, deployment.served(judge).requests) == (5, 5)
    second = submit("read")
    assert (deployment.served(model).requests, deployment.served(judge).requests) == (5, 5)
    assert [shown[:2] for shown in second] == [shown[:2] for shown in first]
    assert [shown[2] for shown in second] == [True] * 5
    assert [shown[2] for shown in submit("off")] == [False] * 5
    assert deployment.served(model).requests == 10


def test_repetitions_are_not_each_others_cache(deployment: Cluster) -> None:
    model = deployment.new_model(output="echo", latency_ms=1)
    run = deployment.client.submit(
        numbered(1), "again", model=f"sim:{model}", repetitions=3, cache="read_write"
    )
    all_succeeded(run)
    assert deployment.served(model).requests == 3


def test_a_judge_over_outputs_that_exist_calls_no_task(deployment: Cluster) -> None:
    judge = deployment.new_model(output="fixed", fixed_text="yes", latency_ms=1)
    rows = [{"answer": f"text {n}", "n": n} for n in range(7)]
    run = deployment.client.submit(rows, output="answer", evaluators=[judged(judge)])
    records = all_succeeded(run)
    assert [record.output for record in records] == [row["answer"] for row in rows]
    assert [record.scores["judge"] for record in records] == [1.0] * 7
    status = run.status()
    assert (status.jobs, status.jobs_done, status.items_done, status.progress) == (7, 7, 7, 1.0)


def test_a_task_only_run_has_no_scores(deployment: Cluster) -> None:
    model = deployment.new_model(output="echo", latency_ms=1)
    run = deployment.client.submit(numbered(3), "{{ n }}", model=f"sim:{model}")
    assert [dict(record.scores) for record in all_succeeded(run)] == [{}] * 3
