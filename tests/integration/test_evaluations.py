"""Outputs are scored in the worker or judged on lanes of their own; every score or its lack is recorded."""

from __future__ import annotations

from collections import Counter

from fairlane import JobState
from fairlane.evaluators.builders import (
    contains,
    exact_match,
    json_valid,
    llm_judge,
    numeric_match,
    regex,
    similarity,
)
from fairlane.model.evaluators import EvaluatorSpec
from tests.support.cluster import Cluster, all_succeeded, numbered, whole
from tests.support.wait import wait_until

VERDICTS = {"yes": 1.0, "no": 0.0}


def judge_by(model: str, name: str = "judge") -> EvaluatorSpec:
    template = "Question: {{ question }}\nExpected: {{ answer }}\nAnswer: {{ output }}"
    return llm_judge(f"sim:{model}", template, VERDICTS, name=name)


def test_pure_evaluators_score_each_output_against_its_row(deployment: Cluster) -> None:
    echo = deployment.new_model(output="echo", latency_ms=10)
    rows = [
        {"text": "The answer is 1,042.0", "wanted": "1042"},
        {"text": '{"sum": 7}', "wanted": '{"sum": 7}'},
        {"text": "no number", "wanted": "No number"},
    ]
    run = deployment.client.submit(
        rows,
        "{{ text }}",
        model=f"sim:{echo}",
        evaluators=[
            exact_match("wanted"),
            exact_match("wanted", ignore_case=True, name="loose"),
            contains(text="answer"),
            regex(r"(\d+)"),
            json_valid(required=["sum"]),
            numeric_match("wanted"),
        ],
    )
    records = all_succeeded(run)
    names = ("exact_match", "loose", "contains", "regex", "json_valid")
    assert [[record.scores[name] for name in names] for record in records] == [
        [0, 0, 1, 1, 0],
        [1, 1, 0, 1, 1],
        [0, 1, 0, 0, 0],
    ]
    assert [record.scores["numeric_match"] for record in records[:2]] == [1, 1]
    assert deployment.served(echo).requests == run.status().jobs == 3


def test_outputs_are_compared_by_their_embeddings(deployment: Cluster) -> None:
    echo, embedder = (
        deployment.new_model(output="echo", latency_ms=10),
        deployment.new_model(latency_ms=10),
    )
    rows = [
        {"text": "the cat sat", "wanted": "the cat sat"},
        {"text": "the cat sat", "wanted": "the cat lay"},
        {"text": "the cat sat", "wanted": "income tax returns"},
        {"text": "the cat sat"},
    ]
    run = deployment.client.submit(
        rows, "{{ text }}", model=f"sim:{echo}", evaluators=[similarity(f"sim:{embedder}", "wanted")]
    )
    same, alike, other, without = all_succeeded(run)
    scores = [each.scores["similarity"] for each in (same, alike, other)]
    assert abs((scores[0] or 0) - 1) < 1e-6
    assert sorted(scores, reverse=True) == scores
    assert without.scores["similarity"] is None
    assert "no field 'wanted'" in without.score_errors["similarity"]
    served = deployment.served(embedder)
    assert (served.requests, served.completion_tokens) == (3, 0)


def test_judges_answer_on_their_own_lanes(deployment: Cluster) -> None:
    echo, judge, vague = (
        deployment.new_model(output="echo", latency_ms=10),
        deployment.new_model(output="judge", latency_ms=10),
        deployment.new_model(output="fixed", fixed_text="who knows", latency_ms=10),
    )
    rows = [{"question": str(n), "answer": str(n if n % 2 else n + 1)} for n in range(20)]
    run = deployment.client.submit(
        rows,
        "{{ question }}",
        model=f"sim:{echo}",
        evaluators=[judge_by(judge), exact_match("answer"), judge_by(vague, "vague")],
    )
    records = whole(run)
    assert [record.state for record in records] == [JobState.SUCCEEDED] * 20
    assert [record.scores["judge"] for record in records] == [float(n % 2) for n in range(20)]
    assert [record.scores["exact_match"] for record in records] == [float(n % 2) for n in range(20)]
    assert {record.scores["vague"] for record in records} == {None}
    assert all("who knows" in record.score_errors["vague"] for record in records)
    lanes = {each.lane: (each.known, each.done) for each in run.status().lanes}
    assert lanes == {f"sim:{name}": (20, 20) for name in (echo, judge, vague)}


