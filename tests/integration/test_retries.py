"""What is tried again: rate limits cost nothing, failures cost attempts, refusals end a job at once."""

from __future__ import annotations

import pytest

from fairlane import JobState, RetryPolicy
from fairlane.core.events import Event
from tests.support.cluster import Cluster, all_succeeded, numbered, whole
from tests.support.wait import wait_until

PATIENT = RetryPolicy(max_attempts=10, initial_delay=0.05, max_delay=0.2)
BRIEF_MS = 700
OUTAGE_FAILURES = 5  # that open a circuit


@pytest.mark.parametrize("form", ["milliseconds", "seconds", "fraction", "date"])
def test_a_429_costs_no_attempt_and_its_retry_after_binds_the_lane(deployment: Cluster, form: str) -> None:
    model = deployment.new_model(
        latency_ms=20, headers="retry_after", retry_after_form=form, burst_429=((0.0, BRIEF_MS / 1000),)
    )
    only_one = RetryPolicy(max_attempts=1)
    run = deployment.client.submit(numbered(6), "question {{ n }}", model=f"sim:{model}", retry=only_one)
    records = all_succeeded(run)
    assert {record.attempts for record in records} == {1}
    served, status = deployment.served(model), run.status()
    # Each was refused once, and no call came before the time.
    assert 1 <= served.rejected <= 6
    assert (status.rate_limits, status.retries) == (served.rejected, 0)


def test_a_retry_after_on_a_success_delays_no_call(deployment: Cluster) -> None:
    model = deployment.new_model(latency_ms=20, success_retry_after_ms=60_000)
    deployment.lanes.limit(f"sim:{model}", {"max_concurrency": 1})
    run = deployment.client.submit(numbered(3), "question {{ n }}", model=f"sim:{model}")
    all_succeeded(run)
    served = deployment.served(model)
    assert served.first_admitted_s is not None
    assert served.last_completed_s is not None
    assert served.last_completed_s - served.first_admitted_s < 60


def test_every_job_survives_a_flaky_provider_and_counts_its_attempts(deployment: Cluster) -> None:
    kinds = ("error_500", "error_502", "error_503", "error_529", "error_in_stream")
    broken = ("reset", "reset_after_work", "malformed", "cut_stream")
    model = deployment.new_model(latency_ms=30, faults=dict.fromkeys((*kinds, *broken), 0.04))
    run = deployment.client.submit(numbered(60), "question {{ n }}", model=f"sim:{model}", retry=PATIENT)
    # A third of the calls fails: five in a row may open the circuit, and then some probes in a row may fail.
    records = all_succeeded(run, timeout=200.0)
    served = deployment.served(model)
    # A stream that turns out to be broken is given up, which the server sees as abandoned.
    failures = sum(served.errors.values()) + served.abandoned
    assert failures > 0
    assert sum(record.attempts - 1 for record in records) <= run.status().retries == failures
    # Paid twice only where the first answer was lost after the work was done.
    assert served.duplicates_after.completed == 0


def test_a_momentary_401_or_404_costs_one_call_and_fails_no_row(deployment: Cluster) -> None:
    model = deployment.new_model(latency_ms=30, faults={"error_401": 0.1, "error_404": 0.1})
    run = deployment.client.submit(numbered(100), "question {{ n }}", model=f"sim:{model}", retry=PATIENT)
    all_succeeded(run, timeout=200.0)
    errors = deployment.served(model).errors
    assert errors["error_401"] > 0
    assert errors["error_404"] > 0
    assert deployment.lanes.view(f"sim:{model}").parked is None


def test_random_429s_cost_no_attempt_and_are_recognised(deployment: Cluster) -> None:
    model = deployment.new_model(latency_ms=30, faults={"error_429": 0.1})
    run = deployment.client.submit(numbered(600), "question {{ n }}", model=f"sim:{model}")
    records = all_succeeded(run, timeout=200.0)
    assert {record.attempts for record in records} == {1}
    assert deployment.served(model).errors["error_429"] > 0


