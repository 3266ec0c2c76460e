"""Rows that form sessions are evaluated as a whole, as soon as all of a session's items are over."""

from __future__ import annotations

from fairlane import JobState
from fairlane.evaluators.builders import llm_judge
from fairlane.model.evaluators import EvaluatorSpec
from tests.support.cluster import Cluster, whole
from tests.support.wait import wait_until

VERDICTS = {"yes": 1.0, "no": 0.0}

IN_ORDER = """{% set said = session|map(attribute="output")|join(",") -%}
{% set asked = session|map(attribute="row.turn")|join(",") -%}
{% if said == asked %}yes{% else %}no{% endif %}"""


def judge_of_sessions(model: str, template: str = IN_ORDER) -> EvaluatorSpec:
    return llm_judge(f"sim:{model}", template, VERDICTS, level="session", name="conversation")


def rows_of(sessions: int, turns: int) -> list[dict[str, str]]:
    """Turn by turn, so that every session is spread over the whole dataset."""
    return [{"talk": f"t{s}", "turn": f"{s}.{turn}"} for turn in range(turns) for s in range(sessions)]


def test_every_session_is_judged_over_its_outputs_in_the_order_of_rows(deployment: Cluster) -> None:
    echo, judge = (deployment.new_model(output="echo", latency_ms=10) for _ in range(2))
    each = llm_judge(f"sim:{judge}", "{% if output %}yes{% endif %}", VERDICTS, name="each")
    rows = rows_of(sessions=150, turns=4)
    run = deployment.client.submit(
        rows,
        "{{ turn }}",
        model=f"sim:{echo}",
        repetitions=2,
        session="talk",
        evaluators=[judge_of_sessions(judge), each],
    )
    assert {record.scores["each"] for record in whole(run, timeout=150)} == {1.0}
    found = list(run.sessions())
    assert [(each.session, each.repetition) for each in found] == [
        (f"t{s}", repetition) for s in range(150) for repetition in range(2)
    ]
    assert {each.scores["conversation"] for each in found} == {1.0}
    assert found[3].items == (3, 303, 603, 903)
    status = run.status()
    assert (status.jobs, status.progress) == (1200 + 1200 + 300, 1.0)
    assert all(lane.known == lane.done for lane in status.lanes)
    assert deployment.served(judge).requests == 1200 + 300


def test_a_session_is_judged_while_others_still_run(deployment: Cluster) -> None:
    echo, judge = (deployment.new_model(output="echo", latency_ms=10) for _ in range(2))
    deployment.lanes.limit(f"sim:{echo}", {"requests_per_minute": 600, "burst_seconds": 0.1})
    rows = [{"talk": str(n // 2), "turn": str(n)} for n in range(40)]
    run = deployment.client.submit(
        rows, "{{ turn }}", model=f"sim:{echo}", session="talk", evaluators=[judge_of_sessions(judge)]
    )
    wait_until(lambda: deployment.served(judge).requests > 0)
    assert run.status().items_done < 40
    assert [each.scores["conversation"] for each in run.sessions()] == [1.0] * 20
    assert run.status().progress == 1.0


def test_items_that_fail_are_done_and_a_session_of_nothing_else_is_skipped(deployment: Cluster) -> None:
    echo, broken, judge = (
        deployment.new_model(output="echo", latency_ms=10),
        deployment.new_model(status_always=400),
        deployment.new_model(output="echo", latency_ms=10),
    )
    rows = [
        {"talk": "half", "m": echo, "turn": "1"},
        {"talk": "none", "m": broken, "turn": "1"},
        {"talk": "half", "m": broken, "turn": "2"},
        {"talk": "none", "m": echo},
    ]
    template = "{% for turn in session %}{{ 'yes' if turn.output is none }}{% endfor %}"
    run = deployment.client.submit(
        rows,
        "{{ turn }}",
        model="sim:{{ m }}",
        session="talk",
        evaluators=[judge_of_sessions(judge, template)],
    )
    states = [record.state for record in run.results()]
    assert states == [JobState.SUCCEEDED, JobState.FAILED, JobState.FAILED, JobState.INVALID]
    half, none = run.sessions()
    assert half.scores == {"conversation": 1.0}
    assert none.scores == {"conversation": None}
    assert none.score_errors == {"conversation": "no item of the session has an output"}
    assert (deployment.served(judge).requests, run.status().progress) == (1, 1.0)


def test_a_judge_of_sessions_over_outputs_that_exist_counts_and_calls_sessions_alone(
    deployment: Cluster,
) -> None:
    judge = deployment.new_model(output="echo", latency_ms=10)
    rows = [row | {"said": row["turn"]} for row in rows_of(sessions=100, turns=7)]
    run = deployment.client.submit(rows, output="said", session="talk", evaluators=[judge_of_sessions(judge)])
    status = run.wait(timeout=60)
    assert (status.jobs, status.jobs_done, status.progress) == (100, 100, 1.0)
    assert deployment.served(judge).requests == 100
    assert {each.scores["conversation"] for each in run.sessions()} == {1.0}


def test_a_cancelled_run_reports_its_sessions(deployment: Cluster) -> None:
    echo, judge = deployment.new_model(output="echo", latency_ms=10), deployment.new_model(latency_ms=60_000)
    run = deployment.client.submit(
        rows_of(sessions=5, turns=2),
        "{{ turn }}",
        model=f"sim:{echo}",
        session="talk",
        evaluators=[judge_of_sessions(judge)],
    )
    wait_until(lambda: run.status().items_done == 10)
    run.cancel()
    assert run.wait(timeout=30).progress == 1.0
    assert {each.score_errors["conversation"] for each in run.sessions()} == {"the run was cancelled"}