def test_the_judges_of_a_failed_task_are_skipped(deployment: Cluster) -> None:
    fine, refused, judge = (
        deployment.new_model(output="echo", latency_ms=10),
        deployment.new_model(status_always=400),
        deployment.new_model(output="judge", latency_ms=10),
    )
    rows = [{"question": str(n), "answer": str(n), "m": refused if n % 2 else fine} for n in range(10)]
    run = deployment.client.submit(
        rows, "{{ question }}", model="sim:{{ m }}", evaluators=[judge_by(judge), judge_by(judge, "again")]
    )
    records = whole(run)
    assert Counter(record.state for record in records) == {JobState.SUCCEEDED: 5, JobState.FAILED: 5}
    for record in records:
        shown = [1.0, 1.0] if record.state is JobState.SUCCEEDED else [None, None]
        assert [record.scores["judge"], record.scores["again"]] == shown
    status = run.status()
    assert status.by_state == {JobState.SUCCEEDED: 5 + 10, JobState.FAILED: 5, JobState.SKIPPED: 10}
    assert status.progress == 1.0
    assert deployment.served(judge).requests == 10


def test_an_item_that_misses_a_variable_is_invalid_without_a_call(deployment: Cluster) -> None:
    echo, judge = (
        deployment.new_model(output="echo", latency_ms=10),
        deployment.new_model(output="judge", latency_ms=10),
    )
    rows = [{"question": "1", "answer": "1"}, {"answer": "2"}, {"question": "3", "answer": "3"}]
    run = deployment.client.submit(rows, "{{ question }}", model=f"sim:{echo}", evaluators=[judge_by(judge)])
    first, broken, last = whole(run)
    assert (first.state, broken.state, last.state) == (
        JobState.SUCCEEDED,
        JobState.INVALID,
        JobState.SUCCEEDED,
    )
    assert "question" in (broken.error or "")
    assert (broken.attempts, broken.scores["judge"]) == (0, None)
    assert deployment.served(echo).requests == deployment.served(judge).requests == 2


def test_a_run_of_invalid_items_alone_completes_without_a_call(deployment: Cluster) -> None:
    model = deployment.new_model()
    run = deployment.client.submit(numbered(300), "{{ missing }}", model=f"sim:{model}", check=False)
    assert {record.state for record in whole(run)} == {JobState.INVALID}
    assert deployment.served(model).requests == 0


def test_a_judge_whose_template_misses_a_variable_is_invalid_and_its_task_counts(deployment: Cluster) -> None:
    echo, judge = deployment.new_model(output="echo", latency_ms=10), deployment.new_model(output="judge")
    run = deployment.client.submit(
        [{"question": "1"}],
        "{{ question }}",
        model=f"sim:{echo}",
        evaluators=[judge_by(judge)],
        check=False,
    )
    (record,) = whole(run)
    assert (record.state, record.output, record.scores["judge"]) == (JobState.SUCCEEDED, "1", None)
    assert "answer" in record.score_errors["judge"]
    assert deployment.served(judge).requests == 0


def test_a_failed_judge_does_not_affect_its_task(deployment: Cluster) -> None:
    echo, judge = deployment.new_model(output="echo", latency_ms=10), deployment.new_model(status_always=404)
    rows = [{"question": str(n), "answer": str(n)} for n in range(5)]
    run = deployment.client.submit(rows, "{{ question }}", model=f"sim:{echo}", evaluators=[judge_by(judge)])
    for record in whole(run):
        assert (record.state, record.scores["judge"]) == (JobState.SUCCEEDED, None)
        assert "404" in record.score_errors["judge"]


def test_items_are_judged_before_further_tasks_start_on_the_same_lane(deployment: Cluster) -> None:
    model = deployment.new_model(output="echo", latency_ms=20)
    deployment.lanes.limit(f"sim:{model}", {"requests_per_minute": 1200, "burst_seconds": 0.2})
    rows = [{"question": f"yes {n}", "answer": "yes"} for n in range(40)]
    judge = llm_judge(f"sim:{model}", "{% if output %}yes{% endif %}", VERDICTS)
    run = deployment.client.submit(rows, "{{ question }}", model=f"sim:{model}", evaluators=[judge])
    wait_until(lambda: run.status().jobs_done >= 40)
    halfway = run.status()
    assert halfway.items_done >= 10
    all_succeeded(run)