def test_jobs_wait_while_no_call_of_their_lane_is_answered(deployment: Cluster) -> None:
    model = deployment.new_model(latency_ms=10, faults={"error_500": 1.0})
    lane, soon = f"sim:{model}", RetryPolicy(initial_delay=0.02, max_delay=0.05)
    run = deployment.client.submit(numbered(4), "question {{ n }}", model=lane, retry=soon)
    wait_until(lambda: deployment.lanes.knows(lane) and deployment.lanes.view(lane).circuit == "open")
    assert run.status().jobs_done == 0
    deployment.provider.change_model(model, faults={})
    all_succeeded(run)


def test_an_outage_of_some_seconds_fails_no_job_and_meets_few_calls(deployment: Cluster) -> None:
    model = deployment.new_model(latency_ms=200, faults={"error_503": 1.0})
    lane, in_flight = f"sim:{model}", 20
    deployment.lanes.limit(lane, {"max_concurrency": in_flight, "outage_delay": 1.0})
    run = deployment.client.submit(numbered(100), "question {{ n }}", model=lane)
    wait_until(lambda: deployment.lanes.knows(lane) and deployment.lanes.view(lane).circuit == "open")
    wait_until(lambda: deployment.served(model).errors["error_503"] >= OUTAGE_FAILURES + 2)
    deployment.provider.change_model(model, latency_ms=200, faults={})
    failed = deployment.served(model).errors["error_503"]
    records = all_succeeded(run)
    assert {record.attempts for record in records} == {1}
    probes = 2  # after 1 s and 1.25 s more; the third, after 1.6 s more, is answered
    assert failed <= OUTAGE_FAILURES + in_flight + probes
    assert deployment.served(model).requests == 100 + failed
    assert run.status().by_state == {JobState.SUCCEEDED: 100}


def test_a_refused_request_fails_at_once_with_the_provider_s_words(deployment: Cluster) -> None:
    model = deployment.new_model(status_always=400)
    run = deployment.client.submit(numbered(4), "question {{ n }}", model=f"sim:{model}", retry=PATIENT)
    records = whole(run)
    shown = f"{model} is configured to answer 400."
    assert {(record.state, record.attempts, record.error) for record in records} == {
        (JobState.FAILED, 1, shown)
    }
    assert deployment.served(model).requests == 4


def test_a_call_that_hangs_ends_at_the_run_s_timeout(deployment: Cluster) -> None:
    model = deployment.new_model(faults={"hang": 1.0})
    twice = RetryPolicy(max_attempts=2, initial_delay=0.01, max_delay=0.02)
    run = deployment.client.submit(
        numbered(3), "question {{ n }}", model=f"sim:{model}", timeout=0.5, retry=twice
    )
    records = whole(run)
    assert {(record.state, record.attempts) for record in records} == {(JobState.FAILED, 2)}
    assert all("within 0.5 s" in (record.error or "") for record in records)
    assert all(500 <= (record.latency_ms or 0) < 5000 for record in records)
    assert deployment.served(model).requests == 6
    assert len(deployment.logged(Event.TIMEOUT, run=run.id)) == 6


def test_every_retry_is_logged_with_what_caused_it(deployment: Cluster) -> None:
    model = deployment.new_model(latency_ms=10, faults={"error_503": 1.0})
    run = deployment.client.submit(numbered(1), "question {{ n }}", model=f"sim:{model}")
    wait_until(lambda: deployment.logged(Event.RETRY, run=run.id))
    run.cancel()
    line = deployment.logged(Event.RETRY, run=run.id)[0]
    assert (line["job"], line["attempt"], line["status_code"]) == (0, 1, 503)
    assert (line["lane"], line["team"]) == (f"sim:{model}", "search")
    assert line["delay_s"] >= 0
