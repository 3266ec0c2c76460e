"""Three agents by ten criteria at a limit of five, over real HTTP: provider and logs both tell it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from fairlane import JobState, RetryPolicy, Run, RunState, agent, criterion
from fairlane.core.events import Event
from fairlane.model.evaluators import EvaluatorSpec
from tests.support.cluster import Cluster, cluster, numbered, whole

LIMIT = 5
DIMENSIONS = [f"c{n}" for n in range(10)]
CRITERIA = [criterion(each, f"Criterion {each}") for each in DIMENSIONS]
NAMES = ("prosecutor", "defence", "judge")
SWIFT = RetryPolicy(max_attempts=3, initial_delay=0.02, max_delay=0.05)
LATE = ("the permit came too late", "the call was not sent yet")
PLAIN = '[connections.plain]\nprotocol = "openai"\nbase_url = "{base_url}"\nstructured_output = false\n'


@pytest.fixture(scope="module")
def court(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two workers of 20 slots; the connection ``plain`` cannot be held to a schema."""
    with cluster(tmp_path_factory.mktemp("court"), config=PLAIN) as made:
        yield made


@pytest.fixture(autouse=True)
def _begin(court: Cluster) -> None:
    court.begin()


def agents(model: str, names: tuple[str, ...] = NAMES, **options: Any) -> list[EvaluatorSpec]:
    return [agent(name, model, f"As {name}: {{{{ output }}}}", CRITERIA, **options) for name in names]


def judge(court: Cluster, evaluators: list[EvaluatorSpec], rows: int = 1, **options: Any) -> Run:
    """A run over outputs that exist, so that nothing is called but the agents."""
    given = {"output": "answer", "max_concurrent": LIMIT, "retry": SWIFT, **options}
    return court.client.submit(numbered(rows, answer="It depends."), evaluators=evaluators, **given)


def scored(run: Run, count: int) -> None:
    """The run completed, and each of its records has ``count`` scores within the scale."""
    records = whole(run)
    assert run.status().state is RunState.COMPLETED
    for record in records:
        assert len(record.scores) == count
        assert not record.score_errors
        assert all(1 <= (score or 0) <= 5 for score in record.scores.values())


def most_at_once(court: Cluster, run: Run) -> int:
    """The most calls at a time that the log lines of all processes account for."""
    changes = {Event.ACQUIRED: +1, Event.RELEASED: -1}
    steps = [
        (datetime.fromisoformat(line["timestamp"]), change)
        for event, change in changes.items()
        for line in court.logged(event, run=run.id)
    ]
    now = most = 0
    for _, change in sorted(steps):
        now += change
        most = max(most, now)
    assert now == 0, "every permit was returned"
    return most


def test_sc_001_three_agents_by_ten_dimensions_complete_without_an_unresolved_429(court: Cluster) -> None:
    model = court.new_model(output="schema", latency_ms=60, max_concurrency=LIMIT, burst_429=((0.0, 0.2),))
    run = judge(court, agents(f"sim:{model}"))
    scored(run, 30)
    refused = Counter(line["job"] for line in court.logged(Event.RETRY, run=run.id, status_code=429))
    answered = {line["job"] for line in court.logged(Event.RELEASED, run=run.id, status_code=200)}
    assert refused
    assert refused.keys() <= answered
    assert len(answered) == 30
    assert court.served(model).rejected_by.concurrency == 0


@pytest.mark.parametrize("count", [3, 6])
def test_sc_002_and_sc_004_never_more_than_the_limit_in_flight_however_many_agents(
    court: Cluster, count: int
) -> None:
    model = court.new_model(output="schema", latency_ms=250)
    run = judge(court, agents(f"sim:{model}", tuple(f"agent{n}" for n in range(count))))
    scored(run, 10 * count)
    served = court.served(model)
    assert (served.requests, served.completed, served.rejected) == (10 * count, 10 * count, 0)
    assert served.peak_in_flight == LIMIT
    assert most_at_once(court, run) == LIMIT


def test_fr_001_the_limit_holds_over_all_lanes_and_workers_and_tasks_count(court: Cluster) -> None:
    models = [court.new_model(output="schema", latency_ms=60) for _ in range(4)]
    evaluators = [
        each for name, model in zip(NAMES, models, strict=False) for each in agents(f"sim:{model}", (name,))
    ]
    run = court.client.submit(
        numbered(3), "question {{ n }}", model=f"sim:{models[3]}", evaluators=evaluators, max_concurrent=LIMIT
    )
    scored(run, 30)
    assert most_at_once(court, run) <= LIMIT
    workers = {line["process"] for line in court.logged(Event.RELEASED, run=run.id)}
    assert len(workers) == 2


