"""A simulated model charges only requests that it admits, and its counts always balance."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fairlane.lab.simulator.model.behaviour import ERROR_STATUS, Fault
from fairlane.lab.simulator.model.replies import Composer
from fairlane.lab.simulator.model.served_model import Outage, Rejection, ServedModel, Work
from fairlane.lab.simulator.wire.dialect import Call, Exceeded
from fairlane.testing import Faults, ManualClock, SimulatedModel


def served(model: SimulatedModel, clock: ManualClock | None = None, seed: int = 0) -> ServedModel:
    return ServedModel("fast", model, Composer("fast", model, seed), seed, clock or ManualClock())


def call(prompt: str = "Q" * 40, max_tokens: int | None = 100) -> Call:
    return Call("fast", prompt, prompt, max_tokens, stream=False, include_usage=False)


def admitted(model: ServedModel, request: Call | None = None) -> Work:
    decision = model.arrive(request or call())
    assert isinstance(decision, Work)
    return decision


def rejected_by(model: ServedModel) -> Rejection:
    decision = model.arrive(call())
    assert isinstance(decision, Rejection)
    return decision


@pytest.mark.parametrize(("charge", "cost"), [("actual", 10 + 20), ("reserved", 10 + 100)])
def test_a_request_costs_its_output_or_its_reservation(charge: Any, cost: int) -> None:
    model = served(SimulatedModel(tokens_per_minute=60_000, charge=charge, output_tokens=20))
    admitted(model)
    assert model.levels()["tokens"].remaining == 1000 - cost


def test_without_max_tokens_the_models_own_limit_is_reserved() -> None:
    model = served(SimulatedModel(tokens_per_minute=60_000, charge="reserved", max_output_tokens=300))
    admitted(model, call(max_tokens=None))
    assert model.levels()["tokens"].remaining == 1000 - 310


@pytest.mark.parametrize(("charge", "cost"), [("actual", 0), ("reserved", 110)])
def test_work_that_is_never_done_costs_only_reserved_tokens(charge: Any, cost: int) -> None:
    faults = Faults(error_500=1)
    model = served(SimulatedModel(tokens_per_minute=60_000, charge=charge, faults=faults))
    admitted(model)
    assert model.levels()["tokens"].remaining == 1000 - cost


def test_a_rejected_request_leaves_its_draw_to_the_next() -> None:
    clock = ManualClock()
    model = served(SimulatedModel(requests_per_minute=60, output_tokens_stddev=20, latency_sigma=1), clock)
    unhindered = served(SimulatedModel(output_tokens_stddev=20, latency_sigma=1))
    draws = [admitted(unhindered).draw for _ in range(3)]
    for drawn in draws:
        assert admitted(model).draw == drawn
        rejected_by(model)
        clock.advance(1)


def test_a_429_reports_the_wait_until_there_is_room() -> None:
    clock = ManualClock()
    model = served(SimulatedModel(requests_per_minute=120, burst_seconds=0.5), clock)
    admitted(model)
    rejection = rejected_by(model)
    assert (rejection.problem.status, rejection.problem.code, rejection.retry_after_ms) == (
        429,
        "requests",
        500,
    )
    clock.advance(0.5)
    admitted(model)


def test_input_and_output_are_charged_separately() -> None:
    limit = SimulatedModel(
        input_tokens_per_minute=6000, output_tokens_per_minute=6000, tokens_per_minute=6000, output_tokens=20
    )
    model = served(limit)
    admitted(model)
    remaining = {axis: level.remaining for axis, level in model.levels().items()}
    assert remaining == {"input": 90, "output": 80, "tokens": 70}
    model = served(limit.model_copy(update={"charge": "reserved"}))
    admitted(model, call(max_tokens=60))
    assert model.levels()["output"].remaining == 40


@pytest.mark.parametrize(
    ("model", "exceeded"),
    [
        (SimulatedModel(requests_per_minute=60), Exceeded("fast", "requests", 60, 60, 1)),
        (SimulatedModel(requests_per_day=1), Exceeded("fast", "day", 1, 1, 1)),
        (SimulatedModel(input_tokens_per_minute=660), Exceeded("fast", "input", 660, 659, 10)),
        (
            SimulatedModel(tokens_per_minute=5400, charge="reserved", max_output_tokens=70),
            Exceeded("fast", "tokens", 5400, 5390, 80),
        ),
        (SimulatedModel(max_concurrency=1), Exceeded("fast", "concurrency", 1, 1, 1)),
    ],
)
def test_a_rejection_reports_the_used_and_the_requested_amount(
    model: SimulatedModel, exceeded: Exceeded
) -> None:
    judge = served(model.model_copy(update={"headers": "ratelimit"}))
    admitted(judge)
    assert rejected_by(judge).problem.exceeded == exceeded


def test_a_model_without_hints_rejects_without_numbers() -> None:
    judge = served(SimulatedModel(requests_per_minute=60, headers="retry_after"))
    admitted(judge)
    problem = rejected_by(judge).problem
    assert (problem.code, problem.exceeded) == ("requests", None)
    assert "60" not in problem.message


def test_a_rejection_by_acceleration_has_no_numbers() -> None:
    model = served(SimulatedModel(requests_per_minute=6000, acceleration=2.0, acceleration_floor=1))
    admitted(model)
    rejection = rejected_by(model)
    assert (rejection.problem.code, rejection.problem.exceeded) == ("requests", None)
    assert rejection.retry_after_ms == 60_000


@pytest.mark.parametrize(("shape", "wait_ms"), [("bucket", 1000), ("window", 59_600), ("sliding", 60_000)])
def test_a_retry_after_is_the_true_wait_of_the_shape(shape: Any, wait_ms: int) -> None:
    clock = ManualClock()
    model = served(SimulatedModel(requests_per_minute=60, shape=shape), clock)
    clock.advance(0.4)
    while isinstance(decision := model.arrive(call()), Work):
        model.complete(decision)
    assert decision == rejected_by(model)
    assert isinstance(decision, Rejection)
    assert decision.retry_after_ms == wait_ms
    clock.advance((wait_ms - 1) / 1000)
    rejected_by(model)
    clock.advance(0.001)
    admitted(model)


def test_more_concurrency_starts_waiting_calls() -> None:
    model = served(SimulatedModel(max_concurrency=1, queue=5))
    works = [admitted(model) for _ in range(4)]
    assert [work.turn.is_set() for work in works] == [True, False, False, False]
    wider = SimulatedModel(max_concurrency=2, queue=5)
    model.reconfigure(wider, Composer("fast", wider, 0))
    assert [work.turn.is_set() for work in works] == [True, True, False, False]
    model.complete(works[0])
    model.abandon(works[2])
    assert works[2].turn.is_set()
    assert works[3].turn.is_set()


def test_a_429_for_concurrency_names_the_latency() -> None:
    model = served(SimulatedModel(max_concurrency=1, latency_ms=250))
    work = admitted(model)
    assert rejected_by(model).retry_after_ms == 250
    model.complete(work)
    admitted(model)
    assert model.snapshot().rejected_by.concurrency == 1


@pytest.mark.parametrize(("windows_from", "begins_s"), [("first_request", 5.0), ("start", 0.0)])
def test_an_outage_counts_from_the_configured_start(windows_from: Any, begins_s: float) -> None:
    clock = ManualClock()
    model = served(SimulatedModel(outages=((1, 1),), windows_from=windows_from), clock)
    clock.advance(5)
    admitted(model)
    clock.advance(1)
    decision = model.arrive(call())
    assert isinstance(decision, Outage) == (begins_s == 5.0)


def test_in_a_burst_each_429_reports_the_wait_until_its_end() -> None:
    clock = ManualClock()
    model = served(SimulatedModel(burst_429=((0, 3),), requests_per_minute=60), clock)
    clock.advance(1)
    assert rejected_by(model).retry_after_ms == 3000
    clock.advance(2)
    assert rejected_by(model).retry_after_ms == 1000
    clock.advance(1)
    admitted(model)
    stats = model.snapshot()
    assert (stats.rejected_by.burst, stats.rejected_by.requests, stats.rejected) == (2, 0, 2)


@pytest.mark.parametrize(
    ("always", "status", "code"), [(401, 401, None), ("insufficient_quota", 429, "quota")]
)
def test_a_configured_status_answers_everything_and_charges_nothing(
    always: Any, status: int, code: str | None
) -> None:
    model = served(SimulatedModel(status_always=always, requests_per_minute=60))
    for _ in range(3):
        rejection = rejected_by(model)
        assert (rejection.problem.status, rejection.problem.code) == (status, code)
    assert model.levels()["requests"].remaining == 1
    assert model.snapshot().errors == {"status_always": 3}


def test_a_changed_status_takes_effect_and_the_counts_stay() -> None:
    model = served(SimulatedModel(status_always=401))
    rejected_by(model)
    healed = SimulatedModel()
    model.reconfigure(healed, Composer("fast", healed, 0))
    model.complete(admitted(model))
    stats = model.snapshot()
    assert (stats.requests, stats.completed, stats.errors) == (2, 1, {"status_always": 1})


def test_changing_a_limit_keeps_calls_in_flight() -> None:
    model = served(SimulatedModel(max_concurrency=5))
    works = [admitted(model) for _ in range(3)]
    tighter = SimulatedModel(max_concurrency=2)
    model.reconfigure(tighter, Composer("fast", tighter, 0))
    rejected_by(model)
    for work in works[:2]:
        model.complete(work)
    admitted(model)


def test_changing_something_else_refills_no_bucket() -> None:
    model = served(SimulatedModel(requests_per_minute=60))
    admitted(model)
    slower = SimulatedModel(requests_per_minute=60, latency_ms=900)
    model.reconfigure(slower, Composer("fast", slower, 0))
    rejected_by(model)


def test_the_reply_is_ready_when_the_request_is_admitted(tmp_path: Path) -> None:
    path = tmp_path / "answers.jsonl"
    path.write_text(
        json.dumps({"question": "How many legs has a spider?", "answer": "#### 8"}), encoding="utf-8"
    )
    model = served(SimulatedModel(output="answers", answers_file=path, answer_style="plain"))
    assert admitted(model, call("Q: How many legs has a spider?")).reply.text == "8"


@given(
    st.lists(st.tuples(st.sampled_from(["arrive", "end", "abandon"]), st.integers(0, 400)), max_size=80),
    st.integers(0, 1000),
)
def test_the_counts_always_balance(steps: list[tuple[str, int]], seed: int) -> None:
    clock = ManualClock()
    faults = Faults(error_500=0.1, reset=0.1, reset_after_work=0.1, malformed=0.1, hang=0.1)
    configured = SimulatedModel(
        requests_per_minute=600,
        tokens_per_minute=6000,
        max_concurrency=3,
        faults=faults,
        burst_429=((2, 1),),
        outages=((4, 1),),
    )
    model, in_flight = served(configured, clock, seed), list[Work]()
    for step, gap_ms in steps:
        clock.advance(gap_ms / 1000)
        if step == "arrive":
            decision = model.arrive(call())
            in_flight += [decision] if isinstance(decision, Work) else []
        elif in_flight:
            work = in_flight.pop(0)
            if step == "abandon":
                model.abandon(work)
            elif work.draw.fault is None:
                model.complete(work)
            else:
                model.fail(work, work.draw.fault)
            model.abandon(work)
        stats = model.snapshot()
        told_at_the_door = stats.errors.get("outage", 0)
        assert stats.requests == stats.admitted + stats.rejected + told_at_the_door
        assert stats.rejected == sum(stats.rejected_by.model_dump().values())
        failed = sum(stats.errors.values()) - told_at_the_door
        assert stats.admitted == stats.completed + failed + stats.abandoned + stats.in_flight
        assert stats.in_flight == len(in_flight) <= stats.peak_in_flight <= 3
        assert sum(count for _, count in stats.admissions_per_second) == stats.admitted


def test_only_finished_work_is_charged() -> None:
    for fault in Fault:
        model = served(SimulatedModel(faults=Faults(**{fault.value: 1.0}), output_tokens=20))
        model.fail(admitted(model), fault)
        paid = fault in (Fault.RESET_AFTER_WORK, Fault.MALFORMED, Fault.CUT_STREAM)
        stats = model.snapshot()
        assert (stats.prompt_tokens, stats.completion_tokens) == ((10, 20) if paid else (0, 0))
        assert stats.errors == {fault.value: 1}


def test_every_status_that_a_fault_names_is_its_own() -> None:
    assert {fault.value for fault in ERROR_STATUS} == {f"error_{status}" for status in ERROR_STATUS.values()}