def test_fr_006_a_limit_of_one_takes_longer_and_loses_nothing(court: Cluster) -> None:
    model = court.new_model(output="schema", latency_ms=5)
    run = judge(court, agents(f"sim:{model}"), max_concurrent=1)
    scored(run, 30)
    assert court.served(model).peak_in_flight == 1
    assert most_at_once(court, run) == 1


def test_fr_009_the_limit_in_force_is_logged_when_the_run_starts(court: Cluster) -> None:
    model = court.new_model(output="schema", latency_ms=5)
    run = judge(court, agents(f"sim:{model}", ("judge",)), max_concurrent=3)
    scored(run, 10)
    (line,) = court.logged(Event.RUN_ADMITTED, run=run.id)
    assert (line["level"], line["max_concurrent"]) == ("info", 3)


def test_fr_003_and_fr_009_the_environment_gives_defaults_that_a_run_keeps(
    court: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = court.new_model(output="schema", latency_ms=40)
    monkeypatch.setenv("MAX_CONCURRENT_LLM_CALLS", "2")
    monkeypatch.setenv("BATCHING_ENABLED", "true")
    run = judge(court, agents(f"sim:{model}"), rows=5, max_concurrent=None)
    monkeypatch.setenv("MAX_CONCURRENT_LLM_CALLS", "0")
    with pytest.raises(ValueError, match=r"^MAX_CONCURRENT_LLM_CALLS must be >= 1, got 0$"):
        judge(court, agents(f"sim:{model}"), max_concurrent=None)
    monkeypatch.setenv("MAX_CONCURRENT_LLM_CALLS", "3")
    later = judge(court, agents(f"sim:{model}"), rows=5, max_concurrent=None)
    for each, limit in ((run, 2), (later, 3)):
        scored(each, 30)
        assert most_at_once(court, each) <= limit
        assert court.logged(Event.RUN_ADMITTED, run=each.id)[0]["max_concurrent"] == limit
    assert court.served(model).requests == 2 * 3 * 5


def test_fr_005_batching_sends_one_structured_call_for_each_agent_and_output(court: Cluster) -> None:
    model = court.new_model(output="schema", latency_ms=20)
    run = judge(court, agents(f"sim:{model}", batching=True), rows=4)
    scored(run, 30)
    assert court.served(model).requests == 3 * 4
    dimensions = Counter(line["dimension"] for line in court.logged(Event.ACQUIRED, run=run.id))
    assert dimensions == {"*": 12}


def test_fr_005_dimensions_that_a_batch_lacks_are_retried_one_by_one(court: Cluster) -> None:
    model = court.new_model(output="schema", latency_ms=20, schema_omits=("c3", "c7"))
    run = judge(court, agents(f"sim:{model}", batching=True))
    scored(run, 30)
    assert court.served(model).requests == 3 * (1 + 2)
    asked = Counter(line["dimension"] for line in court.logged(Event.ACQUIRED, run=run.id))
    assert asked == {"*": 3, "c3": 3, "c7": 3}
    assert not court.logged(Event.EVALUATION_MALFORMED, run=run.id)


def test_fr_005_malformed_entries_are_discarded_with_a_warning_and_retried(court: Cluster) -> None:
    model = court.new_model(output="schema", latency_ms=20, schema_breaks=("c2",))
    run = judge(court, agents(f"sim:{model}", batching=True))
    scored(run, 30)
    assert court.served(model).requests == 3 * (1 + 1)
    shown = court.logged(Event.EVALUATION_MALFORMED, run=run.id)
    assert {(line["agent"], line["level"]) for line in shown} == {(name, "warning") for name in NAMES}
    assert all('"criterion_id": "c2"' in line["raw"] and '"high"' in line["raw"] for line in shown)


def test_fr_004_a_provider_without_structured_output_is_asked_one_by_one(court: Cluster) -> None:
    fixed = '{"score": 4, "argument": "fine"}'
    model = court.new_model(output="fixed", fixed_text=fixed, latency_ms=20)
    run = judge(court, agents(f"plain:{model}", ("judge",), batching=True))
    (record,) = whole(run)
    assert record.scores == {f"judge.{each}": 4.0 for each in DIMENSIONS}
    assert set(record.arguments.values()) == {"fine"}
    assert court.served(model).requests == 10
    assert not court.logged(Event.ACQUIRED, run=run.id, dimension="*")


def test_a_dimension_that_fails_for_good_is_reported_and_the_others_go_on(court: Cluster) -> None:
    broken = court.new_model(output="fixed", fixed_text="no score", latency_ms=5)
    fine = court.new_model(output="schema", latency_ms=5)
    defence = agent("defence", f"sim:{broken}", "{{ output }}", CRITERIA[:2])
    run = judge(court, [defence, *agents(f"sim:{fine}", ("judge",))])
    (record,) = whole(run)
    assert run.status().state is RunState.COMPLETED
    assert run.status().by_state[JobState.FAILED] == 2
    failed = {"defence.c0", "defence.c1"}
    assert {name for name, score in record.scores.items() if score is None} == failed
    assert {record.arguments[name] for name in failed} == {"Evaluation failed after 3 retries"}
    assert set(record.score_errors) == failed
    shown = court.logged(Event.EVALUATION_FAILED, run=run.id)
    assert sorted(line["dimension"] for line in shown) == ["c0", "c1"]
    for line in shown:
        assert (line["level"], line["agent"], line["status_code"]) == ("error", "defence", 200)
        assert line["elapsed_s"] >= 0


def test_fr_007_and_fr_008_a_call_without_an_answer_ends_at_its_timeout_and_frees_its_slot(
    court: Cluster,
) -> None:
    model = court.new_model(faults={"hang": 1.0})
    retry = RetryPolicy(max_attempts=2, initial_delay=0.01, max_delay=0.02)
    lone = agent("judge", f"sim:{model}", "{{ output }}", CRITERIA[:4])
    run = judge(court, [lone], timeout=0.3, retry=retry, max_concurrent=2)
    whole(run)
    shown = court.logged(Event.TIMEOUT, run=run.id)
    assert Counter(line["dimension"] for line in shown) == dict.fromkeys(DIMENSIONS[:4], 2)
    assert {(line["agent"], line["timeout_s"], line["level"]) for line in shown} == {
        ("judge", 0.3, "warning")
    }
    assert most_at_once(court, run) <= 2
    assert court.served(model).requests == 8


def test_sc_003_every_event_of_a_dimension_names_its_agent_and_carries_its_numbers(court: Cluster) -> None:
    model = court.new_model(output="schema", latency_ms=20, faults={"error_502": 0.3})
    run = judge(
        court, agents(f"sim:{model}"), retry=RetryPolicy(max_attempts=20, initial_delay=0.01, max_delay=0.02)
    )
    scored(run, 30)
    pairs = {(name, each) for name in NAMES for each in DIMENSIONS}
    numbers = {
        Event.QUEUEING: {"queue_depth": int},
        Event.ACQUIRED: {"active_slots": int},
        Event.RELEASED: {"active_slots": int},
        Event.RETRY: {"attempt": int, "status_code": int, "delay_s": float},
    }
    for event, fields in numbers.items():
        lines = court.logged(event, run=run.id)
        found = {(line["agent"], line["dimension"]) for line in lines}
        assert found <= pairs if event is Event.RETRY else found == pairs
        assert found
        for line in lines:
            if not is_late(line):
                assert {field: type(line[field]) for field in fields} == fields, line
    called = [line for line in court.logged(Event.RETRY, run=run.id) if not is_late(line)]
    # A 502 may be of the form: the next call goes without it, and may be answered without it.
    assert {line["status_code"] for line in called} - {200} == {502}


def is_late(line: dict[str, Any]) -> bool:
    """Whether a worker returned a permit unused: nothing was called, so there is no status."""
    return any(words in line.get("reason", "") for words in LATE)


def test_sc_003_dimensions_that_follow_a_task_are_queued_by_name(court: Cluster) -> None:
    model = court.new_model(output="schema", latency_ms=20)
    run = court.client.submit(
        numbered(1), "question {{ n }}", model=f"sim:{model}", evaluators=agents(f"sim:{model}")
    )
    scored(run, 30)
    queued = [line for line in court.logged(Event.QUEUEING, run=run.id) if "agent" in line]
    assert {(line["agent"], line["dimension"]) for line in queued} == {
        (name, each) for name in NAMES for each in DIMENSIONS
    }
    assert all(isinstance(line["queue_depth"], int) for line in queued)
